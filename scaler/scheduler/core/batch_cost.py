"""What a batch costs its client: a row takes memory here, so it has to have come with at least a byte."""

from collections.abc import Mapping

from scaler.errors import ProtocolError
from scaler.protocol.messages import EACH, GRAPH, Task
from scaler.scheduler.state.batch_records import is_apart
from scaler.scheduler.state.client_records import ClientValues
from scaler.scheduler.state.object_records import ObjectRecord

#: rows of a batch whose arguments came before it, or are in a store: nothing of the message grows with their number
MOST_ROWS_APART = 1 << 17
#: rows of all batches of a client that are such, until these are over: a message of 200 bytes brings 512 KiB of places
MOST_APART_TOGETHER = 1 << 27
#: rows of a batch whose function or arguments are not there: each fails, and its client is told so of each by itself
MOST_FAILING = 16


def check_client(values: ClientValues, task: Task) -> None:
    """Raise `ProtocolError` for a new batch of a client that has more rows than this has sent anything for."""
    rows, objects = task.rows, values.objects
    if rows > MOST_FAILING:
        for what, object_id in (("function was", task.function), ("arguments were", task.arguments)):
            if object_id and object_id not in objects and object_id not in task.objects:
                raise ProtocolError(f"a Task of {rows:,} rows whose {what} never sent")
        if is_apart(task) and values.rows_apart + rows > MOST_APART_TOGETHER:
            raise ProtocolError(
                f"a Task that makes it {values.rows_apart + rows:,} rows without their arguments; "
                f"a client may have {MOST_APART_TOGETHER:,} at a time"
            )
    check(objects, task)


def check(objects: Mapping[int, ObjectRecord], task: Task) -> None:
    """Raise `ProtocolError` for a batch that says it has more rows than there can be arguments for.

    `objects` are those of its client.
    """
    rows = task.rows
    if task.form == EACH:
        return  # has a size for each
    if task.form == GRAPH:
        if rows not in (len(task.wanted), len(task.uses), len(task.dependency_counts)):
            raise ProtocolError(f"a graph of {rows:,} rows without a column for them")
        return
    if task.arguments in task.objects:
        size = len(task.bodies[task.objects.index(task.arguments)])
    else:
        item = objects.get(task.arguments)
        size = 0 if item is None else item.size or len(item.payload)
        if rows > MOST_ROWS_APART:
            raise ProtocolError(f"a Task of {rows:,} rows without their arguments; it may have {MOST_ROWS_APART:,}")
        if item is None:
            return  # its rows fail
    if size < rows:
        raise ProtocolError(f"a Task of {rows:,} rows with {size:,} bytes of arguments")
