"""Programs whose threads are greenlets, as `gevent.monkey.patch_all()` makes them: the engine's are to be threads.

Its own threads wait for sockets and for each other while the program does something else. Greenlets of one thread
don't, and locks of greenlets don't work between threads.
"""

from __future__ import annotations

import sys

#: what has to be Python's own
_NEEDED = ("threading", "select")


def refuse_patched() -> None:
    """Raise `ScalerError` if gevent has replaced what clients and clusters are made of. Does not block."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and any(map(monkey.is_module_patched, _NEEDED)):
        from scaler.errors import ScalerError  # local clusters start without it

        raise ScalerError(
            "gevent has replaced threads or select, without which Scaler can't work:"
            " call gevent.monkey.patch_all(thread=False, select=False)"
        )
