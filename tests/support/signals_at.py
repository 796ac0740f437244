"""Signals that come at every point of what a program does, one after the other: exhaustive rather than by chance.

A signal is marked as having come before the n-th bytecode of a deed, as the handler of C does it, so Python calls the
program's handler where it would, and nowhere else: the tracing must not call it, so from then on it runs no Python.

From Python 3.12 on `sys.monitoring` tells of bytecodes; `sys.settrace` does before.
"""

import ctypes
import gc
import itertools
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import scaler

_zeros = itertools.repeat(0)
#: what signals come in: the packages `scaler` and `scaler_dask`, and Python's locks
FILES = (str(Path(scaler.__file__).parent), threading.__file__)
#: of the tools that `sys.monitoring` knows, one that has no name
_TOOL = 3


class Came(BaseException):
    """What the handler raises."""


def _marks(number: int, arguments: int) -> Callable[..., Any]:
    """A function of so many arguments that marks the signal as having come, the first time that it is called."""
    mark = ctypes.PYFUNCTYPE(None, ctypes.c_int)(("PyErr_SetInterruptEx", ctypes.pythonapi))
    numbers = itertools.chain([number], itertools.repeat(0))  # there is no signal 0
    # Each of the arguments is turned into the next number, also without running Python.
    given = [numbers, _zeros, _zeros][:arguments]
    mark.argtypes = [types.SimpleNamespace(from_param=partial(next, numbers)) for numbers in given]  # type: ignore[misc]
    return mark


class _Tracing:
    """Counts the bytecodes of these files until the signal comes."""

    def __init__(self, before: int, number: int) -> None:
        self.left = before
        self._marks = _marks(number, 3)

    def start(self) -> None:
        sys.settrace(self._begin)

    def stop(self) -> None:
        sys.settrace(None)

    def _begin(self, frame: types.FrameType, kind: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FILES):
            return None
        frame.f_trace_opcodes = True
        return self._count

    def _count(self, frame: types.FrameType, kind: str, arg: Any) -> Any:
        if kind != "opcode":
            return self._count
        self.left -= 1
        if self.left >= 0:
            return self._count
        sys.settrace(self._marks)
        outer: types.FrameType | None = frame
        while outer is not None:
            if outer.f_trace is not None:
                outer.f_trace = self._marks
            outer = outer.f_back
        return self._marks


if sys.version_info >= (3, 12):
    _INSTRUCTION = sys.monitoring.events.INSTRUCTION

    class _Monitoring:
        """The same by `sys.monitoring`, which tells of all threads: those of the one that has made this are counted."""

        def __init__(self, before: int, number: int) -> None:
            self.left = before
            self._marks = _marks(number, 2)
            self._thread = threading.get_ident()

        def start(self) -> None:
            sys.monitoring.register_callback(_TOOL, _INSTRUCTION, self._count)

        def stop(self) -> None:
            sys.monitoring.register_callback(_TOOL, _INSTRUCTION, None)

        def _count(self, code: types.CodeType, offset: int) -> Any:
            if not code.co_filename.startswith(FILES):
                return sys.monitoring.DISABLE  # it is told no more of this bytecode
            if threading.get_ident() == self._thread:
                self.left -= 1
                if self.left < 0:
                    sys.monitoring.register_callback(_TOOL, _INSTRUCTION, self._marks)
            return None

    @contextmanager
    def _told() -> Iterator[type[_Monitoring]]:
        sys.monitoring.use_tool_id(_TOOL, "signals at each point")
        try:
            sys.monitoring.set_events(_TOOL, _INSTRUCTION)
            yield _Monitoring
        finally:
            sys.monitoring.set_events(_TOOL, 0)
            sys.monitoring.free_tool_id(_TOOL)

else:

    @contextmanager
    def _told() -> Iterator[type[_Tracing]]:
        yield _Tracing


def _come() -> None:
    raise Came


def signals_at_each_point(
    deed: Callable[[], Any], after: Callable[[], Any], every: int = 1, handle: Callable[[], Any] = _come
) -> int:
    """Do this again and again, with a signal at each point of it, or at one of `every` so many, whose handler raises
    `Came`, or does something else; `after` each, without. How often the signal came.
    """
    is_armed = False

    def handler(number: int, frame: object) -> None:
        if is_armed:
            handle()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with _told() as tell:
            for n in itertools.count(0, every):
                tracing = tell(n, int(signal.SIGUSR1))
                gc.disable()  # what a callback of the collector raises, of pytest plugins, goes nowhere
                try:
                    is_armed = True
                    tracing.start()
                    deed()
                except Came:
                    pass
                finally:
                    is_armed = False
                    tracing.stop()
                    gc.enable()
                after()
                if tracing.left >= 0:
                    return n // every
    finally:
        signal.signal(signal.SIGUSR1, before)
    raise AssertionError
