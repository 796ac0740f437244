"""What the scheduler keeps for each client, in bytes: on its account from when it comes until it is let go.

Nobody can tell what a batch or an object really takes; these are prices, measured once, that a batch or an object has
from beginning to end. What counts is that nothing is kept that has none: `core/crowding.py` bounds their sum.
"""

from __future__ import annotations

from scaler.protocol.messages import KEEP, Frame, Message, ObjectAnnounce, Task
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.object_records import ObjectRecord

#: bytes of a batch: 1,900 of its message and record; 4,300 if it has a queue and a tally of its own
BATCH = 3_000
#: of each row: its place
ROW = 6
#: of each row with a payload of its own: where that is
SIZED_ROW = 14
#: of each row whose value others may need
KEPT_ROW = 120
#: of each row that needs values: what lists of those that wait have of it
NEEDING_ROW = 270
#: of each value that a row needs
NEED = 60
#: of each value that a row needs and that nobody here has: its client is asked for it
UNKNOWN = 200
#: of an object, with who has it; of an error that rows are to find which have not come
OBJECT = 400
#: of a batch that is over, until all of its graph is, if agents keep how its rows ended
OVER = 350
#: of a message that is put aside, beside its columns and what it carries
MESSAGE = 500


def charge(state: ClusterState, client: ClientRecord, price: int) -> None:
    """So many bytes more are kept for a client, or (below 0) fewer."""
    client.kept += price
    if not client.is_resident:
        state.kept += price


def price_of_rows(task: Task) -> int:
    """What a batch takes that is about to come, without the objects that come with it."""
    rows = task.rows
    price = BATCH + ROW * rows
    if task.sizes:
        price += SIZED_ROW * rows + len(task.bodies[0])
    if task.flags & KEEP:
        price += KEPT_ROW * rows
    if task.dependencies:
        needs = len(task.dependencies)
        price += NEEDING_ROW * min(rows, needs) + NEED * needs
    if task.stored:  # nobody looks at it, but it is there
        price += 20 * len(task.stored) + 4 * len(task.holders)
    return price


def price_of_object(item: ObjectRecord) -> int:
    """What an object takes as it is."""
    return OBJECT + len(item.payload)


def price_of_failure(record: Frame) -> int:
    """What an error record takes that is kept for rows that have not come."""
    return OBJECT + len(record)


def price_of_message(message: Message) -> int:
    """What a message takes that is put aside: once it is dealt with, what comes of it has a price instead."""
    if type(message) is Task:
        return price_of_rows(message) + sum(map(len, message.bodies))
    if type(message) is ObjectAnnounce:
        return MESSAGE + OBJECT * len(message.ids) + sum(map(len, message.bodies))
    return message.weight
