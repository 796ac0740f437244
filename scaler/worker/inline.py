"""Running a row inside the task that waits for it, so that tasks that wait never starve those they wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.codes import ERROR, VALUES_EACH
from scaler.serialize.call import AnySerializer
from scaler.serialize.record import exception_record
from scaler.worker import context
from scaler.worker.context import TaskContext
from scaler.worker.inputs import failure_of
from scaler.worker.result_writer import in_message


def run_inline(
    task: TaskContext,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    serializer: AnySerializer | None = None,
) -> tuple[int, bytes]:
    """Run one row inside the calling thread, for a task that waits for it; return (outcome, payload).

    The outcome is VALUES_EACH with the pickled value, or ERROR with the error record. For a graph row the function is
    `entry.run` and the only argument its list of values. Meanwhile `context.current()` is `task`, one level deeper.
    Raises nothing, whatever the function raises; blocks as long as it runs.
    """
    with context.entered(task):
        try:
            return VALUES_EACH, in_message(task.name, serializer)(function(*args, **(kwargs or {})))
        except BaseException as error:
            failed = failure_of(error, task.name)
            if failed is not None:
                return ERROR, failed.record
            return ERROR, exception_record(error, task.name, context.largest_exception())
