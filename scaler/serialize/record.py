"""What a task raised as an error record, and an error record as an exception again.

The layout of records is the protocol's (`scaler.protocol.error_record`); here is what needs the user's classes. The
texts are always there, so a record becomes an exception without the user's modules, too: what cannot be unpickled comes
back as TaskError.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from concurrent.futures import CancelledError
from types import TracebackType

from scaler.errors import (
    FunctionNotFound,
    ObjectLost,
    ObjectTooLarge,
    ProtocolError,
    RemoteTraceback,
    ScalerError,
    SerializationError,
    StoreFull,
    TaskError,
    TaskFailed,
    TaskTimeout,
    WorkerLost,
    WorkerMemoryExceeded,
)
from scaler.protocol.codes import Encoding
from scaler.protocol.error_record import OMITTED, SMALL_EXCEPTION, ErrorKind, ErrorRecord, cut
from scaler.serialize.exception import dumps_exception
from scaler.serialize.payload import name_of_type
from scaler.serialize.source_lines import with_source_lines

#: what the engine's own words become; RAISED is the user's exception
_CLASSES: dict[int, type[BaseException]] = {
    ErrorKind.LOST: WorkerLost,
    ErrorKind.TIMEOUT: TaskTimeout,
    ErrorKind.SERIALIZATION: SerializationError,
    ErrorKind.FUNCTION: FunctionNotFound,
    ErrorKind.OBJECT: ObjectLost,
    ErrorKind.SIZE: ObjectTooLarge,
    ErrorKind.MEMORY: WorkerMemoryExceeded,
    ErrorKind.FULL: StoreFull,
    ErrorKind.CANCELLED: CancelledError,
    ErrorKind.PRELOAD: TaskFailed,
}

_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def exception_record(error: BaseException, function: str = "", most: int = SMALL_EXCEPTION) -> bytes:
    """Return the record of what a user's function raised, to be called where it was raised; never raises.

    An exception of more than `most` bytes as a pickle comes back as TaskError with its text.
    """
    name = name_of_type(type(error))
    try:
        message, traceback_, pickled = _message(error), _traceback(error), dumps_exception(error) or b""
    except BaseException as failure:  # its class may do anything: end the process, or deny that it has a class
        message, traceback_, pickled = _untold(failure), "", b""
    return ErrorRecord(ErrorKind.RAISED, message, function, name, traceback_).with_exception(pickled, most).encode()


def decode_error(record: bytes | memoryview, what: str = "") -> BaseException:
    """Return the exception that a record stands for; `what` names the task for messages.

    Never raises: bytes that are no record become a TaskError that says so.
    """
    try:
        told = ErrorRecord.decode(record)
    except ProtocolError:
        return TaskError(f"{what or 'a task'} failed, and its error record cannot be read")
    subject = what or told.function
    told = told._replace(traceback=with_source_lines(told.traceback))
    if told.kind == ErrorKind.RAISED:
        error = _raised(told, subject)
    else:
        words = told.message if not subject or subject in told.message else f"{subject}: {told.message}"
        error = _CLASSES.get(told.kind, TaskError)(words)
        if told.traceback:
            _add_traceback(error, told.traceback)
    for note in told.notes:
        add_note(error, note)
    return error


def _raised(told: ErrorRecord, subject: str) -> BaseException:
    reason = "it cannot be pickled"
    if told.exception and told.encoding == Encoding.PICKLE:
        try:
            error = pickle.loads(told.exception)
            if isinstance(error, BaseException):
                _add_traceback(error, told.traceback)
                return error
            reason = f"it was unpickled as {type(error).__name__}"
        except KeyboardInterrupt:
            raise  # the user's Ctrl-C, not the exception we were asked for
        except BaseException as failure:  # the user's classes may do anything while they are unpickled
            reason = f"it cannot be unpickled here: {type(failure).__name__}: {_message(failure)}"
    elif told.encoding == OMITTED:
        reason = f"it was too large to be brought: it takes {told.omitted:,} bytes as a pickle"
    elif told.exception:
        reason = f"its encoding, {told.encoding}, is not known here"
    words = f"{told.type_name}: {told.message}" if told.message else told.type_name
    text = f"{words}\n(raised by {subject or 'a task'}; shown as text since {reason})"
    error = TaskError(text, type_name=told.type_name, traceback=told.traceback)
    _add_traceback(error, told.traceback)
    return error


def _add_traceback(error: BaseException, text: str) -> None:
    """Attach the remote traceback: as the cause, or as a note where the user gave a cause."""
    with contextlib.suppress(Exception):  # a class that forbids attributes: it matters more than its traceback
        if error.__cause__ is None:
            cause = RemoteTraceback(text)
            cause.is_from_none = error.__suppress_context__
            error.__cause__ = cause
        else:
            error.add_note(f"Remote traceback:\n{text}")


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, if its class allows that: it matters more than its note."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def note_unpickling(error: BaseException, name: str) -> None:
    """Add a note to what was raised here, while the result of the task of this name was unpickled."""
    add_note(error, f"(raised on the client, while the result of task {name} was unpickled)")


def _message(error: BaseException) -> str:
    try:
        return cut(str(error))
    except Exception as failure:
        return _untold(failure)


def _untold(failure: BaseException) -> str:
    return f"<its text cannot be made: {type(failure).__name__}>"


def _traceback(error: BaseException) -> str:
    """Return the traceback as text, without the engine's frames above the user's first one."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_ENGINE):
        frames = frames.tb_next
    if frames is None and isinstance(error, ScalerError):
        frames = error.__traceback__
    try:
        return cut("".join(traceback.format_exception(type(error), error, frames)))
    except Exception:
        return f"{type(error).__qualname__}: {_message(error)}\n"
