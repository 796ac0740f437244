"""The end of a process that a task has forked, and in which the task's function returns or raises."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from types import TracebackType
from typing import NoReturn

_HERE = os.path.dirname(__file__) + os.sep


def end_as_a_program(error: BaseException | None) -> NoReturn:
    """End this process as the interpreter ends a program that has raised this; with None, one that has not."""
    code = 1
    try:
        code = 0 if error is None else _code_of(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _code_of(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    frames = error.__traceback__
    while frames is not None and _is_of_the_worker(frames):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)
    return 1


def is_for_want_of_rows(error: BaseException) -> bool:
    """No function has raised this, but what runs rows, since it has none."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return type(error) is IndexError and frames is not None and _is_of_the_worker(frames)


def _is_of_the_worker(frames: TracebackType) -> bool:
    return frames.tb_frame.f_code.co_filename.startswith(_HERE)
