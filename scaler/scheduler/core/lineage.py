"""What it takes to compute stored values again, kept as long as they may be lost.

A stored value can be lost with its hosts. So the batch that made it is remembered, with its function and with the small
values that its row needed, until the value is gone; a row that needed other stored values has the batches that made
those remembered in turn: they are its parents.
"""

from collections.abc import Callable

from scaler.scheduler.state.batch_records import Batch, lineage_of
from scaler.scheduler.state.client_records import ClientRecord


def retain_needs(
    client: ClientRecord, batch: Batch, row: int, maker: Callable[[int], Batch | None] | None = None
) -> None:
    """A row's value is stored, and may be lost: keep what it takes to compute it again.

    `maker` says which batch made a value that is gone, where that can be known.
    """
    if batch.needs is None or not batch.needs[row]:
        return
    lineage, values = lineage_of(batch), client.values
    if row in lineage.retained:
        return
    small = []
    for value in batch.needs[row]:
        object_id = values.object_id_of(value)
        item = values.objects.get(object_id)
        if item is not None and not item.is_stored:
            item.references += 1
            small.append(object_id)
            continue
        if item is not None:
            parent = item.source[0] if item.source is not None else None
        else:  # gone, or not told of yet: after a restart a row may be heard of before what it needed
            parent = values.batch_of_row.get(value) or (maker(value) if maker is not None else None)
        if parent is not None and parent not in lineage.parents and parent is not batch:
            lineage.parents[parent] = None
            lineage_of(parent).references += 1
    lineage.retained[row] = tuple(small)


def maker_of(client: ClientRecord, value: int, needed_by: Batch | None) -> tuple[Batch, int] | None:
    """The batch and row that made a value which is lost; None if its client did, or nobody knows."""
    values = client.values
    item = values.objects.get(value)
    if item is not None:
        return item.source
    batch = values.batch_of_row.get(value)
    if batch is not None:
        return batch, value - batch.id
    if needed_by is not None and needed_by.lineage is not None:
        for parent in needed_by.lineage.parents:
            if parent.id <= value < parent.id + parent.rows:
                return parent, value - parent.id
    return None


def may_lack(client: ClientRecord, batch: Batch) -> bool:
    """Some of what its rows need may be lost."""
    lost, task = client.values.lost, batch.task
    return batch.needs is not None or task.function in lost or task.arguments in lost


def lost_needs(client: ClientRecord, batch: Batch, row: int) -> list[int]:
    """The lost objects that a row needs."""
    lost, task = client.values.lost, batch.task
    found = [value for value in batch.needs[row] if value in lost] if batch.needs is not None else []
    return found + [object_id for object_id in (task.function, task.arguments) if object_id in lost]
