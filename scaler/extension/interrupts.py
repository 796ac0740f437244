"""What adapters do when a user presses Ctrl-C. Any thread may call the functions."""

from __future__ import annotations

from collections.abc import Iterable

from scaler.client import Client, Future
from scaler.client.client import parts_of


def abandon(client: Client, futures: Iterable[Future]) -> None:
    """Take back the tasks of a client's futures, also those that run: the thread that waited for them was interrupted.

    Futures that another thread waits for are left alone. Blocks for a moment, and raises nothing.
    """
    parts, _ = parts_of(client)
    parts.owner.abandon(futures)
