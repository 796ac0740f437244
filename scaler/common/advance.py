"""What is begun in advance of this program's first cluster, for that one to take over.

It is of no use any more once a client connects, or a local cluster is started that does not take it.
"""

from __future__ import annotations

import atexit
from typing import Protocol

from scaler.common.renewed_lock import RenewedLock


class Advance(Protocol):
    """Something that was begun."""

    def end(self) -> None:
        """End it. Nothing if it has ended, or belongs to the process that this one was forked from."""


_lock = RenewedLock()
_begun: Advance | None = None
_is_late = False


def is_late() -> bool:
    """Say whether something was begun, or would be of no use any more."""
    return _is_late


def begin(advance: Advance) -> None:
    """Keep what was begun until somebody takes it. It is ended if that is never to be."""
    global _begun, _is_late
    with _lock.lock:
        is_of_use, _is_late = not _is_late, True
        if is_of_use:
            _begun = advance
    if is_of_use:
        atexit.register(dismiss)
    else:
        advance.end()


def take() -> Advance | None:
    """What was begun, if something was, for the first who asks."""
    global _begun, _is_late
    with _lock.lock:
        begun, _begun, _is_late = _begun, None, True
    return begun


def dismiss() -> None:
    """This program has its cluster, or needs none: end what was begun. Blocks until it is gone: milliseconds."""
    begun = take()
    if begun is not None:
        begun.end()
