"""Which client is dask's default scheduler: the one made last of those that live; and the methods that suit it."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import dask.config

from scaler.extension import RenewedLock, Uninterrupted
from scaler_dask.dask_versions import base

#: "p2p" is made of distributed's own workers, "disk" of one process
_METHODS = {"dataframe.shuffle.method": "tasks", "array.rechunk.method": "tasks"}
#: what programs call a client's scheduler, in `scheduler=`
_NAMES = ("distributed", "dask.distributed")

_lock = RenewedLock()
#: those that live and were made to be the default, the latest last
_clients: list[Any] = []
#: puts back what there was before the first client; None without clients
_before: Any = None
#: the schedulers that had the names before the first client
_named_before: dict[str, Any] = {}


def enter(client: Any) -> None:
    """Make a client the default, and set the methods that suit it if it is the first. Any thread."""
    global _before
    with Uninterrupted(), _lock.lock:
        if not _clients:
            _before = dask.config.set({"scheduler": client, **_METHODS})
            _named_before.update({name: base.named_schedulers.get(name) for name in _NAMES})
        else:
            dask.config.set({"scheduler": client})
        _clients.append(client)
        base.named_schedulers.update(dict.fromkeys(_NAMES, _named(client)))


def leave(client: Any) -> None:
    """Make the one before it the default, or restore what there was before the first. Any thread."""
    global _before
    with Uninterrupted(), _lock.lock:
        if client not in _clients:
            return
        _clients.remove(client)
        if _clients:
            base.named_schedulers.update(dict.fromkeys(_NAMES, _named(_clients[-1])))
            if dask.config.get("scheduler", None) is client:
                dask.config.set({"scheduler": _clients[-1]})
        else:
            _before.__exit__(None, None, None)
            _before = None
            for name in _NAMES:
                base.named_schedulers.pop(name, None)
            base.named_schedulers.update({name: get for name, get in _named_before.items() if get is not None})


@atexit.register
def _leave_all() -> None:
    """Dask's configuration, which holds clients, would keep all that their functions reach from being finalized."""
    while client := current():
        leave(client)


def _named(client: Any) -> Callable[..., Any]:
    """What dask calls where the scheduler is given by name."""
    if not client.asynchronous:
        return client.get  # type: ignore[no-any-return]  # the method itself: dask and we look whose it is
    return lambda *args, **kwargs: base.get_scheduler(scheduler=client)(*args, **kwargs)  # which says what is wrong


def current() -> Any:
    """The default client, or None."""
    with _lock.lock:
        return _clients[-1] if _clients else None
