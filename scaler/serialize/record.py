"""Error records: how a failed task's exception travels, and becomes an exception again.

A record is a marshalled tuple (kind, type name, message, traceback, function, pickled exception or None). The text is
always there, so a record can be decoded without the user's modules: what cannot be unpickled comes back as TaskError.
"""

from __future__ import annotations

import marshal
import os
import pickle
import traceback
from concurrent.futures import CancelledError
from types import TracebackType

from scaler.errors import (
    FunctionNotFound,
    ObjectLost,
    ObjectTooLarge,
    RemoteTraceback,
    ScalerError,
    SerializationError,
    StoreFull,
    TaskError,
    TaskTimeout,
    WorkerLost,
    WorkerMemoryExceeded,
)
from scaler.serialize.exception import dumps_exception
from scaler.serialize.payload import name_of_type

#: kinds of records that are the engine's own words; "raised" is the user's exception
_KINDS: dict[str, type[BaseException]] = {
    "lost": WorkerLost,
    "timeout": TaskTimeout,
    "serialization": SerializationError,
    "function": FunctionNotFound,
    "object": ObjectLost,
    "size": ObjectTooLarge,
    "memory": WorkerMemoryExceeded,
    "full": StoreFull,
    "cancelled": CancelledError,
}

_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: characters of message and traceback that are kept
_TEXT_LIMIT = 1 << 16


def encode_error(
    kind: str,
    type_name: str = "",
    message: str = "",
    traceback: str = "",
    function: str = "",
    pickled: bytes | None = None,
) -> bytes:
    """Return an error record; `kind` is "raised" or one of the engine's own."""
    texts = [text.encode("utf-8", "backslashreplace") for text in (kind, type_name, message, traceback, function)]
    return marshal.dumps((*texts, pickled))


def exception_record(error: BaseException, function: str = "") -> bytes:
    """Return the record of what a user's function raised, to be called where it was raised; never raises."""
    name = name_of_type(type(error))
    return encode_error("raised", name, _message(error), _traceback(error), function, dumps_exception(error))


def decode_error(record: bytes | memoryview, what: str = "") -> BaseException:
    """Return the exception that a record stands for; `what` names the task for messages.

    Never raises: bytes that are no record become a TaskError that says so.
    """
    try:
        *texts, pickled = marshal.loads(record)
        kind, type_name, message, text, function = (part.decode() for part in texts)
    except Exception:
        return TaskError(f"{what or 'a task'} failed, and its error record cannot be read")
    subject = what or function
    if kind == "raised":
        return _raised(type_name, message, text, subject, pickled)
    words = message if not subject or subject in message else f"{subject}: {message}"
    error = _KINDS.get(kind, TaskError)(words)
    return _with_traceback(error, text) if text else error


def _raised(type_name: str, message: str, text: str, subject: str, pickled: bytes | None) -> BaseException:
    reason = "it cannot be pickled"
    if pickled is not None:
        try:
            error = pickle.loads(pickled)
            if isinstance(error, BaseException):
                return _with_traceback(error, text)
            reason = f"it was unpickled as {type(error).__name__}"
        except KeyboardInterrupt:
            raise  # the user's Ctrl-C, not the exception we were asked for
        except BaseException as failure:  # the user's classes may do anything while they are unpickled
            reason = f"it cannot be unpickled here: {type(failure).__name__}: {_message(failure)}"
    words = f"{type_name}: {message}" if message else type_name
    told = f"{words}\n(raised by {subject or 'a task'}; shown as text since {reason})"
    return _with_traceback(TaskError(told, type_name=type_name, traceback=text), text)


def _with_traceback(error: BaseException, text: str) -> BaseException:
    """Attach the remote traceback: as the cause, or as a note where the user gave a cause."""
    try:
        if error.__cause__ is None:
            error.__cause__ = RemoteTraceback(text)
        else:
            error.add_note(f"Remote traceback:\n{text}")
    except Exception:  # a class that forbids attributes: the exception matters more than its traceback
        pass
    return error


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_TEXT_LIMIT]
    except Exception as failure:
        return f"<its text cannot be made: {type(failure).__name__}>"


def _traceback(error: BaseException) -> str:
    """Return the traceback as text, without the engine's frames above the user's first one."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_ENGINE):
        frames = frames.tb_next
    if frames is None and isinstance(error, ScalerError):
        frames = error.__traceback__
    try:
        return "".join(traceback.format_exception(type(error), error, frames))[-_TEXT_LIMIT:]
    except Exception:
        return f"{type(error).__qualname__}: {_message(error)}\n"
