"""What a host's store has and needs no more: memory of freed objects, and files that nobody has told of."""

from __future__ import annotations

import contextlib
import os
import threading

from scaler.store import segments
from scaler.store.index import StoreIndex

#: memory of freed objects is kept for the next ones for so many seconds, and in all at most this share of the limit for
#: objects in memory
KEEP_SECONDS, KEEP_PART = 2.0, 8
#: seconds after which a file that nobody knows is removed, and between two looks for such
SWEEP_SECONDS = 120.0


class FreedMemory:
    """Memory of freed objects, kept for a while: taking it again is faster than asking the system. One thread."""

    def __init__(self, path: str, limit: int) -> None:
        """`path` of the store's directory, and how many bytes of objects it may have in memory."""
        self._path = path
        #: bytes that are kept at most, and at least those that are kept
        self._keep = limit // KEEP_PART
        self._kept = 0
        self._trimmer: threading.Thread | None = None
        #: when memory that was freed is looked at next, seconds; None if there is none
        self.wake: float | None = None

    def note_freed(self, size: int, now: float) -> None:
        """So many bytes were freed."""
        self._kept += size
        if self._kept > self._keep and self._counted() > self._keep:
            self.wake = now
        elif self.wake is None:
            self.wake = now + KEEP_SECONDS / 4

    def give_back(self, now: float) -> None:
        """Give back memory that was freed a while ago and that no new object took; to be called at `wake`."""
        is_empty = not self._names()
        self.wake = None if is_empty else now + KEEP_SECONDS / 4
        if not is_empty and not (self._trimmer is not None and self._trimmer.is_alive()):
            trimmer = threading.Thread(target=self._trim, name="scaler-trim", daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread can be started now: tried again at the next `wake`
                trimmer.start()  # giving back much memory takes a while
                self._trimmer = trimmer

    def _counted(self) -> int:
        """Bytes of memory that nobody uses just now: what was freed, but for what writers took."""
        self._kept = sum(int(name.partition("-")[0]) for name in self._names())
        return self._kept

    def _names(self) -> list[str]:
        """Of the files that are kept; none if others have removed the directory."""
        try:
            return os.listdir(os.path.join(self._path, segments.FREE))
        except OSError:
            return []

    def _trim(self) -> None:
        with contextlib.suppress(OSError):
            segments.trim(self._path, KEEP_SECONDS, self._keep)


class Sweeper:
    """Removes files of which nobody has told for a long time: who wrote them has died, or has a new scheduler.

    That is a time between two looks, not the age that a file has by the clock of the machine: somebody may set that.
    """

    def __init__(self, path: str) -> None:
        """`path` of the store's directory."""
        self._path = path
        #: when to look next, seconds
        self.due = 0.0
        #: what nobody had told of at the last look: name, file, time of its last change
        self._untold: set[tuple[str, int, int]] = set()

    def sweep(self, known: StoreIndex, now: float) -> None:
        """Look; what is in the index stays. To be called when it is `due`."""
        self.due = now + SWEEP_SECONDS
        untold: set[tuple[str, int, int]] = set()
        try:
            entries = list(os.scandir(self._path))
        except OSError:  # others have removed the directory
            entries = []
        for entry in entries:
            client, _, number = entry.name.lstrip(".").partition(".")[0].partition("-")
            with contextlib.suppress(OSError, ValueError):
                if (int(client), int(number, 16)) in known:
                    continue
                status = entry.stat()
                found = entry.name, status.st_ino, status.st_mtime_ns
                if found in self._untold:
                    os.unlink(entry.path)
                else:
                    untold.add(found)
        self._untold = untold


def remove_older(path: str, nanoseconds: int) -> None:
    """Remove all objects whose files are older. A file that is written or renamed gets a new time."""
    for name in os.listdir(path):
        file = os.path.join(path, name)
        with contextlib.suppress(FileNotFoundError):
            if name.lstrip(".")[:1].isdigit() and os.stat(file).st_ctime_ns < nanoseconds:
                os.unlink(file)
