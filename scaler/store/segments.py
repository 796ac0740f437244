"""The files of objects, in memory and on disk: write once, map privately, free, use the memory again.

    .<name>.<pid>.<n>   being written     ──rename──►  <name>           complete, never changed
    free/<size>-<n>     warm memory       ◄──rename──  .free.<pid>.<n>  being freed
    disk/<name>         moved to disk, and read there while memory has no room

Memory that was used before is written a third faster than fresh memory, and giving much of it back takes milliseconds.
So the file of a freed object goes to `free/`, and the next writer takes it from there. That must never change what
somebody still reads:

* A reader holds a shared lock (flock) on what it mapped. The lock belongs to the open file, which the mapping keeps: it
  ends with the last view of the memory, or with the process.
* Who frees an object takes it out of sight by renaming, so that only one can, and then tries for the exclusive lock.
  If somebody reads, the file is just unlinked, and its memory goes when the reader is done. Otherwise the object's
  magic is wiped out, and the file moves to `free/`.
* A writer that takes a segment by renaming it holds the exclusive lock until the object is complete. A late reader, who
  had opened the file before it was freed, gets no lock, or finds no object or another one: it is missing.

Nothing here blocks for longer than memory takes to be written. All functions may be called from any thread and process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scaler.common.interrupts import Uninterrupted
from scaler.common.process_limits import largest_file
from scaler.store import ObjectMissing, StoreFull
from scaler.store.layout import HEADER_BYTES, MAGIC, Key, StoredObject, check_header, decode, encode, file_name

#: the folder of warm segments, and the link to what was moved to disk
FREE, DISK = "free", "disk"
#: segments below this size, in bytes, are not worth keeping
MIN_RECYCLED = 1 << 20
#: descriptors that mapped objects leave to others
_SPARE_DESCRIPTORS = 64
#: buffers in one `pwritev`
_MAX_VECTORS = 1000
_PADDING = bytes(4096)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
# On Linux the mapping itself keeps the open file, and the lock. Before 3.13 Python insists on a descriptor for each.
_WITHOUT_DESCRIPTOR: dict[str, Any] = {}
if sys.version_info >= (3, 13) and sys.platform == "linux":
    _WITHOUT_DESCRIPTOR["trackfd"] = False


_numbers = itertools.count()


class Draft:
    """A file that is being written: `commit` gives it its name, `discard` leaves nothing of it."""

    __slots__ = ("_directory", "_name", "_path", "fd", "is_reserved", "size")

    def __init__(self, directory: str, key: Key, size: int, reserve: bool = True) -> None:
        """Reserve `size` bytes, in a warm segment if there is one. Raises `StoreFull`, OSError.

        Without `reserve` a file that is not worth keeping is left empty: whoever writes it at once sees a lack as well.
        """
        self._directory = directory
        self._name = file_name(key)
        self._path = os.path.join(directory, f".{self._name}.{os.getpid()}.{next(_numbers)}")
        #: bytes of the file
        self.size = size
        #: the file system has set all bytes aside
        self.is_reserved = False
        #: open for reading and writing
        self.fd = -1
        try:
            with Uninterrupted():  # no handler leaves a file that nobody knows
                fd = _claim(directory, size, self._path) if size >= MIN_RECYCLED else None
                if fd is None:
                    fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self.fd = fd
            os.fchmod(fd, 0o600)
            if reserve or size >= MIN_RECYCLED:
                self.is_reserved = _has(fd, size) or _reserve(fd, size)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Discard what was not committed; a lack of room becomes `StoreFull`."""
        self.discard()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            status = os.statvfs(self._directory)
            largest = largest_file() if error.errno == errno.EFBIG else None
            free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
            raise StoreFull(self._directory, self.size, free, largest, total or None) from None  # 0: no limit

    @property
    def is_removed(self) -> bool:
        """Others have removed the file; its memory is taken until it is discarded."""
        return os.fstat(self.fd).st_nlink == 0

    def commit(self, *, with_magic: bool = True) -> None:
        """The object is complete: everybody can see it from now on. Replaces one of the same name.

        `with_magic` is false for the copy of a whole file.
        """
        try:
            if with_magic:
                os.pwrite(self.fd, MAGIC, 0)
            fcntl.flock(self.fd, fcntl.LOCK_UN)  # who maps warm segments has the open file as well
            fd, self.fd = self.fd, -1
            os.close(fd)  # file systems of a network say only now that there was no room
            os.rename(self._path, os.path.join(self._directory, self._name))
        except BaseException:
            self.discard()
            _unlink(self._path)
            raise

    def discard(self) -> None:
        """Remove what was written; can be repeated, and does nothing after `commit`."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            _unlink(self._path)


def new_tag() -> int:
    """The tag of a new object."""
    return int.from_bytes(os.urandom(8), "little")


def write(
    directory: str,
    key: Key,
    inband: bytes | memoryview,
    buffers: Sequence[memoryview] = (),
    fill: Callable[[Draft, Sequence[bytes | memoryview]], None] | None = None,
) -> int:
    """Store an object and return the bytes it takes. The buffers have to be contiguous.

    `fill` writes the parts into the draft in its own way. Raises `StoreFull`, OSError; then nothing is left of it.
    """
    parts, size = parts_of(key, inband, buffers)
    with Draft(directory, key, size, reserve=fill is not None) as draft:
        if fill is None:
            write_all(draft.fd, parts)
        else:
            fill(draft, parts)
        draft.commit()
    return size


def parts_of(
    key: Key, inband: bytes | memoryview, buffers: Sequence[memoryview]
) -> tuple[list[bytes | memoryview], int]:
    """What the file of an object consists of, without the magic, and the bytes it takes."""
    sizes = [buffer.nbytes for buffer in buffers]
    head, offsets, size = encode(key, new_tag(), len(inband), sizes)
    parts: list[bytes | memoryview] = [head, inband]
    position = len(head) + len(inband)
    for buffer, length, offset in zip(buffers, sizes, offsets, strict=True):
        if offset > position:
            parts.append(memoryview(_PADDING)[: offset - position])
        if length:
            parts.append(buffer.cast("B") if buffer.ndim != 1 or buffer.format != "B" else buffer)
        position = offset + length
    return parts, size


def write_all(fd: int, parts: Sequence[bytes | memoryview], position: int = 0) -> None:
    """Write the parts one behind the other from `position` on. Raises OSError."""
    for first in range(0, len(parts), _MAX_VECTORS):
        left: list[bytes | memoryview] = list(parts[first : first + _MAX_VECTORS])
        while left:
            written = os.pwritev(fd, left, position)
            position += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = memoryview(left[0])[written:]


def open_object(directory: str, key: Key, sparing: bool = False) -> StoredObject:
    """Map an object, in memory or on disk. Takes no time for its size.

    The mapping is private: whoever writes to it changes a copy. It keeps the file's memory, or its room on disk.
    `sparing`: for a reader who may keep it for long; where the file system has little room left the object is copied
    instead.

    Raises `ObjectMissing`, OSError.
    """
    fd, size = find_file(directory, key)
    try:
        return decode(_map(fd, size, sparing), key)
    finally:
        os.close(fd)


def open_file(directory: str, key: Key) -> tuple[int, int]:
    """A descriptor to read an object's whole file from, locked until it is closed, and the size of the file.

    Raises `ObjectMissing`, OSError.
    """
    fd, size = _open_locked(directory, key)
    try:
        check_header(os.pread(fd, HEADER_BYTES, 0), key, size)
    except BaseException:
        os.close(fd)
        raise
    return fd, size


def find_file(directory: str, key: Key) -> tuple[int, int]:
    """As `open_file`, wherever the object is, in memory or on disk."""
    try:
        return open_file(directory, key)
    except ObjectMissing:
        for place in (os.path.join(directory, DISK), directory):  # it may be moved between two looks
            with contextlib.suppress(ObjectMissing):
                return open_file(place, key)
        raise


def can_be_read(directory: str, key: Key) -> bool:
    """Say whether an object is here, complete, and its file can be opened. Who can't tell for a shortage says yes."""
    try:
        fd, _ = find_file(directory, key)
    except ObjectMissing:
        return False
    except OSError as error:
        return is_shortage(error)
    os.close(fd)
    return True


def is_shortage(error: OSError) -> bool:
    """Say whether an error is of this process, which is short of descriptors or memory, and not of the file."""
    return error.errno in _SHORTAGES


def free(directory: str, key: Key, recycle: bool = True) -> int:
    """Remove an object and return the bytes it took, 0 if it was not there. Readers keep what they mapped.

    With `recycle` its memory is kept warm in `free/` unless somebody reads it. Raises OSError.
    """
    path = os.path.join(directory, file_name(key))
    hidden = os.path.join(directory, f".free.{os.getpid()}.{next(_numbers)}")
    try:
        os.rename(path, hidden)
    except FileNotFoundError:
        return 0
    size = os.stat(hidden).st_size
    if not (recycle and size >= MIN_RECYCLED and _recycle(directory, hidden)):
        _unlink(hidden)
    return size


def trim(directory: str, older_than: float, max_bytes: int) -> None:
    """Give back warm segments that nobody took for `older_than` seconds, and the oldest of more than `max_bytes`.

    Takes about 3 ms for 100 MB.
    """
    folder = os.path.join(directory, FREE)
    segments: list[tuple[float, int, str]] = []
    for name in _names(folder):
        path = os.path.join(folder, name)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue  # a writer took it
        segments.append((status.st_mtime, status.st_size, path))
    segments.sort()
    total = sum(size for _, size, _ in segments)
    deadline = time.time() - older_than
    for freed, size, path in segments:
        if freed > deadline and total <= max_bytes:
            break
        _unlink(path)
        total -= size


def remove_client(directory: str, client: int) -> None:
    """Remove all objects of a client, also those that are being written."""
    for name in _names(directory):
        if name.lstrip(".").startswith(f"{client}-"):
            _unlink(os.path.join(directory, name))


def remove_drafts(directory: str, pid: int) -> None:
    """Remove what a process that has died was writing or freeing."""
    for name in _names(directory):
        if name.startswith(".") and name.split(".")[2:3] == [str(pid)]:
            _unlink(os.path.join(directory, name))


def _open_locked(directory: str, key: Key) -> tuple[int, int]:
    path = os.path.join(directory, file_name(key))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        raise ObjectMissing(f"there is no object {file_name(key)} in {directory}") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ObjectMissing(f"{path} is a link") from None
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        size = os.fstat(fd).st_size
        if size >= HEADER_BYTES:
            return fd, size
        missing = ObjectMissing(f"the file of {file_name(key)} has no header")
    except BlockingIOError:
        missing = ObjectMissing(f"the object {file_name(key)} has just been freed")
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    raise missing


def _map(fd: int, size: int, sparing: bool) -> memoryview:
    if not (sparing and _is_short(fd, size)) and (_WITHOUT_DESCRIPTOR or _may_keep(fd)):
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY, **_WITHOUT_DESCRIPTOR))
    return _copy(fd, size)


def _is_short(fd: int, size: int) -> bool:
    """True if the file system has so little room that a mapping, which keeps the file's, is better done without."""
    status = os.fstatvfs(fd)
    free = status.f_bavail * status.f_frsize
    return free < max(status.f_blocks * status.f_frsize // 4, 4 * size)


def _may_keep(fd: int) -> bool:
    """True if the process has descriptors to spare; raises its limit if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.dup(fd)
    os.close(next_one)
    if next_one < soft - _SPARE_DESCRIPTORS:
        return True
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return False
    return next_one < hard - _SPARE_DESCRIPTORS


def _copy(fd: int, size: int) -> memoryview:
    """The bytes of a file in memory of their own, for a process that has too many descriptors."""
    data = memoryview(mmap.mmap(-1, size))
    position = 0
    while position < size and (count := os.preadv(fd, [data[position:]], position)):
        position += count
    return data


def _claim(directory: str, size: int, path: str) -> int | None:
    """Take the warm segment whose size is closest, under the name `path`; its locked descriptor."""
    folder = os.path.join(directory, FREE)
    suitable = []
    for name in _names(folder):
        try:
            have = int(name.partition("-")[0])
        except ValueError:  # somebody else's file
            continue
        if size <= 2 * have and have <= 4 * size:
            suitable.append((abs(have - size), name))
    suitable.sort()
    for _, name in suitable[:8]:
        try:
            os.rename(os.path.join(folder, name), path)
        except FileNotFoundError:
            continue  # another writer was faster
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size > size:
                os.ftruncate(fd, size)
            return fd
        except BlockingIOError:  # a late reader looks at it just now
            os.close(fd)
            _unlink(path)
        except BaseException:
            os.close(fd)
            _unlink(path)
            raise
    return None


def _recycle(directory: str, hidden: str) -> bool:
    """Turn a file that is out of sight into a warm segment, unless somebody reads it."""
    fd = os.open(hidden, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(fd, bytes(len(MAGIC)), 0)
        status = os.fstat(fd)
        os.rename(hidden, os.path.join(directory, FREE, f"{status.st_size}-{status.st_ino}"))
    except OSError:  # it is read, or the directory is being removed
        return False
    finally:
        os.close(fd)
    return True


def _has(fd: int, size: int) -> bool:
    """The file is as large already, and has memory for all of it."""
    status = os.fstat(fd)
    return status.st_size == size and status.st_blocks * 512 >= size


def _reserve(fd: int, size: int) -> bool:
    """Have the file system set the bytes aside, so that their lack shows now and not when half is written.

    False if it can't; then they may still be lacking.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
            return True
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV):
                raise
    os.ftruncate(fd, size)
    return False


def _names(folder: str) -> Iterator[str]:
    try:
        yield from os.listdir(folder)
    except FileNotFoundError:
        return


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
