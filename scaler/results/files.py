"""Reading and writing files of results. Everything here blocks, as long as the file system does.

What counts has been synced: a file is written under another name, synced and renamed, and then the directory is synced.
Symbolic links are not followed within a journal's part of the directory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from zlib import crc32

from scaler.results.reference import PART, Reference, file_name, path_of

#: bytes for one system call
STEP = 8 << 20


class Unreadable(Exception):
    """A file is not what was written; the text says what is the matter, with its path."""


def write(prefix: str, row: int, data: bytes | memoryview) -> Reference:
    """Write the result of a row to a file of its own; it is on disk when this returns.

    Raises OSError; nothing is left then.
    """
    tag = int.from_bytes(os.urandom(8), "little")
    path, _, job = prefix.rpartition("/")
    name = file_name(int(job, 16), row, tag)
    with _opened(path) as directory:
        try:
            checksum = _write_synced(directory, name + PART, data)
            os.rename(name + PART, name, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        except BaseException:
            for each in (name + PART, name):
                with contextlib.suppress(OSError):
                    os.unlink(each, dir_fd=directory)
            raise
    return Reference(row, tag, len(data), checksum)


def _write_synced(directory: int, name: str, data: bytes | memoryview) -> int:
    """Write a file; the checksum of what was written."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        rest, checksum = memoryview(data), 0
        while rest:
            count = os.write(file, rest[:STEP])
            checksum = crc32(rest[:count], checksum)
            rest = rest[count:]
        os.fsync(file)
    finally:
        os.close(file)
    return checksum


def read(prefix: str, reference: Reference) -> bytes:
    """The result that a reference stands for. Raises `Unreadable`."""
    data = read_slice(prefix, reference, 0, reference.size)
    check(prefix, reference, data)
    return data


def check(prefix: str, reference: Reference, data: bytes | memoryview) -> None:
    """Raise `Unreadable` unless this is what was written."""
    if len(data) != reference.size or crc32(data) != reference.checksum:
        raise Unreadable(f"its file {path_of(prefix, reference)} is damaged: its checksum is wrong")


def read_slice(prefix: str, reference: Reference, offset: int, size: int) -> bytes:
    """So many bytes of a result. Raises `Unreadable` for a file that is missing or has another size."""
    path = path_of(prefix, reference)
    parent, _, name = path.rpartition("/")
    try:
        with _opened(parent) as directory:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_size != reference.size:
                raise Unreadable(f"its file {path} has {about.st_size:,} bytes, not {reference.size:,}")
            data = _read_all(file, offset, size) if size else b""
        finally:
            os.close(file)
    except FileNotFoundError:
        raise Unreadable(f"its file {path} is missing") from None
    except OSError as error:
        raise Unreadable(f"its file {path} can't be read: {error.strerror}") from None
    if len(data) != size:
        raise Unreadable(f"its file {path} was cut while it was read")
    return data


def _read_all(file: int, offset: int, size: int) -> bytes:
    data = os.pread(file, size, offset)
    if len(data) == size:
        return data
    parts = [data]  # the system gives no more at once
    while data:
        offset, size = offset + len(data), size - len(data)
        data = os.pread(file, min(size, 1 << 30), offset)
        parts.append(data)
    return b"".join(parts)


def remove(path: str, names: list[str]) -> None:
    """Remove files of a directory, as far as they are there. Raises OSError for the first that can't be."""
    try:
        with _opened(path) as directory:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """A directory that is no symbolic link. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)
