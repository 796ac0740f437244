"""What it takes to compute stored values again, kept as long as they may be lost.

A stored value can be lost with its hosts. So the batch that made it is remembered, with its function and with the small
values that its row needed, until the value is gone; a row that needed other stored values has the batches that made
those remembered in turn: they are its parents.
"""

from collections.abc import Callable

from scaler.scheduler.state.batch_records import DONE, Batch, Row, lineage_of
from scaler.scheduler.state.client_records import ClientRecord

#: says which batch made a value that is gone, where that can be known
Makers = Callable[[int], Batch | None]


def retain_needs(client: ClientRecord, batch: Batch, row: int, maker: Makers | None = None) -> None:
    """A row's value is stored, and may be lost: keep what it takes to compute it again.

    For what it needs and is gone other rows have to run again, too: what those take is kept likewise.
    """
    objects = client.values.objects
    todo = [(batch, row)]
    while todo:
        batch, row = todo.pop()
        if batch.needs is None or not batch.needs[row] or row in lineage_of(batch).retained:
            continue
        todo += _keep_makers(client, batch, row, maker)
        small = []
        for object_id in map(client.values.object_id_of, batch.needs[row]):
            item = objects.get(object_id)
            if item is not None and not item.is_stored:
                item.references += 1
                small.append(object_id)
        lineage_of(batch).retained[row] = tuple(small)


def remember_makers(client: ClientRecord, batch: Batch, row: int, maker: Makers) -> None:
    """A row has come from another scheduler: what it needs may be gone, or is told of later."""
    for parent, made in _keep_makers(client, batch, row, maker):
        retain_needs(client, parent, made, maker)


def _keep_makers(client: ClientRecord, batch: Batch, row: int, maker: Makers | None) -> list[Row]:
    """Keep the batches that made what a row needs, but for small values; the ended rows whose values are gone."""
    lineage, values = lineage_of(batch), client.values
    gone: list[Row] = []
    for value in batch.needs[row] if batch.needs is not None else ():
        item = values.objects.get(values.object_id_of(value))
        if item is not None:
            parent = item.source[0] if item.is_stored and item.source is not None else None
        else:  # gone, or not told of yet: after a restart a row may be heard of before what it needed
            parent = values.batch_of_row.get(value) or (maker(value) if maker is not None else None)
            if parent is not None and parent.place[value - parent.id] == DONE:
                gone.append((parent, value - parent.id))
        if parent is not None and parent not in lineage.parents and parent is not batch:
            lineage.parents[parent] = None
            lineage_of(parent).references += 1
    return gone


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
