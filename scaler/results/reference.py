"""What stands for a result that is a file, and what files of results are called. Pure.

    DIRECTORY/IDENTITY/JOB-ROW-TAG          job: its number in the journal; row: its id at the core; all in hexadecimal
    DIRECTORY/IDENTITY/JOB-ROW-TAG.part     while it is written

The identity is a journal's, so that schedulers may share a directory, and one that is not shared is not taken for one
that is. The tag is drawn by whoever writes: a row that ran twice leaves two files, one of which is in the journal. No
name is ever taken from what a file or a message says: it is made from these numbers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scaler.protocol.codes import FILE

#: what the name of a file ends with that is being written
PART = ".part"
#: hexadecimal digits of an identity
IDENTITY_DIGITS = 32

_NAME = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{16})(\.part)?")
_IDENTITY = re.compile(f"[0-9a-f]{{{IDENTITY_DIGITS}}}")


class Reference(NamedTuple):
    """A result that is a file."""

    #: the row's id at the core
    row: int
    #: of the attempt that wrote it
    tag: int
    #: bytes
    size: int
    #: crc32 of them
    checksum: int

    def pack(self) -> bytes:
        """As messages and journals have it."""
        return FILE.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Reference:
        """What was packed."""
        return cls(*FILE.unpack(data))


class Named(NamedTuple):
    """What the name of a file says."""

    job: int
    row: int
    tag: int


def file_name(job: int, row: int, tag: int) -> str:
    """What the file of a row is called.

    >>> named_by(file_name(7, 255, 1)), file_name(7, 255, 1)
    (Named(job=7, row=255, tag=1), '7-ff-0000000000000001')
    """
    return f"{job:x}-{row:x}-{tag:016x}"


def named_by(name: str) -> Named | None:
    """What a name says, also of a file that is being written; None if it is of none of these.

    >>> named_by("../7-ff-0000000000000001")
    """
    found = _NAME.fullmatch(name)
    return None if found is None else Named(*(int(part, 16) for part in found.groups()[:3]))


def is_identity(text: str) -> bool:
    """It is what a journal calls its part of a directory."""
    return _IDENTITY.fullmatch(text) is not None


def prefix_of(directory: str, identity: str, job: int) -> str:
    """What the paths of a job's files begin with: what those are told who write and read them.

    >>> prefix_of("/shared", "0" * 32, 7)
    '/shared/00000000000000000000000000000000/7'
    """
    return f"{directory.rstrip('/')}/{identity}/{job:x}"


def path_of(prefix: str, reference: Reference) -> str:
    """Where the file of a job's result is."""
    return f"{prefix}-{reference.row:x}-{reference.tag:016x}"
