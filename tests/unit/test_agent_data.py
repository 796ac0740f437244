"""What an agent's core does with stored objects and with memory, case by case."""

from collections import OrderedDict

import pytest
from simulator.scripted import FakeAgent, ended, spans, task
from support.counting import calls_of

from scaler.agent.core import events as ev
from scaler.agent.core.bringing import MAX_TRIES, RETRY_SECONDS
from scaler.agent.core.in_hand import SHORT_BYTES, SHORT_US
from scaler.agent.core.spilling import PAUSE
from scaler.agent.state.memory import HARD, SOFT
from scaler.agent.state.object_records import ObjectState
from scaler.agent.state.waiting_rows import WaitingSpan
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FILE,
    FILED,
    GRAPH,
    INLINE_VALUES,
    KEEP,
    LACKING,
    LIVE,
    LOST,
    PLACE,
    SIZE,
    STORED,
    STORED_OBJECT,
    VALUES_LIST,
    BalanceRequest,
    BalanceResponse,
    ClientDeparture,
    Heartbeat,
    Neighbours,
    ObjectAnnounce,
    ObjectFetch,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectResponse,
    Spans,
    Task,
    TaskCancel,
    TaskResult,
    i32,
    u8,
    u32,
    u64,
)
from scaler.serialize.record import decode_error
from scaler.worker_protocol import messages as wm

C, OWN, OTHER = FakeAgent.CLIENT, FakeAgent.NUMBER, 9
MB = 1_000_000


def made(fake: FakeAgent, slot: int, batch: int, live: bool = False, size: int = MB) -> int:
    """Have the worker of a slot make a stored value, while all others are busy; its id."""
    busy = [
        other for other, worker in fake.core.state.workers.records.items() if other != slot and worker.state == "idle"
    ]
    for other in busy:
        fake.core.state.workers.records[other].blocked = True
    fake.give(batch, 0, 1)
    for other in busy:
        fake.core.state.workers.records[other].blocked = False
    assert fake.makes(slot, live, size) == [(C, batch)]
    return batch


def knows_neighbour(fake: FakeAgent) -> None:
    """The scheduler says where the other agent is."""
    fake.tell(Neighbours(u32([OTHER]), ("tcp://other:1",)))


def release(fake: FakeAgent, *ids: int) -> None:
    """Nobody needs these any more."""
    fake.tell(ObjectRelease(u32([C]) * len(ids), u64(ids)))


def fetch(fake: FakeAgent, value: int) -> None:
    """The scheduler wants this to be a file here."""
    fake.tell(ObjectFetch(u32([C]), u64([value]), u64([MB]), u32([0]), u32()))


# ---- results ---------------------------------------------------------------------------------------------------------
def test_values_that_stay_in_a_worker_are_stored_for_the_scheduler() -> None:
    fake = FakeAgent(1)
    made(fake, 0, 10, live=True)
    (message,) = fake.heard(TaskResult)
    assert list(message.outcomes) == [STORED]
    assert fake.core.state.objects.index[C, 10].slot == 0


@pytest.mark.parametrize(("flags", "outcome"), [(0, FILED), (INLINE_VALUES, STORED), (INLINE_VALUES, LIVE)])
def test_a_worker_that_puts_values_where_they_do_not_belong_is_ended(flags: int, outcome: int) -> None:
    """Its agent would lose its session with the scheduler for telling that."""
    fake = FakeAgent(1)
    fake.give(10, 0, 1, flags=flags)
    (run,) = fake.runs[0]
    body = FILE.pack(10, 0, MB, 0) if outcome == FILED else SIZE.pack(MB)
    fake.worker(0, wm.Results([ended(run, 0, 1, outcome, 100, u32([len(body)]), body)], [run.dispatch]))
    assert fake.killed == [0]
    assert "of a durable job" in fake.logged[-1] or "of no durable job" in fake.logged[-1]
    fake.store.clear()
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert list(message.outcomes) == [LOST]


def test_the_stored_value_of_a_row_that_was_taken_away_is_removed() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.tell(ClientDeparture(C))
    fake.store.clear()
    assert fake.makes(0) == [(C, 10)]
    assert fake.asked(ev.DropObject) == [(C, 10)]
    assert not len(fake.core.state.objects.index)


def test_a_worker_that_dies_may_have_written_a_value_that_nobody_was_told_of() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.dies(0)
    assert fake.asked(ev.DropObject) == [(C, 10)]


def test_what_a_worker_could_not_write_is_no_file() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 2)
    fake.worker(0, wm.Published([wm.PublishedValue((C, 10), MB, None), wm.PublishedValue((C, 11), 0, "no room")]))
    index = fake.core.state.objects.index
    assert [key in index for key in ((C, 10), (C, 11))] == [True, False]


def test_a_worker_is_told_which_rows_its_client_wants() -> None:
    fake = FakeAgent(1)
    fake.give_dependents(20, [[]])
    assert fake.runs[0][0].wanted == b"\0"
    fake.finish(0)
    fake.give(30, 0, 1)
    assert fake.runs[0][0].wanted is None


# ---- where rows run --------------------------------------------------------------------------------------------------
def test_a_row_runs_where_most_of_its_input_is() -> None:
    fake = FakeAgent(2)
    small, large = made(fake, 0, 10, live=True, size=MB), made(fake, 1, 20, live=True, size=9 * MB)
    fake.give_dependents(30, [[small, large]])
    assert fake.told(0, wm.Publish) == [(C, small)]
    assert not any(fake.runs.values())
    fake.worker(0, wm.Published([wm.PublishedValue((C, small), MB, None)]))
    assert fake.running(1) == [(30, 0, 1)]


@pytest.mark.parametrize("options", [{"threads": 2}, {"timeout": 2.0}])
def test_a_row_that_may_not_follow_another_does_not_come_in_the_place_of_one_whose_input_is_gone(options) -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.makes(0)
    fake.give(15, 0, 1, priority=1)
    fake.give(16, 0, 1, priority=1)
    fake.give_dependents(30, [[10]])
    fake.give(40, 0, 1, **options)
    fake.handle(ev.FileMissing((C, 10)))
    fake.finish(0)
    assert fake.running(0) == [(16, 0, 1)]


def test_rows_that_need_the_same_two_values_run_in_one_worker_and_one_value_moves() -> None:
    fake = FakeAgent(2)
    one, other = made(fake, 0, 10, live=True), made(fake, 1, 20, live=True)
    fake.give_dependents(30, [[other, one], [one, other]])
    assert [fake.told(slot, wm.Publish) for slot in (0, 1)] == [[], [(C, other)]]


def test_a_row_whose_input_is_in_one_worker_waits_for_that_one() -> None:
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True, size=900 * MB)
    fake.give(20, 0, 1)  # keeps worker 0 busy, for as long as the last took
    fake.give_dependents(30, [[value]], size=900 * MB)
    assert fake.running(0) == [(20, 0, 1), (30, 0, 1)]
    assert not fake.runs.get(1)


@pytest.mark.parametrize(
    ("size", "us", "together"), [(MB, 100, 16), (MB, 500, 4), (SHORT_BYTES, 100, 2), (MB, int(SHORT_US), 2)]
)
def test_short_rows_are_handed_out_together_to_the_one_worker_that_has_what_they_need(size, us, together) -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    fake.makes(0, live=True, size=size, us=us)
    for batch in range(20, 40):
        fake.give_dependents(batch, [[10]])
    assert fake.running(0) == [(batch, 0, 1) for batch in range(20, 20 + together)]


def test_those_that_any_worker_could_run_are_not() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10)
    for batch in range(20, 40):
        fake.give_dependents(batch, [[value]])
    assert fake.running(0) == [(20, 0, 1), (21, 0, 1)]


def test_a_row_moves_to_an_idle_worker_when_waiting_takes_longer() -> None:
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True)
    fake.core.state.workers.records[1].blocked = True
    fake.give(20, 0, 1, name="long")
    fake.give(30, 0, 1, name="long")
    fake.core.state.workers.records[1].blocked = False
    fake.now += 0.1
    fake.give_dependents(40, [[value], [value]], name="quick")
    assert fake.told(0, wm.Publish) == [(C, value)]
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), MB, None)]))
    assert fake.running(1)[0][0] == 40


@pytest.mark.parametrize(("us", "size"), [(10_000, 50 * MB), (200_000, 1000 * MB)])
def test_a_row_that_would_wait_for_its_value_longer_elsewhere_stays_in_hand(us: int, size: int) -> None:
    """It was taken back for the worker that idles, found to be better where it was, and handed out again."""
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True, size=size)
    fake.core.state.estimates.note_duration((C, "known"), us)
    fake.give_dependents(30, [[value], [value]], size=size, name="known")
    assert fake.running(0) == [(30, 0, 1), (30, 1, 2)]
    end = fake.now + us / 1e6
    while fake.now < end:
        fake.now = min(max(fake.wake, fake.now + 1e-6), end)
        fake.handle(ev.Tick())
    assert fake.control == []


def test_a_row_in_hand_whose_value_is_with_an_idle_worker_sooner_is_taken_there() -> None:
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True)
    fake.core.state.estimates.note_duration((C, "known"), 50_000)
    fake.core.state.workers.records[1].blocked = True
    fake.give_dependents(30, [[value], [value]], name="known")
    assert fake.running(0) == [(30, 0, 1), (30, 1, 2)]
    fake.core.state.workers.records[1].blocked = False
    fake.handle(ev.Tick())
    ((slot, message),) = fake.control
    fake.control.clear()
    fake.give_back(slot, message.token)
    assert fake.told(0, wm.Publish) == [(C, value)]


def test_rows_for_one_worker_cost_nothing_while_no_other_one_idles() -> None:
    calls = {}
    for batches in (100, 1_000):
        fake = FakeAgent(2)
        value = made(fake, 0, 10, live=True, size=900 * MB)
        fake.give(20, 0, 2, name="long")
        for batch in range(30, 30 + batches):
            fake.give_dependents(batch, [[value]], size=900 * MB)
        calls[batches] = calls_of(lambda fake=fake: fake.handle(ev.Tick()))
        fake.finish(1)  # it idles now, and the value is too large to be moved there
        calls[batches] += calls_of(lambda fake=fake: fake.handle(ev.Tick()))
    assert calls[1_000] < calls[100] + 100


def test_rows_that_use_values_go_before_older_ones_that_make_more() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10)
    fake.give(20, 0, 3, name="long")
    fake.give_dependents(30, [[value]])
    fake.finish(0)
    assert fake.running(0) == [(20, 1, 2), (30, 0, 1)]


def order_of_batches(fake: FakeAgent, rows: int) -> list[int]:
    """The batches whose rows the only worker runs, one after the other."""
    order = []
    for _ in range(rows):
        for slot, message in fake.control:
            if isinstance(message, wm.Recall):
                fake.give_back(slot, message.token)
        fake.control.clear()
        order.append(fake.running(0)[0][0])
        fake.finish(0, us=20_000)
    return order


def test_rows_that_use_what_a_worker_has_take_turns_with_those_of_other_roots() -> None:
    """A client whose tasks go on with their own values would keep all workers to itself as long as it has some."""
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    for client, name in ((C, "chain"), (C + 1, "other")):
        fake.core.state.estimates.note_duration((client, name), 20_000)
    fake.give_dependents(30, [[value]] * 6, name="chain", root=7)
    fake.give(20, 0, 6, client=C + 1, name="other", root=8)
    order = order_of_batches(fake, 12)
    assert {tuple(order[at : at + 2]) for at in range(2, 10, 2)} <= {(20, 30), (30, 20)}, order


def test_rows_for_a_worker_let_more_urgent_ones_go_first_and_no_less_urgent_ones() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.give(15, 0, 1, timeout=9.0)  # nothing comes behind it
    fake.give_dependents(30, [[value]] * 2, name="chain", root=7)
    fake.give(20, 0, 1, client=C + 1, root=8, priority=-1)
    fake.give(25, 0, 1, client=C + 2, root=9, priority=1)
    assert order_of_batches(fake, 5) == [15, 25, 30, 30, 20]


def test_rows_for_a_worker_that_dies_keep_their_order() -> None:
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True, size=900 * MB)
    for batch, slot in ((20, 0), (21, 1)):  # both are busy, for as long as the last took
        fake.core.state.workers.records[1 - slot].blocked = True
        fake.give(batch, 0, 1, name="long")
        fake.core.state.workers.records[1 - slot].blocked = False
    for batch in (30, 31, 32, 33):
        fake.give_dependents(batch, [[value]], size=900 * MB)
    fetch(fake, value)
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), 900 * MB, None)]))
    ready = fake.core.state.ready
    before = [origin.task.batch for origin, _, _ in ready.local[0]]
    fake.dies(0)
    after = [origin.task.batch for origin, _, _ in ready.general if origin.task.batch in before]
    assert len(after) > 1
    assert after == [batch for batch in before if batch in after], "the other worker took some"


def test_rows_for_a_worker_that_blocks_go_elsewhere() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.give(20, 0, 2, timeout=5.0)
    fake.give_dependents(30, [[value]])
    fake.worker(0, wm.Blocked())
    assert fake.told(0, wm.Publish) == [(C, value)]


# ---- bringing objects ------------------------------------------------------------------------------------------------
def test_an_object_of_another_agent_is_fetched_and_announced() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.give_dependents(30, [[5]], holders=[OTHER])
    assert fake.store[-1] == ev.Fetch((C, 5), MB, ["tcp://other:1"])
    assert not fake.runs.get(0)
    fake.handle(ev.Fetched((C, 5)))
    (message,) = fake.heard(ObjectAnnounce)
    assert (message.client, list(message.ids), PLACE.unpack(message.bodies[0])) == (C, [5], (MB, OWN))
    assert fake.running(0) == [(30, 0, 1)]


def test_an_agent_that_is_gone_is_forgotten_when_the_scheduler_says_so() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.tell(Neighbours(u32([OTHER, 10]), ("", "tcp://another:1")))
    assert fake.core.state.objects.addresses == {10: "tcp://another:1"}
    fake.give_dependents(30, [[5]], holders=[OTHER])
    assert [list(message.rows) for message in fake.heard(ObjectMissing)] == [[(C, 30, 0, 1)]]


def test_rows_whose_objects_cannot_be_had_go_back() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.give_dependents(30, [[5], [5], [6]], holders=[OTHER])
    fake.handle(ev.Fetched((C, 5), "it is gone"))
    (message,) = fake.heard(ObjectMissing)
    assert list(message.objects) == [(C, 5)]
    assert list(message.rows) == [(C, 30, 0, 1), (C, 30, 1, 2)]
    fake.handle(ev.Fetched((C, 6)))
    assert fake.running(0) == [(30, 2, 3)]


def test_rows_whose_objects_nobody_has_go_back_at_once() -> None:
    fake = FakeAgent(1)
    fake.give_dependents(30, [[5]])
    assert [list(message.rows) for message in fake.heard(ObjectMissing)] == [[(C, 30, 0, 1)]]
    assert not fake.core.state.queued


def test_what_many_rows_lack_is_named_once_in_each_message() -> None:
    fake = FakeAgent(1)
    for batch in (30, 40):
        fake.give_dependents(batch, [[5], [6, 5], [7]])
        (message,) = fake.heard(ObjectMissing)
        assert sorted(message.objects) == [(C, 5), (C, 6), (C, 7)]
        assert sum(hi - lo for _, _, lo, hi in message.rows) == 3


def test_a_row_whose_input_is_more_than_the_store_ever_has_goes_back_at_once_with_the_reason() -> None:
    fake = FakeAgent(1, store=64 * MB)
    knows_neighbour(fake)
    fake.give_dependents(30, [[5, 6], [5]], holders=[OTHER], size=40 * MB)
    (message,) = fake.heard(ObjectMissing)
    assert (list(message.objects), list(message.rows)) == ([], [(C, 30, 0, 1)])
    assert "80,000,000 bytes" in message.refusal
    assert "64,000,000" in message.refusal
    fake.handle(ev.Fetched((C, 5)))
    assert fake.running(0) == [(30, 1, 2)]


def test_values_that_stayed_in_a_worker_take_no_room_of_the_store() -> None:
    fake = FakeAgent(1, store=64 * MB)
    first, second = (made(fake, 0, batch, size=40 * MB, live=True) for batch in (10, 20))
    fake.give_dependents(30, [[first, second]], size=40 * MB)
    assert fake.running(0) == [(30, 0, 1)]


def test_a_worker_takes_the_values_that_stayed_in_it_along_when_it_dies() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.give(20, 0, 2, timeout=5.0)
    fake.give_dependents(30, [[value]])
    fake.dies(0)
    said = fake.said
    gone = [message for message in said if isinstance(message, ObjectGone)]
    assert [(list(message), message.with_worker) for message in gone] == [([(C, value)], True)]
    assert [list(message.rows) for message in said if isinstance(message, ObjectMissing)] == [[(C, 30, 0, 1)]]


def test_a_row_waits_until_its_object_is_back_from_disk() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    assert fake.asked(ev.Spill) == [(C, value)]
    fake.give_dependents(30, [[value]], size=6 * MB)
    assert not fake.runs.get(0)
    fake.handle(ev.Spilled((C, value)))
    assert fake.asked(ev.Restore) == [(C, value)]
    fake.handle(ev.Restored((C, value)))
    assert fake.running(0) == [(30, 0, 1)]


def test_an_object_that_cannot_be_read_from_disk_is_gone_after_some_tries() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value]], size=6 * MB)
    for _ in range(MAX_TRIES):
        assert fake.asked(ev.Restore) == [(C, value)]
        fake.handle(ev.Restored((C, value), "the disk is broken"))
        fake.now += RETRY_SECONDS
        fake.handle(ev.Tick())
    said = fake.said
    assert [list(message) for message in said if isinstance(message, ObjectGone)] == [[(C, value)]]
    assert [list(message.rows) for message in said if isinstance(message, ObjectMissing)] == [[(C, 30, 0, 1)]]
    assert fake.asked(ev.DropObject) == [(C, value)]


def test_what_memory_turns_out_to_have_no_room_for_is_read_on_disk() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value]], size=6 * MB)
    fetch(fake, value)
    fake.handle(ev.Requested((C, value)))
    fake.handle(ev.Restored((C, value), "there is no room", lacks_room=True))
    assert fake.running(0) == [(30, 0, 1)]
    assert fake.asked(ev.Serve) == [(C, value)]
    fetch(fake, value)
    assert not any(isinstance(message, ObjectGone) for message in fake.said)
    assert [list(answer.outcomes) for answer in fake.heard(ObjectResponse)] == [[0], [0]]


def test_what_memory_has_no_room_for_is_read_on_disk_at_once() -> None:
    fake = FakeAgent(1, total=10 * MB)
    first, second = (made(fake, 0, batch, size=6 * MB) for batch in (10, 20))
    fake.handle(ev.Spilled((C, first)))
    fake.handle(ev.Spilled((C, second), "the disk is full"))
    fake.give_dependents(30, [[first]], size=6 * MB)
    assert fake.running(0) == [(30, 0, 1)]
    assert fake.asked(ev.Restore) == []


def test_what_is_read_on_disk_is_gone_if_its_file_is() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fetch(fake, value)
    fake.handle(ev.Restored((C, value), "there is no room", lacks_room=True))
    fake.handle(ev.FileMissing((C, value)))
    assert [list(message) for message in fake.heard(ObjectGone)] == [[(C, value)]]


def test_a_disk_that_takes_nothing_is_said_once_and_so_is_that_it_does_again() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    for _ in range(3):
        assert fake.asked(ev.Spill) == [(C, value)]
        fake.handle(ev.Spilled((C, value), "no room"))
        fake.now += PAUSE
        fake.handle(ev.Tick())
    fake.handle(ev.Spilled((C, value)))
    failed, went_on = [text for text in fake.logged if "to disk" in text]
    assert failed == "objects can't be moved to disk: no room; tried again until it works"
    assert went_on == "objects are moved to disk again"


def test_an_object_that_is_not_on_disk_any_more_is_gone_at_once() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value]], size=6 * MB)
    fake.handle(ev.Restored((C, value), "there is no such file", is_lost=True))
    said = fake.said
    assert [list(message) for message in said if isinstance(message, ObjectGone)] == [[(C, value)]]
    assert [list(message.rows) for message in said if isinstance(message, ObjectMissing)] == [[(C, 30, 0, 1)]]
    assert fake.asked(ev.DropObject) == [(C, value)]


def test_a_worker_does_not_count_as_having_what_could_not_be_read_from_disk() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value]], size=6 * MB)
    fake.handle(ev.Restored((C, value)))
    fake.makes(0, size=MB)
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(40, [[value]], size=6 * MB)
    for _ in range(MAX_TRIES):
        fake.handle(ev.Restored((C, value), "the disk is broken"))
        fake.now += RETRY_SECONDS
        fake.handle(ev.Tick())
    assert (C, value) not in fake.core.state.workers.records[0].objects


def test_an_object_that_could_not_be_read_is_tried_again_in_time() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, size=6 * MB)
    fake.handle(ev.Spilled((C, value)))
    fetch(fake, value)
    fake.asked(ev.Restore)
    assert fake.wake > fake.now + RETRY_SECONDS
    fake.handle(ev.Restored((C, value), "the disk is broken"))
    assert fake.wake <= fake.now + RETRY_SECONDS
    fake.now = fake.wake
    fake.handle(ev.Tick())
    assert fake.asked(ev.Restore) == [(C, value)]


def test_only_the_worker_that_has_a_value_says_that_it_can_not_be_written() -> None:
    fake = FakeAgent(2)
    value = made(fake, 0, 10, live=True)
    made(fake, 1, 10, live=True)  # once more, and now it is this worker's
    fetch(fake, value)
    assert fake.told(1, wm.Publish) == [(C, value)]
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), MB, "it is not here")]))
    assert fake.core.state.objects.records[C, value].state is ObjectState.PUBLISHING
    fake.worker(1, wm.Published([wm.PublishedValue((C, value), MB, None)]))
    assert [list(answer.outcomes) for answer in fake.heard(ObjectResponse)] == [[0]]


def test_an_object_that_finds_no_room_makes_others_leave_and_comes_as_soon_as_it_fits() -> None:
    fake = FakeAgent(1, total=100 * MB)
    first, second, third = (made(fake, 0, batch, size=20 * MB) for batch in (10, 20, 30))
    assert fake.asked(ev.Spill) == [(C, first)]
    fake.handle(ev.Spilled((C, first)))
    release(fake, third)  # whose memory somebody else still maps
    fetch(fake, first)
    assert fake.asked(ev.Restore) == [(C, first)]
    fake.handle(ev.Restored((C, first), "there is no room"))
    assert fake.asked(ev.Spill) == [(C, second)]
    fake.handle(ev.Spilled((C, second)))
    assert fake.asked(ev.Restore) == [(C, first)]
    fake.handle(ev.Restored((C, first)))
    assert [list(answer.outcomes) for answer in fake.heard(ObjectResponse)] == [[0]]


def test_a_result_that_finds_no_room_makes_others_leave_as_far_as_they_do_not_already() -> None:
    fake = FakeAgent(2, total=100 * MB)
    first, second = (made(fake, 0, batch, size=16 * MB) for batch in (10, 20))
    assert fake.asked(ev.Spill) == []
    for _ in range(3):
        fake.worker(1, wm.Crowded(16 * MB))
    assert fake.asked(ev.Spill) == [(C, first)]
    fake.handle(ev.Spilled((C, first)))
    fake.worker(1, wm.Crowded(16 * MB))
    assert fake.asked(ev.Spill) == [(C, second)]


def fetching_without_room() -> FakeAgent:
    fake = FakeAgent(2)
    fake.tell(Neighbours(u32([OTHER]), ["tcp://other:1"]))
    fake.give_dependents(30, [[5]], holders=[OTHER])
    assert fake.asked(ev.Fetch) == [(C, 5)]
    fake.handle(ev.Fetched((C, 5), "there is no room", lacks_room=True))
    fake.now += RETRY_SECONDS
    fake.handle(ev.Tick())
    assert fake.asked(ev.Fetch) == [(C, 5)]
    return fake


def test_what_has_no_room_when_it_is_fetched_is_fetched_again() -> None:
    fake = fetching_without_room()
    fake.handle(ev.Fetched((C, 5)))
    assert fake.running(0) == [(30, 0, 1)]


def test_it_is_fetched_again_for_as_long_as_rows_run_that_may_make_room() -> None:
    fake = fetching_without_room()
    fake.give(10, 0, 1)
    for _ in range(2 * MAX_TRIES):
        fake.handle(ev.Fetched((C, 5), "there is no room", lacks_room=True))
        fake.now += RETRY_SECONDS
        fake.handle(ev.Tick())
        assert fake.asked(ev.Fetch) == [(C, 5)]


def test_rows_whose_input_finds_no_room_in_the_end_are_refused_with_the_reason() -> None:
    fake = fetching_without_room()
    for _ in range(MAX_TRIES):
        fake.handle(ev.Fetched((C, 5), "there is no room", lacks_room=True))
        fake.now += RETRY_SECONDS
        fake.handle(ev.Tick())
    (refused,) = fake.heard(ObjectMissing)
    assert (refused.refusal, list(refused.rows), list(refused.objects)) == ("there is no room", [(C, 30, 0, 1)], [])
    assert (C, 5) not in fake.core.state.objects.records


def test_what_a_client_wrote_is_here() -> None:
    fake = FakeAgent(1)
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(MB, OWN)], C))
    fake.give_dependents(30, [[5]], holders=[OWN])
    assert fake.running(0) == [(30, 0, 1)]


def test_a_value_whose_file_is_gone_is_sent_along_to_a_worker_that_had_it() -> None:
    fake = FakeAgent(1)
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(MB, OWN)], C))
    fake.give_dependents(30, [[5]], holders=[OWN])
    fake.finish(0)
    fake.handle(ev.Requested((C, 5)))
    assert fake.heard(ObjectGone)
    fake.give(40, 0, 1)
    fake.finish(0)
    assert (C, 5) not in fake.core.state.workers.records[0].objects
    fake.tell(sent_along(5))
    assert ((C, 5), b"value") in fake.runs[0][0].objects


def test_what_was_a_file_is_sent_along_to_a_worker_that_has_used_the_file() -> None:
    """After a restart its client has sent it: the scheduler does not know of the file."""
    fake = FakeAgent(1)
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(MB, OWN)], C))
    fake.give_dependents(30, [[5]], holders=[OWN])
    fake.finish(0)
    fake.tell(sent_along(5))
    assert ((C, 5), b"value") in fake.runs[0][0].objects


def sent_along(value: int) -> Task:
    """A row that needs a value which comes with it."""
    return task(
        50, 1, GRAPH, client=C, flags=KEEP, bodies=[b"function", b"value"], objects=u64([1, value]),
        dependency_counts=u32([1]), dependencies=u64([value]), indexes=i32([-1]), wanted=u8([0]),
    )  # fmt: skip


def lacking(fake: FakeAgent, object_id: int, row: int = 0) -> None:
    """The worker finds no file of an object that this row of its first dispatch needs."""
    run = fake.runs[0][0]
    record = ErrorRecord(ErrorKind.OBJECT, "it is not there").encode()
    body = SIZE.pack(object_id) + record
    span = wm.EndedSpan(run.dispatch, C, run.batch, row, row + 1, LACKING, 0, 0, u32([len(body)]), body)
    fake.worker(0, wm.Results([span], []))


def test_a_row_whose_file_somebody_removed_waits_until_it_is_there_again() -> None:
    fake = FakeAgent(1)
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(MB, OWN)], C))
    fake.give_dependents(30, [[5]], holders=[OWN])
    lacking(fake, 5)
    assert any(isinstance(message, ObjectGone) for message in fake.said)
    (missing,) = fake.heard(ObjectMissing)
    assert list(missing.rows) == [(C, 30, 0, 1)]
    assert not fake.core.state.queued


def test_a_row_whose_worker_does_not_have_a_value_of_its_own_waits_until_it_is_there_again() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.give_dependents(30, [[value]], holders=[OWN])
    lacking(fake, value)
    assert [list(message) for message in fake.said if isinstance(message, ObjectGone)] == [[(C, value)]]
    (missing,) = fake.heard(ObjectMissing)
    assert list(missing.rows) == [(C, 30, 0, 1)]
    assert not fake.core.state.queued  # it was handed to that worker again, and again


def test_a_worker_is_told_which_of_its_values_to_drop() -> None:
    """It may hear of that after it has made one of the same name, of a row that was handed to it later."""
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    release(fake, value)
    fake.give(10, 0, 1)
    ((_, drop),) = fake.control
    assert drop.last == fake.runs[0][0].dispatch - 1


def test_a_worker_that_answers_with_a_list_where_values_stand_by_themselves_is_ended() -> None:
    fake = FakeAgent(1)
    fake.give_dependents(30, [[], []])
    run = fake.runs[0][0]
    span = wm.EndedSpan(run.dispatch, C, 30, run.lo, run.hi, VALUES_LIST, 0, 0, u32([4]), b"list")
    fake.worker(0, wm.Results([span], []))
    assert fake.killed == [0]
    assert not fake.heard(TaskResult)


def test_a_row_that_lacks_what_is_no_file_has_failed() -> None:
    fake = FakeAgent(1)
    fake.give(10, 0, 1)
    lacking(fake, 1)
    (result,) = fake.heard(TaskResult)
    assert list(result.outcomes) == [ERROR]
    assert ErrorRecord.decode(bytes(result.bodies[0])).message == "it is not there"


def test_a_worker_that_lacks_files_of_rows_it_was_not_given_is_ended() -> None:
    fake = FakeAgent(1)
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(MB, OWN)], C))
    fake.give_dependents(30, [[5]], holders=[OWN])
    lacking(fake, 5, row=7)
    assert fake.killed == [0]
    assert not fake.heard(ObjectGone)


def test_a_file_that_is_to_be_read_and_is_missing_is_gone() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10)
    fake.said.clear()
    fake.handle(ev.FileMissing((C, value)))
    fetch(fake, value)
    assert fake.heard(ObjectGone)
    assert (C, value) not in fake.core.state.objects.index


def test_the_scheduler_is_answered_when_an_object_is_a_file() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.said.clear()
    fetch(fake, value)
    assert not fake.said
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), MB, None)]))
    fetch(fake, value)
    answers = fake.heard(ObjectResponse)
    assert [(list(answer.outcomes), answer.agent) for answer in answers] == [([0], OWN), ([0], OWN)]


def test_the_scheduler_is_answered_once() -> None:
    fake = FakeAgent(1, total=10 * MB)
    value = made(fake, 0, 10, live=True, size=6 * MB)
    fetch(fake, value)
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), 6 * MB, None)]))
    assert len(fake.heard(ObjectResponse)) == 1
    assert fake.asked(ev.Spill) == [(C, value)]
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value]], size=6 * MB)
    fake.handle(ev.Restored((C, value)))
    assert fake.running(0) == [(30, 0, 1)]
    assert fake.heard(ObjectResponse) == []


def test_or_cannot_be_one() -> None:
    fake = FakeAgent(1)
    fetch(fake, 5)
    (answer,) = fake.heard(ObjectResponse)
    assert list(answer.outcomes) == [1]
    assert answer.reason


def test_another_agent_gets_what_is_in_a_worker() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fake.handle(ev.Requested((C, value)))
    assert fake.told(0, wm.Publish) == [(C, value)]
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), MB, None)]))
    assert fake.asked(ev.Serve) == [(C, value)]


# ---- letting go ------------------------------------------------------------------------------------------------------
def test_workers_let_go_of_what_is_moved_to_disk_and_of_what_is_gone_if_memory_is_short() -> None:
    fake = FakeAgent(2, total=100 * MB)
    first, second = made(fake, 0, 10, size=16 * MB), made(fake, 0, 20, size=16 * MB)
    for value in (first, second):
        fake.give_dependents(30 + value, [[value]], size=16 * MB)
    for slot in list(fake.runs):
        while fake.runs[slot]:
            fake.finish(slot)
    users = {slot: worker.objects for slot, worker in fake.core.state.workers.records.items()}
    (user,) = [slot for slot, known in users.items() if (C, first) in known]
    fake.worker(1, wm.Crowded(16 * MB))
    assert fake.asked(ev.Spill) == [(C, first)]
    assert not fake.told(user, wm.Drop)
    fake.handle(ev.Spilled((C, first)))
    assert fake.told(user, wm.Drop) == [(C, first)]
    (user,) = [slot for slot, known in users.items() if (C, second) in known]
    release(fake, second)
    fake.now += 1.0
    fake.handle(ev.Sampled({}, short=16 * MB))
    assert fake.told(user, wm.Drop) == [(C, second)]


def test_released_objects_are_removed_wherever_they_are() -> None:
    fake = FakeAgent(2)
    live, file = made(fake, 0, 10, live=True), made(fake, 0, 20)
    release(fake, live, file)
    assert fake.told(0, wm.Drop) == [(C, live)]
    assert fake.asked(ev.DropObject) == [(C, file)]
    assert not len(fake.core.state.objects.index)


def test_a_value_that_is_published_after_it_was_released_is_removed() -> None:
    fake = FakeAgent(1)
    value = made(fake, 0, 10, live=True)
    fetch(fake, value)
    release(fake, value)
    fake.worker(0, wm.Published([wm.PublishedValue((C, value), MB, None)]))
    assert fake.asked(ev.DropObject) == [(C, value)]


def test_a_client_that_clears_keeps_what_it_has_written_and_not_told_of() -> None:
    fake = FakeAgent(1)
    file = made(fake, 0, 10)
    fake.tell(ClientDeparture(C, stays=True))
    assert fake.asked(ev.DropObject) == [(C, file)]
    assert ev.DropClient(C) not in fake.store
    assert fake.core.state.objects.count == 0


def test_a_client_that_leaves_takes_everything_along() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    file = made(fake, 0, 10)
    fake.give_dependents(30, [[5], [file, 5]], holders=[OTHER])
    fake.tell(ClientDeparture(C))
    assert fake.asked(ev.DropObject) == [(C, file), (C, 5)]
    assert ev.DropClient(C) in fake.store
    assert (fake.core.state.queued, fake.core.state.objects.count) == (0, 0)
    assert not fake.core.state.objects.records


def test_at_a_new_scheduler_files_are_removed_by_their_age_and_not_by_name() -> None:
    """A client that is faster than this agent may have written one by the same name since."""
    fake = FakeAgent(1)
    made(fake, 0, 10)
    fake.handle(ev.Welcomed(False, 1.0, OWN))
    assert fake.asked(ev.DropObject) == []
    assert ev.DropClient(0) in fake.store
    assert fake.core.state.objects.count == 0


def test_nothing_is_handed_out_while_workers_of_a_forgotten_past_still_end() -> None:
    fake = FakeAgent(2)
    fake.give(10, 0, 1)
    fake.handle(ev.Welcomed(False, 1.0, OWN))
    fake.give(20, 0, 1)
    assert not fake.runs.get(1)
    fake.dies(0)
    assert fake.running(1) == [(20, 0, 1)]


def test_waiting_rows_can_be_cancelled() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.give_dependents(30, [[5], [5]], holders=[OTHER])
    fake.tell(TaskCancel(spans(Spans, C, (30, 0, 1))))
    (message,) = fake.heard(TaskResult)
    assert (list(message.spans), list(message.outcomes)) == ([0, 1], [CANCELLED])
    fake.handle(ev.Fetched((C, 5)))
    assert fake.running(0) == [(30, 1, 2)]


def test_waiting_rows_can_be_given_back() -> None:
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.give_dependents(30, [[5], [6]], holders=[OTHER])
    fake.tell(BalanceRequest(1))
    assert list(fake.heard(BalanceResponse)[0]) == [(C, 30, 1, 2)]


def with_waiting_rows(count: int) -> FakeAgent:
    """An agent with so many rows of one batch, each of which waits for an object of its own."""
    fake = FakeAgent(1)
    knows_neighbour(fake)
    fake.give_dependents(3_000, [[1_000 + row] for row in range(count)], holders=[OTHER])
    assert fake.core.state.waiting.rows == count
    return fake


def test_waiting_rows_of_some_batches_can_be_given_back_and_the_others_wait_on() -> None:
    fake = with_waiting_rows(4)
    fake.give_dependents(4_000, [[5], [6]], holders=[OTHER])
    fake.tell(BalanceRequest(9, 0, u32([C]), u64([4_000])))
    assert sorted(fake.heard(BalanceResponse)[0]) == [(C, 4_000, 0, 1), (C, 4_000, 1, 2)]
    assert [wait.lo for wait in fake.core.state.waiting] == [0, 1, 2, 3]
    fake.tell(TaskCancel(spans(Spans, C, (3_000, 1, 3))))
    assert [wait.lo for wait in fake.core.state.waiting] == [0, 3]


def test_for_each_waiting_row_that_goes_there_is_no_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, rows = 0, 256

    def look(wait: WaitingSpan, name: str) -> object:
        nonlocal looks
        looks += name == "lo"
        return object.__getattribute__(wait, name)

    for message in (
        TaskCancel(spans(Spans, C, *((3_000, row, row + 1) for row in range(0, rows, 2)))),
        BalanceRequest(rows // 2, 0, u32([C]), u64([3_000])),
    ):
        fake, looks = with_waiting_rows(rows), 0
        with monkeypatch.context() as patched:
            patched.setattr(WaitingSpan, "__getattribute__", look, raising=False)
            fake.tell(message)
        assert fake.core.state.waiting.rows == rows // 2
        assert looks < 40 * rows // 2


def test_which_wait_is_first_and_which_last_is_known_without_a_look_at_those_that_were() -> None:
    """A plain dict passes the entries that were removed, each time anew: that is nothing a test could count."""
    waiting = with_waiting_rows(2).core.state.waiting
    for table in (waiting.begun, waiting.complete, *waiting._later.values()):
        assert type(table) is OrderedDict


# ---- memory ----------------------------------------------------------------------------------------------------------
def test_what_was_not_used_for_longest_goes_to_disk_and_what_is_used_stays() -> None:
    fake = FakeAgent(1, total=100 * MB)
    first, second, third = (made(fake, 0, batch, size=MB * SOFT // 2 - MB) for batch in (10, 20, 30))
    assert fake.asked(ev.Spill) == [(C, first)]
    fake.handle(ev.Spilled((C, first)))
    fake.give_dependents(40, [[second]])
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(9 * MB, OWN)], C))
    assert fake.asked(ev.Spill) == [(C, third)]


def test_without_room_no_rows_are_handed_out_and_the_scheduler_hears_of_it() -> None:
    fake = FakeAgent(2, total=100 * MB)
    value = made(fake, 0, 10, size=(HARD + 1) * MB)
    fake.give(20, 0, 1)
    assert not fake.runs.get(0)
    assert fake.heard(Heartbeat)[-1].full
    fake.handle(ev.Spilled((C, value)))
    assert fake.running(0) == [(20, 0, 1)]
    assert not fake.heard(Heartbeat)[-1].full


def test_work_goes_on_a_row_at_a_time_when_nothing_can_leave() -> None:
    fake = FakeAgent(2, total=100 * MB)
    value = made(fake, 0, 10, size=(HARD + 1) * MB)
    fake.handle(ev.Spilled((C, value), "the disk is full"))
    fake.give(20, 0, 2)
    assert [fake.running(slot) for slot in (0, 1)] == [[(20, 0, 1)], []]
    fake.makes(0, size=MB)
    assert [fake.running(slot) for slot in (0, 1)] == [[(20, 1, 2)], []]
    fake.store.clear()
    fake.now += PAUSE
    fake.handle(ev.Tick())
    assert fake.asked(ev.Spill)  # and then it is tried again


def test_what_was_brought_for_a_row_stays_until_the_row_may_run() -> None:
    """While something leaves, nothing is handed out: what the row waited for went to disk again, for ever."""
    fake = FakeAgent(1, total=100 * MB)
    value = made(fake, 0, 10, size=20 * MB)
    live = made(fake, 0, 20, live=True, size=(HARD - 20) * MB)
    assert fake.asked(ev.Spill) == [(C, value)]
    fake.handle(ev.Spilled((C, value)))
    fake.give_dependents(30, [[value, live]])
    assert fake.asked(ev.Restore) == [(C, value)]
    fake.tell(ObjectAnnounce(u64([5]), u8([STORED_OBJECT]), [PLACE.pack(9 * MB, OWN)], C))
    assert fake.asked(ev.Spill) == [(C, 5)]
    fake.handle(ev.Restored((C, value)))
    fake.handle(ev.Tick())
    assert fake.asked(ev.Spill) == [] == fake.running(0)
    fake.handle(ev.Spilled((C, 5)))
    assert fake.running(0) == [(30, 0, 1)]


def test_no_more_rows_run_at_once_than_there_is_room_for_their_results() -> None:
    fake = FakeAgent(2, total=100 * MB)
    for batch in (10, 20):
        made(fake, 0, batch, size=20 * MB)
    fake.give(30, 0, 4)
    assert [len(fake.running(slot)) for slot in (0, 1)] == [1, 0]


def test_a_worker_that_takes_too_much_memory_is_ended_and_its_task_told_why() -> None:
    fake = FakeAgent(1, worker=100 * MB)
    fake.give(5, 0, 1)
    fake.finish(0)
    fake.give(10, 0, 3)
    fake.handle(ev.Sampled({0: 90 * MB}))
    assert fake.killed == []
    fake.handle(ev.Sampled({0: 150 * MB}))
    assert fake.killed == [0]
    fake.said.clear()
    fake.dies(0)
    (message,) = fake.heard(TaskResult)
    assert (list(message.spans), list(message.outcomes), list(message.peaks)) == ([0, 1], [ERROR], [150 * MB])
    text = str(decode_error(bytes(message.bodies[0])))
    assert {"task f", "150 MB", "100 MB"} <= {words for words in ("task f", "150 MB", "100 MB") if words in text}
    assert fake.core.state.queued == 2


def test_heartbeats_tell_what_memory_is_taken() -> None:
    fake = FakeAgent(1)
    made(fake, 0, 10)
    fake.handle(ev.Sampled({0: 90 * MB}, 0.5))
    fake.said.clear()
    fake.now += 1.1
    fake.handle(ev.Tick())
    (heartbeat,) = fake.heard(Heartbeat)
    assert (heartbeat.cpu, heartbeat.memory, heartbeat.stored, heartbeat.full) == (0.5, 90 * MB, MB, False)
