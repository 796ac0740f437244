"""Which client is dask's default scheduler: the one made last of those that live, and with it the methods that suit."""

from __future__ import annotations

import threading
from typing import Any

import dask.config

#: "p2p" is made of distributed's own workers, "disk" of one process
_METHODS = {"dataframe.shuffle.method": "tasks", "array.rechunk.method": "tasks"}

_lock = threading.RLock()
_clients: list[Any] = []
#: puts back what there was before the first client
_before: Any = None


def enter(client: Any) -> None:
    """Make it the default."""
    global _before
    with _lock:
        if not _clients:
            _before = dask.config.set({"scheduler": client, **_METHODS})
        else:
            dask.config.set({"scheduler": client})
        _clients.append(client)


def leave(client: Any) -> None:
    """It is the default no more; the one before it is, or what there was before."""
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
