"""A task's exception with the frames of the worker it was raised in, as if dask's threads had run the task.

The engine sends a traceback as text. Here its frames become a traceback again: each is a frame of a stub that has the
name, file, line and columns of the real one, so that debuggers and dask's own shortening see them, and what is printed
underlines the same part of the line. Their variables are gone.
"""

from __future__ import annotations

import ast
import linecache
import re
import threading
from textwrap import indent
from traceback import format_exception_only
from types import CodeType, FrameType, TracebackType

import dask.config

from scaler import RemoteTraceback

_FRAME = re.compile(
    r'^(?:  \| )?  File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$'
    r"(?:\n(?:  \| )?    (?P<source>\S.*)$(?:\n(?:  \| )?    (?P<underlined> *[~^]+)$)?)?",
    re.MULTILINE,
)
_BEGIN = re.compile(r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_NOTE = "Remote traceback:\n"
#: files that dask leaves out of tracebacks, besides those it knows
_OURS = (r"scaler_dask[\\\/]", r"scaler[\\\/](client|serialize|worker)[\\\/]")

#: a future's exception is one object, which any number of threads may read at once
_lock = threading.Lock()


def with_frames(error: BaseException, otherwise: TracebackType | None = None) -> BaseException:
    """The exception, whose traceback has the frames of its remote one, and none of those that raised it here before.

    Its traceback is `otherwise` if there is no remote one, or if that has no frames. Any thread may call this.
    """
    with _lock:
        text = _remote_text(error)
        traceback = _first_stub(error.__traceback__) if text is None else _as_traceback(_frames(error, text))
        if text is not None and traceback is not None:
            cause = error.__cause__
            if isinstance(cause, RemoteTraceback):
                error.__cause__ = None
                error.__suppress_context__ = cause.is_from_none
            else:
                error.__notes__.remove(_NOTE + text)
        return error.with_traceback(traceback or otherwise)


def _remote_text(error: BaseException) -> str | None:
    """The remote traceback: it is the cause, or a note where the user gave a cause."""
    if isinstance(error.__cause__, RemoteTraceback):
        return error.__cause__.text
    notes = [note for note in getattr(error, "__notes__", ()) if str(note).startswith(_NOTE)]
    return str(notes[-1]).removeprefix(_NOTE) if notes else None


def _frames(error: BaseException, text: str) -> list[re.Match[str]]:
    """The frames of the last traceback in a text, but for those in the exception's own message, which ends it."""
    message = format_exception_only(error)[0]
    if isinstance(error, BaseExceptionGroup):
        message = indent(message, "  | ", lambda line: True)
    end = text.rfind(message)
    if end < 0:  # it was shortened, or is another one here
        end = len(text)
    begins = [begin.end() for begin in _BEGIN.finditer(text, 0, end)]
    return list(_FRAME.finditer(text, begins[-1], end)) if begins else []


def _as_traceback(frames: list[re.Match[str]]) -> TracebackType | None:
    traceback = None
    for frame in reversed(frames):
        stub = _stub(frame["file"], int(frame["line"]), frame["name"], _columns(frame))
        traceback = TracebackType(traceback, stub, stub.f_lasti, int(frame["line"]))
    return traceback


def _columns(frame: re.Match[str]) -> tuple[int, int]:
    """From where to where the frame's line is underlined, in bytes.

    -1 and -1, which is nowhere to the compiler, if it is not, or if another line stands there in this process.
    """
    line = linecache.getline(frame["file"], int(frame["line"]))
    if frame["underlined"] is None or line.strip() != frame["source"]:
        return -1, -1
    shown = frame["underlined"]
    indented = len(line) - len(line.lstrip())
    begin, end = indented + len(shown) - len(shown.lstrip()), indented + len(shown)
    return len(line[:begin].encode()), len(line[:end].encode())


def _first_stub(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_globals.get("Stub") is not _Stub:
        traceback = traceback.tb_next
    return traceback


def leave_out_our_frames() -> None:
    """Have dask shorten tracebacks by our files, too, unless the user has settled what it leaves out."""
    key = "admin.traceback.shorten"
    known = dask.config.get(key, None)
    if isinstance(known, list) and not set(_OURS) & set(known):
        dask.config.set({key: [*known, *_OURS]})


class _Stub(Exception):
    """Raised to get a frame."""


def _stub(file: str, line: int, name: str, columns: tuple[int, int]) -> FrameType:
    tree = ast.parse("raise Stub")
    tree.body[0].col_offset, tree.body[0].end_col_offset = columns
    raising: CodeType = compile(tree, "", "exec")
    code = raising.replace(co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name)
    try:
        exec(code, {"Stub": _Stub, "__file__": file})
    except _Stub as raised:
        traceback = raised.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame  # type: ignore[union-attr]  # the stub has raised
