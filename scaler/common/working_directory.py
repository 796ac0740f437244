"""The working directory of a program that stands in one which was removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def standing_somewhere() -> Iterator[None]:
    """For libraries that need a working directory with a name: if there is none any more, stand in / meanwhile.

    That holds for all threads; but no file of a removed directory can be opened, so none of them misses it.
    """
    try:
        os.getcwd()
    except OSError:
        here = os.open(os.curdir, getattr(os, "O_PATH", os.O_RDONLY))
        try:
            os.chdir(os.sep)
            try:
                yield
            finally:
                os.fchdir(here)
        finally:
            os.close(here)
    else:
        yield
