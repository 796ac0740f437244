"""What somebody wants done once in each worker before their tasks, such as the initializer of an executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: of what was called here, or is being called
_keys: set[str] = set()


def once(key: str, function: Callable[..., Any], *args: Any) -> None:
    """Call a function unless that was done in this process with this key.

    Tasks that run in here while it is called, since it waits for them, find it done. Raises what the function raises,
    and then it has not been called.
    """
    if key in _keys:
        return
    _keys.add(key)
    try:
        function(*args)
    except BaseException:
        _keys.discard(key)
        raise
