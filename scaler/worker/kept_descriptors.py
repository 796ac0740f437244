"""Descriptors 0, 1 and 2 of a worker, and copies that put them back where a task has closed or redirected them.

Else what is opened next is given their numbers, and what later tasks print goes into it.

To see whether they are inheritable takes 0.8 us. It tells of what was closed, and of nearly all that has their numbers
since: what Python opens is not. What `os.dup2` has put there is; to see which files they are takes four times as long.
"""

from __future__ import annotations

import contextlib
import os

_NUMBERS = (0, 1, 2)
#: device and inode of a file, and whether programs that are started have it
_File = tuple[int, int, bool]


class KeptDescriptors:
    """How they were when `note` was called last. One that was closed is left alone."""

    def __init__(self) -> None:
        #: by number, what each is, and its copy: -1 if there were no descriptors left for one
        self._kept: dict[int, tuple[_File, int]] = {}
        self._inheritable: tuple[bool, ...] = ()

    def note(self) -> None:
        """How they are now is how they are meant to be."""
        self.let_go()
        for number in _NUMBERS:
            file = _file(number)
            if file is not None:
                self._kept[number] = file, _copy(number)
        self._inheritable = tuple([file[2] for file, _ in self._kept.values()])

    def seem_right(self) -> bool:
        """Whether none was closed, as far as a short look tells."""
        get = os.get_inheritable
        try:
            return (get(0), get(1), get(2)) == self._inheritable
        except OSError:
            return len(self._kept) < len(_NUMBERS)

    def changed(self) -> list[int]:
        """Those that are not what they were."""
        return [number for number, (file, _) in self._kept.items() if _file(number) != file]

    def put_back(self, number: int) -> bool:
        """Have one be what it was; False if its copy is gone as well."""
        file, copy = self._kept[number]
        if not _is(copy, file):
            return False
        with contextlib.suppress(OSError):  # the process may have no descriptor of this number any more
            os.dup2(copy, number, inheritable=file[2])
        return _file(number) == file

    def let_go(self) -> None:
        """Close the copies: nothing is put back any more."""
        for file, copy in self._kept.values():
            if _is(copy, file):  # else a task has closed it, and may have another file there
                os.close(copy)
        self._kept.clear()


def _file(number: int) -> _File | None:
    try:
        status = os.fstat(number)
        return status.st_dev, status.st_ino, os.get_inheritable(number)
    except OSError:
        return None


def _is(copy: int, file: _File) -> bool:
    found = _file(copy)
    return found is not None and found[:2] == file[:2]


def _copy(number: int) -> int:
    try:
        return os.dup(number)
    except OSError:
        return -1
