"""Locks of a whole process: in a forked child they are free, whoever held them when it was forked.

Only the thread that forks is there in a child. What another one held would be held for ever.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class RenewedLock:
    """`with name.lock:`, may be nested: the handler of a signal, or a finaliser, may come while the thread holds it.

    A thread that forks while it holds it lets go of the old one in the child, too.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """In a forked child."""
        self.lock = threading.RLock()


_all: WeakSet[RenewedLock] = WeakSet()


def _renew_all() -> None:
    for each in list(_all):
        each.renew()


os.register_at_fork(after_in_child=_renew_all)
