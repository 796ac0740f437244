"""Calls become batches; the outbox by itself, without a connection."""

from collections import deque
from unittest.mock import Mock

from scaler.client.core.batching import Batcher, QueuedCall
from scaler.client.core.events import Announce, Release, Submit, Welcomed
from scaler.client.core.object_table import merged_releases
from scaler.client.core.options import Options
from scaler.client.core.session import SessionCore
from scaler.client.core.task_template import TaskTemplate
from scaler.client.future import Future
from scaler.client.values.claimed_rows import RowRelay
from scaler.client.values.content import Content
from scaler.client.values.remembered import SentObject, StoredValue
from scaler.client.waiting.map_job import MapBlock
from scaler.serialize.function import FunctionCache
from scaler.serialize.outofband import pack


class Outbox:
    """Batches what it is given as the client's driver does."""

    def __init__(self):
        self.session = SessionCore()
        self.session.handle([Welcomed(False, 1e9, 2)], 0.0)
        self.batcher = Batcher(self.session.take_ids)
        self.template = TaskTemplate(FunctionCache().capture(len), len, Options())
        self.queue = deque()

    def call(self, *needs):
        """Queue a call that needs these."""
        future = Future(Mock())
        self.queue.append(QueuedCall(self.template, b"payload", list(needs), future))
        return future

    def batches(self):
        """Take what is queued; the batches."""
        events = []

        def seen():
            for event in self.batcher.take(self.queue):
                events.append(event)
                yield event

        self.session.handle(seen(), 0.0)
        return [event.task for event in events if isinstance(event, Submit)]

    def stored(self):
        """A value that was sent before."""
        value = list(range(10))
        return StoredValue(SentObject(self.session.take_ids(1), 100, Content(pack(value)), lambda _: None), value)


def test_rows_of_a_map_that_are_sent_again_share_no_batch_with_calls_whose_futures_are_told_otherwise():
    outbox = Outbox()
    block = MapBlock(Mock(), 0, 9, 0)
    for row in range(3):
        outbox.call()
        outbox.queue.append(QueuedCall(outbox.template, b"payload", [], RowRelay(block, row)))
    assert [task.rows for task in outbox.batches()] == [3, 3]


def test_calls_that_need_what_was_sent_before_are_one_batch():
    outbox = Outbox()
    value = outbox.stored()
    for _ in range(1000):
        outbox.call(value)
    (task,) = outbox.batches()
    assert (task.rows, set(task.dependencies), set(task.dependency_counts)) == (1000, {value.id}, {1})


def test_a_call_that_needs_one_that_is_queued_is_sent_after_it():
    outbox = Outbox()
    first = outbox.call()
    outbox.call(first, outbox.stored())
    outbox.call(first)
    one, other = outbox.batches()
    assert (one.rows, other.rows) == (1, 2)
    assert first.id == one.batch
    assert list(other.dependency_counts) == [2, 1]
    assert list(other.dependencies)[::2] == [first.id, first.id]


def test_no_batch_is_larger_than_the_scheduler_takes_unless_a_row_is():
    outbox = Outbox()
    outbox.batcher.most_bytes = 10_000
    for size in [10] * 500 + [5_000] * 5 + [12_000] * 2:
        outbox.queue.append((outbox.template, ("x" * size,), Future(Mock())))
    for _ in range(20):
        outbox.queue.append(QueuedCall(outbox.template, b"y" * 3_000, [], Future(Mock())))
    batches = outbox.batches()
    assert sum(task.rows for task in batches) == 527
    assert all(task.rows == 1 or sum(map(len, task.bodies)) <= 10_000 for task in batches)
    assert len(batches) < 30


def test_batches_go_in_the_order_of_their_first_calls_whatever_their_arguments_are():
    outbox = Outbox()
    first = [outbox.call() for _ in range(3)]
    outbox.queue.extend((outbox.template, ("x",), Future(Mock())) for _ in range(100))
    assert [task.rows for task in outbox.batches()] == [3, 100]
    assert first[0].id < first[2].id


def test_a_function_that_is_stored_is_not_announced_again():
    outbox = Outbox()
    value = outbox.stored()
    outbox.template = TaskTemplate(outbox.template.captured, len, Options(), value.id, value)
    outbox.call()
    events = list(outbox.batcher.take(outbox.queue))
    assert not any(isinstance(event, Announce) for event in events)
    assert events[0].task.function == value.id


def test_releases_that_follow_each_other_become_one():
    events = [Release([1]), Release([2, 3]), Announce(9, b""), Release([4]), Release((5,))]
    assert merged_releases(events) == [Release([1, 2, 3]), Announce(9, b""), Release([4, 5])]
    assert events[0] == Release([1])
