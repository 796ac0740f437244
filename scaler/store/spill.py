"""Moving objects between memory and disk, in a thread of its own, when the agent says so.

Files have the same form in both places, and an object is always whole in one of them: it leaves the one when it is
complete in the other. Readers find it in either, as the store has a link to the directory on disk: what memory has no
room for is read where it is. Restoring goes before spilling, since rows wait for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Literal, TypeAlias

from scaler.store import ObjectMissing, StoreFull
from scaler.store.directory import OwnedDirectory, clean_up_dead, named_root, temporary_root
from scaler.store.layout import Key, file_name
from scaler.store.mailbox import Mailbox
from scaler.store.segments import DISK, Draft, free, open_file, write_all

What: TypeAlias = Literal["spill", "restore", "drop", "lost", "full"]
#: what was asked for, the object, bytes that were moved or removed, and why it failed (None: it did not); "lost" is
#: what a restore becomes whose object is not on disk, or is damaged: to ask again is of no use; "full" one for which
#: memory has no room
Result: TypeAlias = tuple[What, Key, int, str | None]

#: of the names of spill directories
SPILL_PREFIX = "scaler-spill"
#: bytes that are copied at once
_PIECE = 8 << 20

_log = logging.getLogger(__name__)


def clean_up_spilled(root: str | None) -> None:
    """Remove what dead processes of this user have spilled, there or by default where temporary files are or should be.

    Should be: a place that is full by now may be full of that.
    """
    for each in [root] if root else dict.fromkeys((named_root(), temporary_root())):
        clean_up_dead(each, SPILL_PREFIX)


class Spiller:
    """See the module's text. Each request has one result; requests for one object are carried out in their order.

    One thread asks and takes.
    """

    def __init__(self, directory: str, root: str | None = None) -> None:
        """Spill from the store `directory` to a new directory below `root`, by default where temporary files are.

        Removes those that dead processes of this user have left there. Raises OSError.
        """
        clean_up_spilled(root)  # first, as it may be all that fills the place
        root = root or temporary_root()
        self._directory = directory
        self._disk = OwnedDirectory(root, SPILL_PREFIX)
        self.link()
        self._results: Mailbox[Result] = Mailbox()
        self._changed = threading.Condition()
        #: requests, guarded by `_changed`; those of the first queue go first
        self._urgent: deque[tuple[What, Key]] = deque()
        self._queue: deque[tuple[What, Key]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=SPILL_PREFIX, daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        """The directory on disk; objects there can be read as in a store."""
        return self._disk.path

    def link(self) -> None:
        """Have readers of the store find what is on disk; again if the store was made again. Raises OSError."""
        os.symlink(self._disk.path, os.path.join(self._directory, DISK))

    def fileno(self) -> int:
        """A descriptor that is readable while there are results."""
        return self._results.fileno()

    def take(self) -> list[Result]:
        """The results since the last call. Never blocks."""
        return self._results.take()

    def spill(self, key: Key) -> None:
        """Move an object to disk. If that fails it stays in memory."""
        self._ask("spill", key)

    def restore(self, key: Key) -> None:
        """Move an object back into memory. If that fails it stays on disk, unless the result says that it is lost."""
        self._ask("restore", key)

    def drop(self, key: Key) -> None:
        """Remove an object from disk; one that isn't there does not matter."""
        self._ask("drop", key)

    def close(self) -> None:
        """End the thread after what it is just doing, and remove all that is on disk. Blocks until then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._disk.remove()
        self._results.close()

    def _ask(self, what: What, key: Key) -> None:
        with self._changed:
            waits = what == "spill" or any(key == other for _, other in self._queue)
            (self._queue if waits else self._urgent).append((what, key))
            self._changed.notify()

    def _next(self) -> tuple[What, Key] | None:
        with self._changed:
            while not (self._closing or self._urgent or self._queue):
                self._changed.wait()
            if self._closing:
                return None
            return (self._urgent or self._queue).popleft()

    def _run(self) -> None:
        while (request := self._next()) is not None:
            what, key = request
            size, error = 0, None
            try:
                size = self._carry_out(what, key)
            except ObjectMissing as caught:
                error = str(caught)
                what = "lost" if what == "restore" else what
            except StoreFull as caught:
                error = str(caught)
                what = "full" if what == "restore" else what
            except OSError as caught:
                error = str(caught)
            except Exception as caught:
                _log.exception("%s of %s failed", what, file_name(key))
                error = f"{type(caught).__name__}: {caught}"
            self._results.put((what, key, size, error))

    def _carry_out(self, what: What, key: Key) -> int:
        if what == "drop":
            return free(self._disk.path, key, recycle=False)
        if what == "spill":
            self._disk.mend()
        here, there = (self._directory, self._disk.path) if what == "spill" else (self._disk.path, self._directory)
        size = copy(here, there, key)
        free(here, key, recycle=False)
        return size


def copy(source: str, target: str, key: Key) -> int:
    """Copy an object from one directory to another and return its bytes. Raises `ObjectMissing`, `StoreFull`, OSError.

    Blocks for as long as the disk takes.
    """
    fd, size = open_file(source, key)
    try:
        with Draft(target, key, size) as draft:
            piece = memoryview(bytearray(min(size, _PIECE)))
            position = 0
            while position < size:
                count = os.preadv(fd, [piece], position)
                if not count:
                    raise ObjectMissing(f"the file of {file_name(key)} ends after {position:,} bytes")
                write_all(draft.fd, [piece[:count]], position)
                position += count
            draft.commit(with_magic=False)
    finally:
        os.close(fd)
    return size
