"""What adapters do when a user presses Ctrl-C. Any thread may call the functions."""

from __future__ import annotations

from collections.abc import Iterable

from scaler.client import Client, Future
from scaler.client.client import parts_of
from scaler.common.interrupts import has_ended_program, is_interrupt, wait_in_steps


def abandon(client: Client, futures: Iterable[Future]) -> None:
    """Take back the tasks of a client's futures, also those that run: the thread that waited for them was interrupted.

    Futures that another thread waits for are left alone. Blocks for a moment, and raises nothing.
    """
    parts, _ = parts_of(client)
    parts.owner.abandon(futures)


def leave_at_once(client: Client) -> None:
    """`Client.disconnect` after Ctrl-C: without fetching results from stores. Blocks for a second at most."""
    parts, _ = parts_of(client)
    parts.lifetime.leave_at_once()


def pass_callback(client: Client) -> None:
    """If a callback of a client's futures has not ended some seconds after it began, results come without it from now
    on. Blocks until one of both, and returns at once if none is being called.
    """
    parts, _ = parts_of(client)
    parts.lifetime.pass_callback()


__all__ = ["abandon", "has_ended_program", "is_interrupt", "leave_at_once", "pass_callback", "wait_in_steps"]
