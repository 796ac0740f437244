"""Whether a client can be used: it was not disconnected, its process was not forked, its scheduler is there."""

from __future__ import annotations

import os
import weakref

from scaler.errors import ClientClosed, ConnectionFailed, ForkedClient

#: what is said to whoever uses a client that has left, or one of the process that this one was forked off
CLOSED = "this client is disconnected: make a new Client"
FORKED = "this client, or Executor, was made before this process was forked: make a new one here"

#: those of this process
_all: weakref.WeakSet[Liveness] = weakref.WeakSet()


class Liveness:
    """Of one client and all its views. Any thread may look; no lock."""

    __slots__ = ("__weakref__", "_pid", "failure", "is_closed")

    def __init__(self) -> None:
        self._pid = os.getpid()
        _all.add(self)
        #: it was disconnected, or is being so
        self.is_closed = False
        #: why there is no scheduler any more; None while there is one, or it is looked for
        self.failure: BaseException | None = None

    @property
    def is_forked(self) -> bool:
        """The calling process is a child of the one that made the client."""
        return os.getpid() != self._pid

    @property
    def is_lost(self) -> bool:
        """The client can't be used, for whatever reason: what `check` raises for."""
        return self.is_closed or self.is_forked or self.failure is not None

    def check_process(self) -> None:
        """Raise `ForkedClient` in a child of the process that made the client."""
        if os.getpid() != self._pid:
            raise ForkedClient(FORKED)

    def check(self) -> None:
        """Raise `ForkedClient`, `ClientClosed` or `ConnectionFailed` if the client can't be used."""
        self.check_process()
        if self.is_closed:
            raise ClientClosed(CLOSED)
        self.check_connection()

    def check_connection(self) -> None:
        """Raise `ConnectionFailed` if there is no scheduler any more."""
        failure = self.failure
        if failure is not None:
            raise ConnectionFailed(str(failure)) from failure


def _fail_in_child() -> None:
    """What is looked at for each call, where the process is not."""
    for liveness in list(_all):
        liveness.failure = ForkedClient(FORKED)


os.register_at_fork(after_in_child=_fail_in_child)
