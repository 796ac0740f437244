"""Which client is dask's default scheduler: the one made last of those that live; and the methods that suit it."""

from __future__ import annotations

import threading
from typing import Any

import dask.config

#: "p2p" is made of distributed's own workers, "disk" of one process
_METHODS = {"dataframe.shuffle.method": "tasks", "array.rechunk.method": "tasks"}

_lock = threading.RLock()
#: those that live and were made to be the default, the latest last
_clients: list[Any] = []
#: puts back what there was before the first client; None without clients
_before: Any = None


def enter(client: Any) -> None:
    """Make a client the default, and set the methods that suit it if it is the first. Any thread."""
    global _before
    with _lock:
        if not _clients:
            _before = dask.config.set({"scheduler": client, **_METHODS})
        else:
            dask.config.set({"scheduler": client})
        _clients.append(client)


def leave(client: Any) -> None:
    """Make the one before it the default, or restore what there was before the first. Any thread."""
    global _before
    with _lock:
        if client not in _clients:
            return
        _clients.remove(client)
        if _clients:
            if dask.config.get("scheduler", None) is client:
                dask.config.set({"scheduler": _clients[-1]})
        else:
            _before.__exit__(None, None, None)
            _before = None


def current() -> Any:
    """The default client, or None."""
    with _lock:
        return _clients[-1] if _clients else None
