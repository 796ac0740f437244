"""`progress`: a bar of text that shows how many futures have ended."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, TextIO

from scaler_dask.completion import wait
from scaler_dask.gathering import futures_of
from scaler_dask.keyed_future import CancelledError

#: characters in a bar
_WIDTH = 40


def progress(*futures: Any, notebook: Any = None, file: TextIO | None = None, **ignored: Any) -> None:
    """Print a bar of how many futures have ended, until all have. Collections count as their futures. Blocks."""
    handles = futures_of(list(futures))
    out = file or sys.stdout
    began, left = time.monotonic(), handles
    while left:
        _print_bar(len(handles) - len(left), len(handles), began, out)
        with contextlib.suppress(TimeoutError):
            _wait_some(left)
        left = [handle for handle in left if not handle.done()]
    _print_bar(len(handles), len(handles), began, out)
    print(file=out)


def _wait_some(handles: list[Any]) -> None:
    with contextlib.suppress(CancelledError):
        wait(handles, timeout=0.2)


def _print_bar(done: int, total: int, began: float, out: TextIO) -> None:
    share = done / total if total else 1.0
    bar = "#" * int(_WIDTH * share)
    print(f"\r[{bar:<{_WIDTH}}] | {share:4.0%} | {time.monotonic() - began:.1f}s", end="", file=out, flush=True)
