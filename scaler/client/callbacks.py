"""Callbacks of futures that end together: they are called when all of these have ended."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from scaler.worker import context

#: where the standard futures say that a callback has failed
_log = logging.getLogger("concurrent.futures")


class _CallbackCollector(threading.local):
    """`with callbacks_collected:` callbacks of futures that the calling thread ends are called at the block's end.

    So whatever they wait for is not what this thread was just about to end. May be nested.
    """

    def __init__(self) -> None:
        #: blocks that the thread is in
        self._inside = 0
        self._calls: list[Callable[[], None]] = []

    def call(self, call: Callable[[], None]) -> None:
        """Call this at the end of the block that the thread is in, or now if it is in none."""
        if self._inside:
            self._calls.append(call)
        else:
            call()

    @property
    def are_due(self) -> bool:
        """Some are called at the end of the block."""
        return bool(self._calls)

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(self, *exc_info: object) -> None:
        self._inside -= 1
        if not self._inside and self._calls:
            calls, self._calls = self._calls, []
            _call_all(iter(calls))


def _call_all(calls: Iterator[Callable[[], None]]) -> None:
    """Call each, whatever the others raise; the first of that is raised at the end."""
    try:
        for call in calls:
            call()
    except BaseException:
        with contextlib.suppress(BaseException):
            _call_all(calls)
        raise


callbacks_collected = _CallbackCollector()


def callback_of_task(callback: Callable[..., object]) -> Callable[..., object]:
    """In a worker, the callback as one that acts for the program whose task adds it; elsewhere as it is.

    It may be called while a task of another program runs there, and what it submits is none of that one's.
    """
    root = context.root()
    return partial(context.acting_for, root, callback) if root else callback


def call_back(future: concurrent.futures.Future[Any]) -> None:
    """Call what was added to a future that has ended. What it raises is logged, also what would end a thread of ours.

    Ctrl-C is the user's, and so is the end of the main thread: they are raised when all were called.
    """
    callbacks = future._done_callbacks  # type: ignore[attr-defined]
    _call_all(iter([partial(_call, callback, future) for callback in callbacks]))


def _call(callback: Callable[[Any], object], future: concurrent.futures.Future[Any]) -> None:
    try:
        callback(future)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)) and threading.current_thread() is threading.main_thread():
            raise
        _log.exception("exception calling callback for %r", future)


#: the code that calls callbacks
_CALLERS = frozenset({_call.__code__, context.acting_for.__code__})


def callback_in(ident: int) -> str:
    """The callback of a future that the thread with this identity is in, as it is called in messages."""
    frame = sys._current_frames().get(ident)
    while frame is not None:
        outer = frame.f_back
        if outer is not None and outer.f_code in _CALLERS and frame.f_code not in _CALLERS:
            code = frame.f_code
            return f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})"
        frame = outer
    return "one that is not Python's"
