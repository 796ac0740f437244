"""Ctrl-C and other signals, as a program's code hears of them."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes enums of what this returns, which takes 4 us a call
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import compress
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, Self

SIGINT = int(signal.SIGINT)
#: seconds between looks whether Ctrl-C was pressed while a thread waits
LOOK = 0.25

#: the main thread's, which alone hears of signals; each lone task asks for it several times
_main = main_thread().ident

_getsignal, _setsignal = _signal.getsignal, _signal.signal
_Handler = Callable[[int, FrameType | None], Any]

_NAMES = (
    "INT", "TERM", "ALRM", "USR1", "USR2", "HUP", "QUIT", "VTALRM", "PROF", "XCPU", "XFSZ", "PIPE", "CHLD", "CONT",
    "TSTP", "WINCH", "IO", "PWR",
)  # fmt: skip
#: those that programs have handlers for
_SIGNALS = tuple(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}"))
#: calls for which a block's end has to find room in the stack: without any, the handlers would never be put back
_ROOM = 4
#: the block that the main thread is in
_block: Uninterrupted | None = None


class Uninterrupted:
    """A block of code that no signal's handler leaves in the middle, as that of Ctrl-C does: those of signals that come
    meanwhile are called at the block's end, in order, whatever one of them raises. Not to be shared.

    Nothing in it may call what is the user's, or block, but who sleeps until `wake` is called, as it is when a signal
    has come, and leaves the block then. In other threads than the main one, which alone hears of signals, and inside
    another block it does nothing.
    """

    __slots__ = ("_handlers", "_wake", "came")

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self._wake = wake

    def __enter__(self) -> Self:
        global _block
        self._handlers: dict[int, _Handler] | None = None
        #: signals in the order in which they came
        self.came: list[int] = []
        if get_ident() != _main or _block is not None:
            return self
        _reach(_ROOM)
        handlers = self._handlers = {}
        try:
            for number in compress(_SIGNALS, map(callable, map(_getsignal, _SIGNALS))):
                handlers[number] = _getsignal(number)
                _setsignal(number, self._note)  # before it does so it calls those of signals that came
        except BaseException:
            self.put_back()
            raise
        _block = self  # last, and first let go of: a handler that is called until then may have a block of its own
        return self

    def __exit__(self, *exc_info: object) -> None:
        global _block
        if self._handlers is None:
            return
        _block = None
        try:
            self.put_back()
        finally:
            if self.came:
                self._call(self._handlers, self.came.copy(), sys._getframe(1))

    def put_back(self) -> None:
        """The handlers are those of before, also if one that is called meanwhile raises."""
        note = self._note
        try:
            for number, handler in (self._handlers or {}).items():
                if _getsignal(number) == note:
                    _setsignal(number, handler)
        except BaseException:
            self.put_back()
            raise

    def _call(self, handlers: dict[int, _Handler], came: list[int], frame: FrameType) -> None:
        number = came.pop(0)
        try:
            handlers[number](number, frame)
        finally:
            if came:
                self._call(handlers, came, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number not in self.came:
            self.came.append(number)
        if self._wake is not None:
            self._wake()


def _reach(depth: int) -> None:
    """Raise RecursionError if the stack has no room for so many calls."""
    if depth:
        _reach(depth - 1)


def _become_main() -> None:
    """In a child of a fork, whose main thread is the one that has forked. It is in no block; its parent's may be."""
    global _main, _block
    _main = main_thread().ident
    block, _block = _block, None
    if block is not None:
        block.put_back()


os.register_at_fork(after_in_child=_become_main)


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """A process that is begun in this context has Ctrl-C blocked. This is `Uninterrupted` as well: a handler that
    raises would leave it blocked here.
    """
    with Uninterrupted():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_interrupt(error: BaseException | None) -> bool:
    """Whether this is how Ctrl-C leaves a block of code: as KeyboardInterrupt, or in a coroutine as its cancellation
    (see `ends_event_loop`).

    >>> is_interrupt(KeyboardInterrupt()), is_interrupt(ValueError())
    (True, False)
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError) and ends_event_loop()


def ends_event_loop() -> bool:
    """Whether Ctrl-C ends the event loop that the calling thread is in, so that asyncio cancels what is awaited there:
    under `asyncio.run` at first the main task, at another Ctrl-C, and anywhere else, whatever is left.
    """
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio is not None else None
    if asyncio is None or loop is None:
        return False
    runner = getattr(getattr(_signal.getsignal(SIGINT), "func", None), "__self__", None)
    if isinstance(runner, asyncio.Runner) and runner.get_loop() is loop:
        return bool(getattr(runner, "_interrupt_count", 0))  # which is all that it keeps of it
    return _follows_interrupt(sys.exception())


class Heed:
    """`heed()` is called now and then by who blocks, from `heed = Heed()` on: raises KeyboardInterrupt if Ctrl-C ends
    the event loop that the thread is in. `asyncio.run` keeps the first one for the next `await`, which may never come.

    Not if that is known: by a wait of who cleans up after it.

    >>> Heed()()
    """

    __slots__ = ("_is_known",)

    def __init__(self) -> None:
        self._is_known = ends_event_loop() and not _is_kept()

    def __call__(self) -> None:
        if not self._is_known and ends_event_loop():
            raise KeyboardInterrupt


def _is_kept() -> bool:
    """Whether the task of an event loop that this thread is in has not heard of its cancellation."""
    task = sys.modules["asyncio"].current_task()
    return bool(getattr(task, "_must_cancel", False)) and not _follows_interrupt(sys.exception())


def _follows_interrupt(error: BaseException | None) -> bool:
    """Whether this was raised while KeyboardInterrupt was dealt with, or is one."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def has_ended_program() -> bool:
    """Whether the interpreter ends since nobody has caught KeyboardInterrupt. To be asked by what is called at its end.

    In an interactive session that only ends a statement.
    """
    if sys.flags.interactive or hasattr(sys, "ps1"):
        return False
    last = getattr(sys, "last_type", None)
    return isinstance(last, type) and issubclass(last, KeyboardInterrupt)


def wait_in_steps(wait: Callable[[float], bool], timeout: float | None) -> bool:
    """Call `wait(seconds)` again and again until it returns True, or for `timeout` seconds; what it has returned.

    A signal that comes at the moment when a thread goes to sleep does not wake it, and is heard of when it wakes.
    Raises like `Heed`.

    >>> wait_in_steps(lambda seconds: True, None)
    True
    """
    heed = Heed()
    if timeout is None:
        while not wait(LOOK):
            heed()
        return True
    deadline = time.monotonic() + timeout
    while not wait(min(LOOK, max(0.0, timeout))):
        heed()
        timeout = deadline - time.monotonic()
        if timeout <= 0:
            return False
    return True
