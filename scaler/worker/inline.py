"""Running a row inside the task that waits for it, so that tasks that wait never starve those they wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.codes import ERROR, VALUES_EACH
from scaler.serialize import class_states, module_globals
from scaler.serialize.record import exception_record
from scaler.worker import context
from scaler.worker.context import TaskContext
from scaler.worker.inputs import failure_of
from scaler.worker.result_writer import in_message

#: positional arguments, keyword arguments, function
Call = tuple[tuple[Any, ...], dict[str, Any], Callable[..., Any]]


def run_inline(task: TaskContext, load: Callable[[], Call]) -> tuple[int, bytes]:
    """Run one row inside the calling thread, for a task that waits for it; return (outcome, payload).

    `load` returns what to call: clients among the arguments ask which task they are in. The outcome is VALUES_EACH with
    the pickled value, or ERROR with the error record. Meanwhile `context.current()` is `task`. Raises nothing that
    the function raises; blocks as long as it runs.
    """
    with class_states.here.inside(), module_globals.inside(), context.entered(task):
        try:
            args, kwargs, function = load()
            return VALUES_EACH, in_message(task.name, task.serializer)(function(*args, **kwargs))
        except BaseException as error:
            failed = failure_of(error, task.name)
            if failed is not None:
                return ERROR, failed.record
            return ERROR, exception_record(error, task.name, context.largest_exception())
