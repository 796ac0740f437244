"""Pausing the garbage collector while much is made of which nothing is garbage.

It would look at all that a large graph consists of, again and again; without it a graph of a million tasks is planned
in half the time. A process that others are forked off never collects: they share its memory as long as nobody writes.

Meanwhile its threshold is 0, and it is not disabled: what is imported then may ask whether it is enabled, and have it
so from then on. (`dask.array` turned it off with each slice where it had been imported under `gc.disable()`.)
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable
from threading import get_ident
from typing import ParamSpec, TypeVar

from scaler.common.renewed_lock import RenewedLock

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def collector_paused(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return the function, during whose calls no collection begins in any thread; calls may be nested, and overlap.

    However a call ends, and wherever in it the handler of a signal raises, the collector then is as it was: a block
    `with` would be left for good by a handler that is called as its `__exit__` begins, before that has done anything.

    >>> collector_paused(gc.get_threshold)()[0], gc.get_threshold()[0] > 0
    (0, True)
    """

    @functools.wraps(function)
    def paused(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        call = _Call()
        try:
            try:
                _paused.begin(call)
                return function(*args, **kwargs)
            finally:
                _paused.end(call)
        finally:
            _paused.end(call)  # if a handler came in the way of the first

    return paused


def pause_collector() -> None:
    """Have no collection begin in this process, nor in those that are forked off it, until `resume_collector`."""
    _paused.begin(_LASTING)


def resume_collector() -> None:
    """Have the collector as it was."""
    _paused.end(_LASTING)


class _Call:
    """A call under way, by the thread that is in it."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = get_ident()


class _Pause:
    """The collector rests from the first of the calls under way to the end of the last. Any thread, and any handler of
    a signal or finaliser at any point of these methods, may come to it.
    """

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._calls: list[_Call] = []
        #: what the threshold was, and is to be again; 0 while it is that
        self._threshold = 0

    def begin(self, call: _Call) -> None:
        with self._lock.lock:
            self._calls.append(call)
            threshold, *_ = gc.get_threshold()
            if threshold:
                self._threshold = threshold
                gc.set_threshold(0)

    def end(self, call: _Call) -> None:
        """May be told of the same call again."""
        with self._lock.lock:
            if call in self._calls:
                self._calls.remove(call)
            self._resume()

    def forget_others(self) -> None:
        """In a forked child: only the thread that has forked goes on with its calls."""
        thread = get_ident()
        self._calls = [call for call in self._calls if call is _LASTING or call.thread == thread]
        self._resume()

    def _resume(self) -> None:
        if self._threshold and not self._calls:
            gc.set_threshold(self._threshold)
            self._threshold = 0


_LASTING = _Call()
_paused = _Pause()
os.register_at_fork(after_in_child=_paused.forget_others)
