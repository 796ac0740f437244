"""Pausing the garbage collector while much is made of which nothing is garbage.

It would look at all that a large graph consists of, again and again; without it a graph of a million tasks is planned
in half the time.
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

    >>> collector_paused(gc.isenabled)(), gc.isenabled()
    (False, True)
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


class _Call:
    """A call under way, by the thread that is in it."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = get_ident()


class _Pause:
    """The collector is off from the first of the calls under way to the end of the last. Any thread, and any handler of
    a signal or finaliser at any point of these methods, may come to it.
    """

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._calls: list[_Call] = []
        #: it was on, and is to be on again
        self._is_off = False

    def begin(self, call: _Call) -> None:
        with self._lock.lock:
            self._calls.append(call)
            if gc.isenabled():
                self._is_off = True
                gc.disable()

    def end(self, call: _Call) -> None:
        """May be told of the same call again."""
        with self._lock.lock:
            if call in self._calls:
                self._calls.remove(call)
            self._resume()

    def forget_others(self) -> None:
        """In a forked child: only the thread that has forked goes on with its calls."""
        thread = get_ident()
        self._calls = [call for call in self._calls if call.thread == thread]
        self._resume()

    def _resume(self) -> None:
        if self._is_off and not self._calls:
            gc.enable()
            self._is_off = False


_paused = _Pause()
os.register_at_fork(after_in_child=_paused.forget_others)
