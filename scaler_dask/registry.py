"""Which key stands for what: of each client its keys, as long as somebody holds a future of them.

In a worker each program has keys of its own: what tasks of one have submitted ends when that leaves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from scaler.extension import task_root
from scaler_dask.future_state import FutureState


class FutureOwner(Protocol):
    """The client whose futures these are, as they see it."""

    @property
    def asynchronous(self) -> bool:
        """Whether what would block is awaited."""
        ...

    def cancel(self, futures: Any) -> Any:
        """Take their tasks back. Blocks, or is awaited."""
        ...

    def retry(self, futures: Any) -> Any:
        """Run those that failed again. Blocks, or is awaited."""
        ...

    def wait_at_close(self, state: FutureState) -> None:
        """Do not close before this has ended, even if nobody holds a future of it."""
        ...


class Registry:
    """The keys of one client. Any thread."""

    def __init__(self, owner: FutureOwner) -> None:
        self.owner = owner
        #: by root and key
        self._states: weakref.WeakValueDictionary[tuple[int, Any], FutureState] = weakref.WeakValueDictionary()
        #: called with each state that is added
        self.observers: list[Callable[[FutureState], None]] = []

    def open(self) -> None:
        """Let `find` look here."""
        _open.add(self)

    def close(self) -> None:
        """Let `find` look here no more."""
        _open.discard(self)
        _closed.add(self)

    def add(self, state: FutureState) -> None:
        """From now on its key stands for this."""
        self._states[state.root, state.key] = state
        for observer in self.observers:
            observer(state)

    def get(self, key: Any) -> FutureState | None:
        """What this key stands for, if somebody holds a future of it."""
        return self._states.get((task_root(), key))

    def remove(self, state: FutureState) -> None:
        """Its key stands for it no more."""
        if self._states.get((state.root, state.key)) is state:
            del self._states[state.root, state.key]

    def clear(self) -> None:
        """No key stands for anything."""
        self._states.clear()

    def states(self) -> list[FutureState]:
        """All that keys stand for."""
        return list(self._states.values())


#: of the clients that are connected
_open: weakref.WeakSet[Registry] = weakref.WeakSet()
#: of those that were
_closed: weakref.WeakSet[Registry] = weakref.WeakSet()


def are_any() -> bool:
    """Whether this process has, or had, a client."""
    return bool(_open) or bool(_closed)


def find(key: Any, owner: FutureOwner | None = None) -> tuple[FutureOwner, FutureState] | None:
    """What a key stands for with this client, or any of this process, and whose it is."""
    for registry in list(_open):
        state = registry.get(key) if owner is None or registry.owner is owner else None
        if state is not None:
            return registry.owner, state
    return None


def is_of_closed(key: Any) -> bool:
    """Whether a key stands for something with a client of this process that is closed."""
    return any(registry.get(key) is not None for registry in list(_closed))
