"""A thread beside an event loop that does what may block, one thing after the other, and says what came of it.

No work makes the thread end: whoever waits for an answer would wait for good. What nobody expected is told as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from scaler.common.process_limits import words_of

logger = logging.getLogger("scaler")

Work = TypeVar("Work")
Done = TypeVar("Done")


class SideThread(Generic[Work, Done]):
    """`tell` and `next_if` are for what does the work, the rest is for the loop's thread."""

    def __init__(
        self,
        name: str,
        do: Callable[[Work], None],
        fail: Callable[[Work, Exception], None],
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`do` does a piece of work; `fail` tells of what that has raised; `end` comes last. Neither of them raises."""
        self._name = name
        self._do = do
        self._fail = fail
        self._end = end
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        #: the next piece, that was looked at and left
        self._left: deque[Work | None] = deque()
        self._done: deque[Done] = deque()
        #: nobody takes any more what is told
        self.is_closing = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        for each in (self._wake_reader, self._wake_writer):
            os.set_blocking(each, False)
        self._thread: threading.Thread | None = None
        #: the log has said that there can be no thread
        self._is_missed = False

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._wake_reader

    @property
    def has_begun(self) -> bool:
        """There is a thread, or was."""
        return self._thread is not None

    def begin(self) -> None:
        """Have a thread, if there is none yet. RuntimeError if there can be none."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def put(self, work: Work) -> None:
        """Have something done, after what was wanted before. Does not block. RuntimeError if there is no thread."""
        self.begin()
        self._work.put(work)

    def put_by(self, work: Work) -> None:
        """Have something done as soon as there is a thread: each `take` tries to have one, and the log says so once."""
        self._work.put(work)
        self._try_to_begin()

    def _try_to_begin(self) -> None:
        try:
            self.begin()
        except RuntimeError as error:
            if not self._is_missed:
                self._is_missed = True
                logger.warning("%s waits for a thread: %s; trying until there is one", self._name, words_of(error))

    def take(self) -> list[Done]:
        """What was told."""
        if self._thread is None and not (self._work.empty() or self.is_closing.is_set()):
            self._try_to_begin()
        if self._wake_reader >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_reader, 4096)
        done = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def close(self, timeout: float) -> bool:
        """Do what waits, as far as that is possible within so many seconds; whether it was. Blocks."""
        self.is_closing.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        if self._wake_reader >= 0:
            os.close(self._wake_reader)
            os.close(self._wake_writer)
            self._wake_reader = -1
        return True

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while (work := self._left.popleft() if self._left else self._work.get()) is not None:
            try:
                self._do(work)
            except Exception as error:
                self._fail(work, error)
        self._end()

    def next_if(self, fits: Callable[[Work], bool]) -> Work | None:
        """The next piece of work, if there is one already and it fits what is being done."""
        if not self._left:
            try:
                self._left.append(self._work.get_nowait())
            except queue.Empty:
                return None
        work = self._left[0]
        return self._left.popleft() if work is not None and fits(work) else None

    def tell(self, done: Done) -> None:
        """Say what came of it."""
        self._done.append(done)
        if not self.is_closing.is_set():
            with contextlib.suppress(BlockingIOError):  # it has been told often enough
                os.write(self._wake_writer, b"x")
