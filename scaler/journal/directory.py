"""The directory of a journal: one writer by a lock, segments by number, and replaying what they hold.

DIR/lock            locked by whoever writes; names it, and has the number that it was marked with last
DIR/history         who has written, and whether there is another copy (`history.py`)
DIR/00000001.log    segments, in the order of their numbers; the last one is written
DIR/aside/          what was behind a place that could not be believed, and the last copy that was replaced: nothing
                    reads it
DIR/incoming/       a copy that is to replace this one, and is not complete yet (`replacing.py`)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scaler.errors import ScalerError
from scaler.journal import history as turns
from scaler.journal import records
from scaler.journal.layout import ONLY_ANEW, Place
from scaler.journal.records import SEGMENT_HEADER, Cut, Damaged, OtherVersion, Record

#: bytes that are read at once before a segment is looked at
READ_AHEAD = 1 << 20
#: bytes of a disk that are for what has to be written though it is full, such as that a job is deleted; on a small one
#: only a part of it
RESERVE = 8 << 20
_RESERVED_PART = 1 / 8
#: bytes that are read of what is no segment: about twice what the longest history has
SHORT = 1 << 14


class JournalError(ScalerError):
    """A journal that can't be used; the text names it, says what is the matter and what to do."""


class NoRoom(JournalError):
    """The disk is full."""


class Locked(JournalError):
    """Another scheduler writes it."""


@dataclass(frozen=True)
class Damage:
    """Where a journal ends to be believed."""

    path: Path
    #: bytes into the file
    offset: int
    why: str
    #: it looks like what a writer leaves that was killed: an end in the middle of the last record
    is_cut: bool
    #: bytes behind it, in this file and in those that follow
    lost: int

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset:,}: {self.why}; {self.lost:,} bytes from there on are not used"


def refusal(error: Exception) -> str:
    """What is to be said in one line of what keeps a disk from being read or written."""
    if isinstance(error, ScalerError):
        return str(error)
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def no_file(path: Path) -> JournalError:
    """What is to be said of a pipe, say, among the files of a journal."""
    return JournalError(f"{path} is no file: a journal consists of files that a scheduler has written")


class Directory:
    """A journal's directory. `lock` before anything is changed; reading needs no lock."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    # ---- the lock --------------------------------------------------------------------------------------------------
    def lock(self) -> None:
        """Become the one who writes; makes the directory if it is not there. Raises `JournalError`."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            why = "it is a file" if isinstance(error, FileExistsError) else error.strerror
            raise JournalError(
                f"the journal {self.path} can't be written: {why}; give a directory that this user may write"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").partition("\n")[0].strip()
            os.close(lock)
            whose = f" (process {owner})" if owner else ""
            raise Locked(
                f"another scheduler{whose} writes the journal {self.path}: end it, or give this one its own"
            ) from None
        self._lock = lock
        with contextlib.suppress(OSError):  # it only serves to name us; on a full disk we are locked all the same
            _overwrite(lock, b"%d\n" % os.getpid())

    def see_whether_locked(self) -> None:
        """Raise `JournalError` if what was locked is not here any more: somebody else may write what is."""
        assert self._lock is not None
        held = os.fstat(self._lock)
        with contextlib.suppress(OSError):
            there = os.stat(self.path / "lock")
            if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
                return
        raise JournalError(f"{self.path / 'lock'} was removed or replaced; {ONLY_ANEW}")

    def mark(self, number: int) -> None:
        """Whoever reads this number from now on looks at this very directory, not at another, nor at a copy of it.

        It has to be locked. Raises OSError.
        """
        assert self._lock is not None
        os.pwrite(self._lock, b"%d\n%020d\n" % (os.getpid(), number), 0)
        os.fsync(self._lock)

    def has_mark(self, number: int) -> bool:
        """Somebody has marked this directory, last with this number."""
        try:
            with open(self.path / "lock", "rb", opener=_at_once) as file:
                lines = file.read(SHORT).split(b"\n")
        except OSError:
            return False
        return lines[1:2] == [b"%020d" % number]

    def unlock(self) -> None:
        """Let somebody else write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- its history -----------------------------------------------------------------------------------------------
    def history(self) -> turns.History:
        """What is known of who has written; nothing of a journal that has none, or one that can't be read."""
        return self._read_history() or turns.History()

    def is_history_believed(self) -> bool:
        """There is none, as of a journal that was never copied, or it says who has written."""
        return not os.path.lexists(self.path / "history") or self._read_history() is not None

    def _read_history(self) -> turns.History | None:
        try:
            with open(self.path / "history", "rb") as file:
                return turns.from_bytes(file.read(SHORT))
        except OSError:
            return None

    def write_history(self, said: turns.History) -> None:
        """Put this in the place of what stood there; it is on disk then. Blocks. Raises OSError.

        Room for the next one is kept: whoever opens the journal writes one, also on a disk that others have filled.
        """
        new, data = self.path / "history.new", turns.to_bytes(said)
        write_synced(new, data)
        os.replace(new, self.path / "history")
        sync_directory(self.path)
        with contextlib.suppress(OSError):
            write_synced(new, data)

    # ---- segments --------------------------------------------------------------------------------------------------
    def segment(self, number: int) -> Path:
        """The file of a segment."""
        return self.path / f"{number:08d}.log"

    def segments(self) -> list[int]:
        """The numbers of the segments that are there, ascending. Raises `JournalError`."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            raise JournalError(f"there is no journal at {self.path}") from None
        except OSError as error:
            raise JournalError(f"the journal {self.path} can't be read: {error.strerror}") from None
        return sorted(int(n[:-4]) for n in names if n.endswith(".log") and n[:-4].isascii() and n[:-4].isdecimal())

    def is_there(self) -> bool:
        """Somebody has written a journal here, or begun to. Raises `JournalError`."""
        return bool(self.segments()) or (self.path / "history").exists()

    def open_segment(self, number: int) -> int:
        """A descriptor for writing to a segment: what it begins with is on disk, and so is its name.

        Blocks. Raises OSError; then it may be tried again, however much was written.
        """
        file = os.open(self.segment(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < SEGMENT_HEADER:
                if os.pwrite(file, records.segment_header(number), 0) < SEGMENT_HEADER:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file)
                sync_directory(self.path)
        except BaseException:
            os.close(file)
            raise
        return file

    def replay(self, take: Callable[[Record, Place], None]) -> Damage | None:
        """Give each record to `take`, in order, until one can't be believed; where that is.

        Numbers may be missing: segments of which nothing is needed any more are removed. Frames are views that hold
        until `take` returns. Raises `JournalError` for a journal of another version.
        """
        numbers = self.segments()
        for index, number in enumerate(numbers):
            path = self.segment(number)
            try:
                with _mapped(path) as data:
                    for record, begin in _records_of(data, number):
                        take(record, Place(number, begin))
            except OtherVersion as error:
                raise JournalError(
                    f"the journal {self.path} is of another version of Scaler: {error}; "
                    "use that one, or give another directory"
                ) from None
            except _Stop as stop:
                return self._damage(numbers[index:], path, stop.at, stop.why)
        return None

    def look(self) -> tuple[turns.Copy, Damage | None]:
        """Which copy this is, up to where it can be believed; and where it can't. Blocks. Raises `JournalError`."""
        end = turns.NOTHING
        damage = None

        def take(record: Record, place: Place) -> None:
            nonlocal end
            end = Place(place.segment, place.offset + records.size_of(record.frames))

        said = self.history()
        if self.path.exists():
            damage = self.replay(take)
        end = max(end, said.floor)
        return turns.Copy(turns.believed(said.turns, end), end), damage

    def written_last(self) -> float | None:
        """When the last segment was written, in seconds since 1970; None if there is none."""
        try:
            return self.segment(self.segments()[-1]).stat().st_mtime
        except (OSError, IndexError, JournalError):
            return None

    def sync_segment(self, number: int) -> None:
        """The bytes of a segment are on disk. Blocks. Raises `JournalError`."""
        try:
            with self.segment(number).open("rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(f"the journal {self.path} can't be written: {error.strerror}") from None

    def _damage(self, numbers: list[int], path: Path, at: int, why: Damaged) -> Damage:
        sizes = [self.segment(number).stat().st_size for number in numbers]
        is_cut = isinstance(why, Cut) and len(numbers) == 1
        return Damage(path, at, str(why), is_cut, max(0, sizes[0] - at) + sum(sizes[1:]))

    def set_aside(self, damage: Damage) -> None:
        """Move what is behind a damage out of the way, so that what is written next follows what is believed.

        What a killed writer left of its last record is dropped if the disk has no room to keep it elsewhere: nobody was
        told of that record. Blocks. Raises `JournalError`.
        """
        place = Place(int(damage.path.stem), damage.offset)
        try:
            self.cut(place)
        except NoRoom:
            if not damage.is_cut:
                raise
            self.cut(place, is_kept=False)

    def cut(self, place: Place, is_kept: bool = True) -> None:
        """Nothing is here from this place on; what was is moved aside, unless nobody wants it.

        Blocks. Raises `JournalError`.
        """
        numbers = self.segments()
        path = self.segment(place.segment)
        behind = [number for number in numbers if number > place.segment]
        try:
            size = path.stat().st_size if place.segment in numbers else 0
            if place.offset > SEGMENT_HEADER and place.offset > size:
                raise JournalError(f"{path} has {size:,} bytes, and nothing can follow byte {place.offset:,}")
            is_longer = place.offset < size
            if behind or (is_longer and is_kept):
                aside = self.path / "aside"
                aside.mkdir(mode=0o700, exist_ok=True)
                sync_directory(self.path)
                if is_longer and is_kept:
                    _keep(aside / f"{path.stem}-{place.offset}.log", path, place.offset)
                for number in behind:
                    os.replace(self.segment(number), aside / self.segment(number).name)
                sync_directory(aside)
            if place.offset < SEGMENT_HEADER:
                path.unlink(missing_ok=True)
            elif is_longer:
                with path.open("r+b") as file:
                    file.truncate(place.offset)
                    os.fsync(file.fileno())
            sync_directory(self.path)
        except OSError as error:
            kind = NoRoom if error.errno in (errno.ENOSPC, errno.EDQUOT) else JournalError
            raise kind(f"the journal {self.path} can't be mended: {error.strerror}") from None

    def remove(self, number: int) -> None:
        """Remove a segment that nothing needs any more."""
        with contextlib.suppress(FileNotFoundError):
            self.segment(number).unlink()
        sync_directory(self.path)

    def room(self) -> float:
        """Bytes that may be written here, but for the reserve; infinite if nobody can tell. Blocks."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return math.inf
        if not disk.f_blocks:  # of a network, or a user's: it does not say
            return math.inf
        return disk.f_frsize * disk.f_bavail - min(RESERVE, disk.f_frsize * disk.f_blocks * _RESERVED_PART)


class _Stop(Exception):
    """Reading ends at this offset."""

    def __init__(self, at: int, why: Damaged) -> None:
        super().__init__(str(why))
        self.at = at
        self.why = why


def _records_of(data: memoryview, number: int) -> Iterator[tuple[Record, int]]:
    try:
        records.check_segment(data, number)
    except Damaged as why:
        raise _Stop(0, why) from None
    at = SEGMENT_HEADER
    while at < len(data):
        try:
            record, end = records.read(data, at)
        except Damaged as why:
            raise _Stop(at, why) from None
        yield record, at
        at = end


def _at_once(path: str, flags: int) -> int:
    """A descriptor, without waiting for who writes, should it be a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of a file. Raises `JournalError`."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise no_file(path)
            is_empty = not status.st_size
            _read_ahead(file.fileno())
            mapped = None if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise JournalError(f"the journal {path} can't be read: {error.strerror}") from None
    if mapped is None:
        yield memoryview(b"")
        return
    view = memoryview(mapped)
    try:
        yield view
    finally:
        with contextlib.suppress(BufferError):  # somebody still looks at a frame: it goes with the last look
            view.release()
            mapped.close()


def _read_ahead(file: int) -> None:
    """Have the bytes in memory: a page that comes from the disk when it is looked at holds up all threads meanwhile."""
    scratch = [bytearray(READ_AHEAD)]
    while os.readv(file, scratch):
        pass


def _keep(path: Path, source: Path, offset: int) -> None:
    """Copy what a file of any size has from there on; it is on disk then. Nothing is left if that has no room for all.

    Blocks. Raises OSError.
    """
    try:
        with source.open("rb") as whole, path.open("wb") as kept:
            whole.seek(offset)
            while piece := whole.read(READ_AHEAD):
                kept.write(piece)
            kept.flush()
            os.fsync(kept.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def write_synced(path: Path, data: bytes) -> None:
    """A file has these bytes, on disk; it keeps the room that it has, for a full disk. Blocks."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _overwrite(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _overwrite(file: int, data: bytes) -> None:
    """Little that takes the place of all that a file has; at no moment does that give its room away."""
    if os.pwrite(file, data, 0) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(file, len(data))


def sync_directory(path: Path) -> None:
    """What was made, renamed or removed there is so after a power cut, too."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
