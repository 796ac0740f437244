"""The working directory of a program that stands in one which was removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def standing_somewhere() -> Iterator[None]:
    """For libraries that need a working directory with a name: if there is none any more, stand in / meanwhile; and
    without PWD, if that names nothing.

    That holds for all threads; but no file of a removed directory can be opened, so none of them misses it.
    """
    with _without_wrong_name():
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


@contextlib.contextmanager
def _without_wrong_name() -> Iterator[None]:
    name = os.environ.get("PWD")
    if name is None or (os.path.isabs(name) and os.path.exists(name)):
        yield
        return
    del os.environ["PWD"]
    try:
        yield
    finally:
        os.environ["PWD"] = name
