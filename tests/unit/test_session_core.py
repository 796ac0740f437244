"""What the client's session does, case by case; the scheduler is played by the test."""

import dataclasses
import math
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from simulator.scripted import graph, spans, task
from support.weight import objects_below

from scaler.client.core import events as ev
from scaler.client.core import lineage, object_table
from scaler.client.core.holding import FEW, FIRST_TAKE, GROWTH, LINGER
from scaler.client.core.session import SessionCore
from scaler.client.core.unanswered import UnansweredRequests
from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FRESH,
    GRAPH,
    INLINE,
    PLACE,
    SIZE,
    STORED,
    STORED_OBJECT,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    ClientClear,
    ClientReturn,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Heartbeat,
    Message,
    ObjectAnnounce,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    ShutdownResponse,
    Spans,
    StoreOffers,
    StoreRequest,
    Task,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskResult,
    TaskRunning,
    u32,
    u64,
)
from scaler.protocol.results import ResultBuilder, SpanResult, values_of
from scaler.serialize.record import decode_error


class Token:
    """Stands for a row."""

    id = 0


class Session:
    """A session whose effects are kept."""

    def __init__(self) -> None:
        self.core = SessionCore()
        self.effects: list[Any] = []
        self.core.handle([ev.Welcomed(False, 1.0, 2)], 0.0)

    def do(self, *events: ev.Event, now: float = 0.5) -> list[Any]:
        """Something happens; what is to be done about it."""
        return self.core.handle(events, now)

    def submit(self, made: Task, **more: Any) -> list[Token]:
        """Send a batch."""
        tokens = [Token() for _ in range(made.rows)]
        self.do(ev.Submit(made, tokens, **more))
        return tokens

    def hear(self, *messages: Message) -> list[Any]:
        """The scheduler says something."""
        return self.do(*map(ev.Arrived, messages))

    def anew(self) -> list[Message]:
        """A scheduler that knows nothing; what it is told."""
        effects = self.do(ev.Welcomed(False, 1.0, 2))
        return [effect.message for effect in effects if isinstance(effect, ev.Transmit)]

    def taken_over(self) -> list[Message]:
        """A scheduler that took the place of the last; what it is told."""
        effects = self.do(ev.Welcomed(False, 1.0, 2, returned=True))
        return [effect.message for effect in effects if isinstance(effect, ev.Transmit)]


def outstanding(session: Session) -> int:
    """Wanted rows that have not ended."""
    return sum(group.left for group in {pending.group for pending in session.core.pending.by_id.values()})


def ended(batch: int, lo: int, hi: int, outcome: int = VALUES_EACH) -> TaskResult:
    """A result message with the values lo, lo+1, ..."""
    builder = ResultBuilder(0)
    bodies = [pickle.dumps(row) for row in range(lo, hi)]
    if outcome == VALUES_LIST:
        bodies = [pickle.dumps(list(range(lo, hi)))]
    elif outcome == CANCELLED:
        bodies = []
    elif outcome == STORED:
        bodies = [SIZE.pack(1_000 + row) for row in range(lo, hi)]
    builder.add(SpanResult(batch, lo, hi, outcome, 0, 0, u32(map(len, bodies)), b"".join(bodies)))
    return builder.build()


def resolved(effects: list[Any]) -> list[tuple[int, int, int]]:
    """(lo, hi, number of tokens) of what was resolved."""
    return [(e.span.lo, e.span.hi, len(e.tokens)) for e in effects if isinstance(e, ev.Resolve)]


def test_ids_come_from_one_counter() -> None:
    core = SessionCore()
    assert (core.take_ids(3), core.take_ids(1)) == (1, 4)


def test_tokens_get_the_ids_of_their_rows() -> None:
    session = Session()
    assert [token.id for token in session.submit(task(10, 3))] == [10, 11, 12]


def test_each_row_is_resolved_once() -> None:
    session = Session()
    session.submit(task(10, 4))
    assert resolved(session.hear(ended(10, 1, 3))) == [(1, 3, 2)]
    assert resolved(session.hear(ended(10, 1, 2))) == []
    assert outstanding(session) == 2
    assert resolved(session.hear(ended(10, 0, 1), ended(10, 3, 4))) == [(0, 1, 1), (3, 4, 1)]
    assert session.core.pending.by_id == {}


@pytest.mark.parametrize("left", [[], [1]])
def test_batches_that_have_ended_leave_no_numbers_among_what_is_given_back_to_the_system(left: list[int]) -> None:
    session = Session()
    before = objects_below(session.core.pending)
    for batch in range(1, 1_000):
        session.submit(task(batch, 1))
    for batch in range(1, 1_000):
        if batch not in left:
            session.hear(ended(batch, 0, 1))
    assert objects_below(session.core.pending) < before + 100
    assert list(session.core.pending.by_id) == left


def test_of_rows_said_twice_only_new_ones_are_resolved() -> None:
    for outcome in (VALUES_LIST, VALUES_EACH, CANCELLED):
        session = Session()
        session.submit(task(10, 6))
        session.hear(ended(10, 2, 3))
        session.anew()
        effects = session.hear(ended(10, 0, 6, outcome))
        assert resolved(effects) == [(0, 2, 2), (3, 6, 3)]
        if outcome == VALUES_LIST:
            assert [pickle.loads(e.span.body) for e in effects] == [[0, 1], [3, 4, 5]]
        elif outcome == VALUES_EACH:
            assert [[pickle.loads(v) for v in values_of(e.span)] for e in effects] == [[0, 1], [3, 4, 5]]
        assert session.core.pending.by_id == {}


def test_rows_of_a_list_that_is_none_end_with_an_error_and_no_others() -> None:
    session = Session()
    session.submit(task(10, 4))
    other = session.submit(task(20, 1))
    session.hear(ended(10, 2, 3))
    session.anew()
    broken = ended(10, 0, 4, VALUES_LIST)
    broken.bodies, broken.sizes = [b"garbage"], u32([7])
    effects = session.hear(broken)
    assert resolved(effects) == [(0, 1, 1), (1, 2, 1), (3, 4, 1)]
    assert {e.span.outcome for e in effects} == {ERROR}
    assert "a worker sent a list of results" in str(decode_error(effects[0].span.body))
    assert list(session.core.pending.by_id) == [other[0].id]


def test_a_scheduler_that_forgot_everything_is_told_again() -> None:
    session = Session()
    session.do(ev.Announce(1, b"function"))
    made = task(10, 2)
    session.submit(made)
    announced, said = session.anew()
    assert isinstance(announced, ObjectAnnounce)
    assert list(announced.ids) == [1]
    assert said is made


def test_it_is_told_too_of_objects_released_that_pending_rows_need() -> None:
    session = Session()
    session.do(ev.Announce(5, b"value"))
    session.submit(task(10, 1))
    session.do(ev.Release([5]))
    session.submit(task(11, 1))
    announced, _, _, released = session.anew()
    assert isinstance(announced, ObjectAnnounce)
    assert isinstance(released, ObjectRelease)
    assert list(announced.ids) == list(released.ids) == [5]
    session.hear(ended(10, 0, 1))
    assert len(session.anew()) == 1


def test_it_is_asked_again_for_what_was_not_answered() -> None:
    session = Session()
    (one,), (two,) = session.submit(task(10, 1)), session.submit(task(20, 1))
    session.do(ev.Cancel([one], True), ev.Claim(two))
    *_, cancel, claim = session.anew()
    assert (list(cancel.spans), cancel.force) == ([(0, 10, 0, 1)], True)
    assert list(claim) == [(0, 20, 0, 1)]
    session.hear(spans(TaskRunning, 0, (10, 0, 1)), TaskClaimResponse(Spans(), spans(Spans, 0, (20, 0, 1))))
    assert [type(message) for message in session.anew()] == [Task, Task]


def test_a_client_that_was_leaving_says_only_goodbye_to_a_new_scheduler() -> None:
    session = Session()
    session.submit(task(10, 1))
    session.do(ev.Request(DisconnectRequest()))
    assert [type(message) for message in session.anew()] == [DisconnectRequest]
    assert isinstance(session.hear(DisconnectResponse())[0], ev.RequestAnswered)


def test_a_cluster_that_is_to_end_is_told_so_by_the_next_scheduler_until_one_has_answered() -> None:
    session = Session()
    session.submit(task(10, 1))
    session.do(ev.Request(ClientShutdown()))
    assert [type(message) for message in session.anew()] == [Task, ClientShutdown]
    assert [type(message) for message in session.taken_over()][-1] is ClientShutdown
    assert isinstance(session.hear(ShutdownResponse(False, "protected"))[0], ev.RequestAnswered)
    assert [type(message) for message in session.anew()] == [Task]


def test_a_cluster_whose_end_nobody_waits_for_any_more_is_not_ended_by_the_next_scheduler() -> None:
    session = Session()
    session.do(ev.Request(ClientShutdown()))
    session.do(ev.ShutdownWithdrawn())
    assert [type(message) for message in session.anew()] == []


def test_a_cancellation_names_only_rows_that_have_not_ended() -> None:
    session = Session()
    tokens = session.submit(task(10, 4))
    session.hear(ended(10, 1, 2))
    (effect,) = session.do(ev.Cancel(tokens, False))
    assert isinstance(effect.message, TaskCancel)
    assert list(effect.message.spans) == [(0, 10, 0, 1), (0, 10, 2, 4)]
    assert session.do(ev.Cancel([Token()], False)) == []


def test_the_scheduler_can_see_to_others_between_parts_of_a_large_cancellation() -> None:
    session = Session()
    tokens = session.submit(task(10, 50_000))
    effects = session.do(ev.Cancel(tokens[::2], False))
    named = [list(effect.message.spans) for effect in effects]
    assert max(map(len, named)) <= 10_000
    assert [span for part in named for span in part] == [(0, 10, row, row + 1) for row in range(0, 50_000, 2)]


def test_cancelling_many_rows_one_by_one_looks_at_each_a_few_times() -> None:
    """As `asyncio.run` has them cancelled after Ctrl-C."""
    rows, looked = 4000, 0

    class Looking(Token):
        @property
        def id(self) -> int:
            nonlocal looked
            looked += 1
            return self._id

        @id.setter
        def id(self, value: int) -> None:
            self._id = value

    session = Session()
    tokens = [Looking() for _ in range(rows)]
    session.do(ev.Submit(task(10, rows), tokens))
    for token in tokens:
        session.do(ev.Cancel([token], False))
    assert looked < 20 * rows
    again = [message for message in session.anew() if isinstance(message, TaskCancel)]
    assert len(again) == rows  # none has been answered


def test_cancellations_of_rows_that_have_ended_are_forgotten_in_time() -> None:
    session, asked = Session(), UnansweredRequests()
    session.submit(task(5, 1))
    for batch in range(10, 5010):
        asked.add_cancel(ev.Cancel(session.submit(task(batch, 1)), False), session.core.pending)
        session.hear(ended(batch, 0, 1))
    assert len(asked.cancels) <= 1000


def test_a_refused_cancellation_is_said_to_the_tokens() -> None:
    session = Session()
    tokens = session.submit(task(10, 2))
    (effect,) = session.hear(spans(TaskRunning, 0, (10, 1, 2)))
    assert isinstance(effect, ev.CancelRefused)
    assert list(effect.tokens) == tokens[1:]


def one_by_one(session: Session, tokens: list[Token], streak: int = 0, now: float = 0.5) -> list[Any]:
    """Cancel these right after so many others; what is to be done about all of it."""
    return [effect for i, token in enumerate(tokens, streak) for effect in session.do(cancel(token, i), now=now)]


def cancel(token: Token, streak: int, force: bool = False) -> ev.Cancel:
    return ev.Cancel([token], force, streak)


def holds(effects: list[Any]) -> list[list[tuple[int, int, int, int]]]:
    """What was asked to be held back."""
    sent = [effect.message for effect in effects if isinstance(effect, ev.Transmit)]
    return [list(message) for message in sent if isinstance(message, TaskHold)]


def cancels(effects: list[Any]) -> list[tuple[int, int, int, int]]:
    """What the scheduler was asked to cancel."""
    sent = [effect.message for effect in effects if isinstance(effect, ev.Transmit)]
    return [span for message in sent if isinstance(message, TaskCancel) for span in message.spans]


def held(rows: int) -> tuple[Session, list[Token]]:
    """A session with a batch of which all rows but the first ones are held back."""
    session = Session()
    tokens = session.submit(task(10, rows))
    one_by_one(session, tokens[: FEW + 1])
    session.hear(spans(TaskHold, 0, (10, FEW + 1, min(rows, FEW + 1 + FEW * GROWTH))))
    return session, tokens


def test_after_a_few_cancellations_right_after_each_other_rows_near_are_to_be_held_back() -> None:
    session = Session()
    tokens = session.submit(task(10, 200))
    assert holds(one_by_one(session, tokens[:FEW])) == []
    assert holds(one_by_one(session, tokens[FEW : FEW + 1], FEW)) == [[(0, 10, FEW + 1, FEW + 1 + FEW * GROWTH)]]
    assert holds(one_by_one(session, tokens[FEW + 1 : FEW + 2], FEW)) == []  # it was asked for
    assert holds(one_by_one(session, tokens[150:151], FEW)) == [[(0, 10, 151, 200)]]
    assert holds(one_by_one(session, tokens[149:150], FEW)) == [[(0, 10, 149 - FEW * GROWTH, 149)]]  # it goes down


def test_rows_that_are_held_back_end_at_once_and_are_told_of_together() -> None:
    session, tokens = held(40)
    effects = one_by_one(session, tokens[10:20], FEW + 1)
    assert [type(effect) for effect in effects] == [ev.Resolve] * 10
    assert {(e.span.outcome, *e.tokens) for e in effects} == {(CANCELLED, token) for token in tokens[10:20]}
    assert session.do(now=0.5 + LINGER / 2) == []
    effects = session.do(now=0.5 + LINGER)
    assert [type(effect.message) for effect in effects if not isinstance(effect.message, Heartbeat)] == [
        TaskCancel,
        TaskHold,
    ]
    assert (cancels(effects), holds(effects)) == ([(0, 10, 10, 20)], [[]])
    assert session.hear(ended(10, 10, 20, CANCELLED)) == []  # the scheduler says so, too
    assert cancels(one_by_one(session, tokens[30:31], FEW)) == [(0, 10, 30, 31)]  # it may have begun


def test_rows_that_have_ended_here_are_cancelled_before_what_they_needed_is_said_to_be_lost() -> None:
    session, tokens = held(40)
    session.hear(ObjectRequest(u32([0]), u64([5])))
    one_by_one(session, tokens[10:20], FEW + 1)
    effects = session.do(ev.Announce(5, b"lost", failed=True))
    assert [type(effect.message) for effect in effects] == [TaskCancel, ObjectAnnounce]
    assert cancels(effects) == [(0, 10, 10, 20)]
    assert [type(effect) for effect in one_by_one(session, tokens[20:21], FEW)] == [ev.Resolve]  # still held


def test_a_row_that_was_not_held_back_is_asked_for() -> None:
    session = Session()
    tokens = session.submit(task(10, 20))
    one_by_one(session, tokens[: FEW + 1])
    session.hear(spans(TaskHold, 0, (10, 15, 20)))
    assert cancels(one_by_one(session, tokens[14:16], FEW)) == [(0, 10, 14, 15)]


def test_what_is_held_back_goes_on_when_something_is_submitted_or_said_goodbye() -> None:
    for event in (ev.Submit(task(100, 1), [Token()]), ev.Request(DisconnectRequest())):
        session, tokens = held(40)
        one_by_one(session, tokens[10:20], FEW + 1)
        effects = session.do(event)
        assert (cancels(effects), holds(effects)) == ([(0, 10, 10, 20)], [[]])
        assert session.core.holding.due == math.inf


def test_an_answer_that_comes_after_rows_were_let_go_is_none() -> None:
    session = Session()
    tokens = session.submit(task(10, 40))
    one_by_one(session, tokens[: FEW + 1])
    session.submit(task(100, 1))
    session.hear(spans(TaskHold, 0, (10, FEW + 1, 40)))
    assert cancels(one_by_one(session, tokens[20:21])) == [(0, 10, 20, 21)]
    (wanted,) = holds(one_by_one(session, tokens[21:22], 2 * FEW))  # the first time was in vain
    session.hear(spans(TaskHold, 0, *(span[1:] for span in wanted)))
    assert cancels(one_by_one(session, tokens[22:23], FEW)) == []


@pytest.mark.parametrize("here", [True, False])
def test_rows_that_were_cancelled_do_not_begin_at_a_scheduler_that_has_given_the_client_up(here: bool) -> None:
    """Found by seed 27500276 of the simulator's mix `one by one`."""
    session, tokens = held(40)
    if here:
        one_by_one(session, tokens[10:20], FEW + 1)
    else:
        session.hear(ended(10, 10, 20, CANCELLED))
    session.hear(ended(10, 0, FEW + 1, CANCELLED), ended(10, 30, 31))
    said = session.anew()
    assert [type(message) for message in said] == [TaskHold, Task, TaskCancel, TaskHold]
    assert [list(message) for message in said if isinstance(message, TaskHold)] == [[(0, 10, 10, 20)], []]
    assert cancels([*map(ev.Transmit, said)]) == [(0, 10, 10, 20), (0, 10, 0, FEW + 1)]
    session.hear(TaskHold(), ended(10, 10, 20, CANCELLED))
    one_by_one(session, tokens[20:21], FEW)  # the next answer counts
    session.hear(spans(TaskHold, 0, (10, 21, 30)))
    assert cancels(one_by_one(session, tokens[21:22], FEW)) == []


@pytest.mark.parametrize("anew", [Session.anew, Session.taken_over])
def test_another_scheduler_holds_nothing_back_and_hears_what_has_ended(
    anew: Callable[[Session], list[Message]],
) -> None:
    session, tokens = held(40)
    one_by_one(session, tokens[10:20], FEW + 1)
    said = anew(session)
    assert [list(message.ended) for message in said if isinstance(message, Task)] == [[10, 20]]
    assert cancels(one_by_one(session, tokens[20:21], 1)) == [(0, 10, 20, 21)]


def test_whoever_cancels_slowly_holds_nothing_back_for_long() -> None:
    session, tokens = held(400)
    now = 0.5
    for i, token in enumerate(tokens[10:60]):
        if session.core.holding.due == math.inf:
            break
        now += LINGER / 2
        session.do(cancel(token, FEW + 1 + i), now=now)
    assert now < 0.5 + 2 * FIRST_TAKE


def test_cancelling_some_now_and_then_is_no_reason_to_hold_rows_back() -> None:
    session = Session()
    tokens = session.submit(task(10, 1000))
    asked = 0
    for at in range(0, 1000, 10):
        said = holds(one_by_one(session, tokens[at : at + 6], now=at))
        asked += len(said)
        if said:
            session.hear(TaskHold())
        session.do(now=at + 1.0)
    assert asked == 1


def test_a_scheduler_that_holds_back_what_nobody_has_named_is_refused() -> None:
    session = Session()
    tokens = session.submit(task(10, 4000))
    with pytest.raises(ProtocolError, match="nobody has asked"):
        session.hear(TaskHold())
    one_by_one(session, tokens[: FEW + 1])
    with pytest.raises(ProtocolError, match="rows 100 to 4000000000 of batch 10, which were not all named"):
        session.hear(spans(TaskHold, 0, (10, 100, 4_000_000_000)))


def test_all_rows_of_a_batch_can_end_while_they_are_held_back() -> None:
    session = Session()
    tokens = session.submit(task(10, 20))
    one_by_one(session, tokens[: FEW + 1])
    session.hear(ended(10, 0, FEW + 1, CANCELLED), spans(TaskHold, 0, (10, FEW + 1, 20)))
    assert resolved(one_by_one(session, tokens[FEW + 1 :], FEW + 1))[-1] == (19, 20, 1)
    assert session.core.pending.by_id == {}
    assert cancels(session.do(now=1.0)) == [(0, 10, FEW + 1, 20)]


def test_a_claim_of_a_map_asks_for_half_of_what_is_left() -> None:
    session = Session()
    token = Token()
    session.do(ev.Submit(task(10, 8, TOGETHER), [token], whole=True))
    session.hear(ended(10, 0, 4))
    (effect,) = session.do(ev.Claim(token))
    assert isinstance(effect.message, TaskClaim)
    assert list(effect.message) == [(0, 10, 6, 8)]


@pytest.mark.parametrize(("below", "is_claimed"), [(2, False), (3, False), (4, True)])
def test_rows_as_deep_as_one_that_has_ended_a_worker_are_not_claimed(below: int, is_claimed: bool) -> None:
    session = Session()
    (token,) = session.submit(dataclasses.replace(task(10, 1), nesting=3))
    (effect,) = session.do(ev.Claim(token, below=below))
    assert isinstance(effect, ev.Transmit if is_claimed else ev.ClaimRefused)


def test_a_grant_that_names_rows_twice_ends_their_batch_once() -> None:
    session = Session()
    session.submit(task(10, 3))
    effects = session.hear(TaskClaimResponse(spans(Spans, 0, (10, 0, 3), (10, 0, 3)), Spans()))
    assert [effect.row for effect in effects] == [0, 1, 2]
    assert session.core.pending.by_id == {}


def test_granted_rows_are_the_claimers_and_refused_ones_are_said_so() -> None:
    session = Session()
    tokens = session.submit(task(10, 2), template="template")
    answer = TaskClaimResponse(spans(Spans, 0, (10, 0, 1)), spans(Spans, 0, (10, 1, 2)))
    granted, refused = session.hear(answer)
    assert isinstance(granted, ev.ClaimGranted)
    assert (granted.token, granted.row, granted.template) == (tokens[0], 0, "template")
    assert isinstance(refused, ev.ClaimRefused)
    assert list(refused.tokens) == [tokens[1]]
    assert outstanding(session) == 1


def test_a_claim_of_a_row_that_ended_meanwhile_is_refused_here() -> None:
    (effect,) = Session().do(ev.Claim(Token()))
    assert isinstance(effect, ev.ClaimRefused)


@pytest.mark.parametrize(
    "options",
    [{"retries": 1}, {"timeout": 1.0}, {"capabilities": ("gpu",)}, {"threads": 2}, {"flags": FRESH}, {"form": GRAPH}],
)
def test_rows_that_a_waiting_task_could_not_run_as_they_were_submitted_are_not_claimed(options: dict[str, Any]) -> None:
    session = Session()
    (token,) = session.submit(dataclasses.replace(task(10, 1), **options))
    (effect,) = session.do(ev.Claim(token))
    assert isinstance(effect, ev.ClaimRefused)


def test_a_value_is_found_by_the_id_that_its_user_was_sent_with() -> None:
    session = Session()
    (source,) = session.submit(task(10, 1))
    session.submit(task(20, 1, dependency_counts=u32([1]), dependencies=u64([10])), needs=[[source]])
    source.id = 30  # it was claimed, and sent again
    assert session.core.pending.need(10) is source
    assert session.core.pending.need(11) is None


class Looked(list[int]):
    """Ids that are counted as often as they are looked through."""

    looks = 0

    def __contains__(self, value: object) -> bool:
        Looked.looks += 1
        return super().__contains__(value)

    def __iter__(self) -> Iterator[int]:
        Looked.looks += 1
        return super().__iter__()


def test_batches_are_not_looked_through_for_each_value_that_a_scheduler_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Looked, "looks", 0)
    session = Session()
    sources = session.submit(task(10, 200))
    for source in sources:
        needing = task(1_000 + source.id, 1, dependency_counts=u32([1]))
        needing.dependencies = Looked([source.id])  # type: ignore[assignment]
        session.submit(needing, needs=[[source]])
    for source in sources:
        assert session.core.pending.need(source.id) is source
    assert Looked.looks <= 2 * len(sources)


def test_a_value_is_known_until_the_last_batch_has_ended_that_needs_it() -> None:
    session = Session()
    source, other = session.submit(task(10, 2))
    for batch in (20, 30, 40):
        if batch == 40:
            assert session.core.pending.need(10) is source  # of those that have come so far
        needing = task(batch, 2, dependency_counts=u32([2, 1]), dependencies=u64([10, 11, 10]))
        session.submit(needing, needs=[[source, other], [source]])
    for batch in (30, 20, 40):
        assert (session.core.pending.need(10), session.core.pending.need(11)) == (source, other)
        session.hear(ended(batch, 0, 2))
    assert (session.core.pending.need(10), session.core.pending.need(11)) == (None, None)


def test_what_a_graph_needs_is_known_until_it_has_ended() -> None:
    session = Session()
    outside = Token()
    wanted, group = Token(), ev.BatchGroup(1, keep={5: outside})
    session.do(
        ev.Submit(graph(10, [[]], []), [None], group=group), ev.Submit(graph(20, [[5]], [0]), [wanted], group=group)
    )
    assert session.core.pending.need(5) is outside
    session.hear(ended(20, 0, 1))
    assert session.core.pending.need(5) is None


@pytest.mark.parametrize("made", [task(10, 3), graph(10, [[], [0], [1]], [0, 1, 2])], ids=["calls", "graph"])
def test_who_wanted_a_row_that_has_ended_may_let_go_while_the_batch_goes_on(made: Task) -> None:
    session = Session()
    tokens = session.submit(made)
    first, second = map(weakref.ref, tokens[:2])
    assert resolved(session.hear(ended(10, 0, 1, STORED))) == [(0, 1, 1)]
    tokens[0] = Token()
    assert first() is None
    assert second() is not None
    assert session.core.pending.tokens() == tokens[1:]
    session.anew()
    assert resolved(session.hear(ended(10, 0, 2))) == [(1, 2, 1)]
    assert resolved(session.hear(ended(10, 2, 3))) == [(2, 3, 1)]
    assert session.core.pending.by_id == {}


def test_nothing_is_known_of_values_of_batches_that_were_cleared() -> None:
    session = Session()
    (source,) = session.submit(task(10, 1))
    session.submit(task(20, 1, dependency_counts=u32([1]), dependencies=u64([10])), needs=[[source]])
    assert session.core.pending.need(10) is source
    session.do(ev.Request(ClientClear()))
    assert session.core.pending.need(10) is None


def test_questions_are_not_looked_through_for_each_one_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_table, "_MOST_REQUESTED", 10)
    objects = object_table.ObjectTable()
    tables = [objects._requested]
    for value in range(200):
        objects.request(value)
        if objects._requested is not tables[-1]:
            tables.append(objects._requested)
    assert len(tables) < 10
    assert all(objects.is_requested(value) for value in range(200))
    for value in range(200):
        objects.answer(value)
    for value in range(1_000, 2_000):
        objects.request(value)
        objects.answer(value)
    assert objects.is_requested(1) is None
    assert len(objects._requested) < 600


def test_a_value_asked_for_is_sent_once_and_is_not_an_object_of_the_clients() -> None:
    session = Session()
    (effect,) = session.hear(ObjectRequest(u32([0]), u64([10])))
    assert isinstance(effect, ev.ProvideObject)
    assert len(session.do(ev.Announce(10, b"value"))) == 1
    assert session.do(ev.Announce(10, b"value")) == []
    assert session.anew() == []


def test_an_answer_that_a_scheduler_asked_for_that_is_gone_is_not_sent() -> None:
    session = Session()
    session.hear(ObjectRequest(u32([0]), u64([10])))
    session.anew()
    assert session.do(ev.Announce(10, b"value")) == []


def test_batches_of_a_graph_end_together_and_a_failed_one_takes_its_rest_along() -> None:
    session = Session()
    group = ev.BatchGroup(2)
    for batch in (10, 20):
        session.do(ev.Submit(graph(batch, [[], [0]], [1]), [None, Token()], group=group))
    session.hear(ended(10, 1, 2))
    assert len(session.core.pending.by_id) == 2
    effects = session.hear(ended(20, 1, 2, ERROR))
    cancel = effects[-1].message
    assert isinstance(cancel, TaskCancel)
    assert [span[1] for span in cancel.spans] == [10, 20]
    assert session.core.pending.by_id == {}


def test_heartbeats_are_sent_at_the_pace_that_was_asked_for() -> None:
    session = Session()
    assert [type(e.message) for e in session.do(now=1.5)] == [Heartbeat]
    assert session.do(now=2.0) == []
    assert [type(e.message) for e in session.do(now=2.6)] == [Heartbeat]


def stored(session: Session, object_id: int, source: Any = "source") -> ev.Announce:
    """An object that was written just now."""
    return ev.Announce(
        object_id, PLACE.pack(200_000, 7), stored=True, source=source, generation=session.core.generation
    )


def messages(effects: list[Any]) -> list[Message]:
    """What is sent."""
    return [effect.message for effect in effects if isinstance(effect, ev.Transmit)]


def test_a_stored_object_is_announced_with_its_place() -> None:
    session = Session()
    (announced,) = messages(session.do(stored(session, 5)))
    assert isinstance(announced, ObjectAnnounce)
    assert (list(announced.ids), list(announced.kinds)) == ([5], [STORED_OBJECT])
    assert PLACE.unpack(announced.bodies[0]) == (200_000, 7)
    assert session.core.objects.source_of(5) == "source"
    assert session.core.objects.payload_of(5) is None
    session.do(ev.Release([5]))
    assert session.core.objects.source_of(5) is None


def test_a_new_scheduler_is_told_nothing_before_the_stored_objects_are_written_again() -> None:
    session = Session()
    session.do(ev.Announce(1, b"function"), stored(session, 5, "five"))
    session.submit(task(10, 1))
    session.do(stored(session, 6, "six"))
    session.submit(task(11, 1))
    session.do(ev.Release([6]))  # pending rows may need it
    renewed, restore = session.do(ev.Welcomed(False, 1.0, 2))
    assert isinstance(renewed, ev.StoresRenewed)
    assert isinstance(restore, ev.RestoreObjects)
    assert [announce.source for announce in restore.objects] == ["five", "six"]
    session.submit(task(12, 1))
    session.do(ev.Announce(7, b"seven"))
    assert messages(session.do(ev.Cancel([Token()], False), ev.Release([1]))) == []
    assert session.do(ev.Restored(5, stored(session, 5))) == []
    announced, *tasks, released = messages(session.do(ev.Restored(6, stored(session, 6))))
    assert isinstance(announced, ObjectAnnounce)
    assert dict(zip(announced.ids, announced.kinds, strict=True)) == {
        5: STORED_OBJECT, 7: INLINE, 6: STORED_OBJECT, 1: INLINE,
    }  # fmt: skip
    assert [made.batch for made in tasks if isinstance(made, Task)] == [10, 11, 12]
    assert isinstance(released, ObjectRelease)
    assert list(released.ids) == [6, 1]
    assert len(messages(session.do(ev.Announce(8, b"eight")))) == 1


def test_an_object_that_cannot_be_written_again_is_left_out() -> None:
    session = Session()
    session.do(stored(session, 5))
    session.submit(task(10, 1))
    session.do(ev.Welcomed(False, 1.0, 2))
    assert [type(message) for message in messages(session.do(ev.Restored(5, None)))] == [Task]
    assert session.core.objects.source_of(5) == "source"  # says why, if it is asked for
    _, restore = session.do(ev.Welcomed(False, 1.0, 2))
    assert isinstance(restore, ev.RestoreObjects)
    assert len(restore.objects) == 1


def test_an_object_that_was_written_for_a_scheduler_that_is_gone_is_written_again() -> None:
    session = Session()
    old = stored(session, 5)
    session.anew()
    (effect,) = session.do(old)
    assert isinstance(effect, ev.RestoreObjects)
    session.submit(task(10, 1))
    session.do(ev.Welcomed(False, 1.0, 2))
    (again,) = session.do(ev.Restored(5, old))
    assert isinstance(again, ev.RestoreObjects)
    assert [type(m) for m in messages(session.do(ev.Restored(5, stored(session, 5))))] == [ObjectAnnounce, Task]


def forgotten(session: Session, object_id: int, clear: bool) -> None:
    """Nothing refers to an object any more, nor can need it."""
    session.do(ev.Request(ClientClear()) if clear else ev.Release([object_id]))


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("others", [0, 1])
def test_an_object_that_is_let_go_while_it_is_written_again_is_told_of_to_be_released(clear: bool, others: int) -> None:
    session = Session()
    session.do(*(stored(session, 5 + other) for other in range(1 + others)))
    session.do(ev.Welcomed(False, 1.0, 2))
    forgotten(session, 5, clear)
    announced, released = messages(session.do(ev.Restored(5, stored(session, 5))))
    assert isinstance(announced, ObjectAnnounce)
    assert isinstance(released, ObjectRelease)
    assert list(announced.ids) == list(released.ids) == [5]
    assert session.core.objects.source_of(5) is None
    assert 5 not in {announce.id for announce in session.core.objects.known()}


def test_nor_is_one_kept_whose_rows_end_while_it_is_written_again() -> None:
    session = Session()
    session.do(stored(session, 5))
    session.submit(task(10, 1))
    session.do(ev.Welcomed(False, 1.0, 2), ev.Release([5]))
    session.hear(ended(10, 0, 1))
    told = messages(session.do(ev.Restored(5, stored(session, 5))))
    assert [type(message) for message in told] == [ObjectAnnounce, ObjectRelease]
    assert session.core.objects.known() == []


@pytest.mark.parametrize("clear", [False, True])
def test_nothing_is_told_of_an_object_that_is_let_go_and_was_not_written_again(clear: bool) -> None:
    session = Session()
    old = stored(session, 5)
    session.do(old)
    session.do(ev.Welcomed(False, 1.0, 2))
    forgotten(session, 5, clear)
    assert session.do(ev.Restored(5, None)) == []
    session.do(ev.Welcomed(False, 1.0, 2))
    assert session.do(ev.Restored(5, old)) == []  # with the stores of a scheduler that is gone


def test_a_client_that_clears_what_it_writes_again_has_told_all_to_a_scheduler_that_took_over() -> None:
    session = Session()
    session.do(stored(session, 5))
    session.submit(task(10, 1))
    session.do(ev.Welcomed(False, 1.0, 2))
    assert session.taken_over() == []  # of what the last scheduler was not told yet
    effects = session.do(ev.Request(ClientClear()))
    returned, _ = messages(effects)
    assert isinstance(returned, ClientReturn)
    assert list(returned.ids) == []
    assert [type(message) for message in messages(effects)] == [ClientReturn, ClientClear]
    assert ev.StoresRenewed(kept=True) in effects
    made = task(11, 1)
    assert messages(session.do(ev.Submit(made, [Token()]))) == [made]
    assert [type(message) for message in messages(session.do(ev.Request(ClientClear())))] == [ClientClear]


def test_what_a_scheduler_asked_for_is_written_for_that_one() -> None:
    session = Session()
    session.hear(ObjectRequest(u32([0]), u64([10])))
    late = stored(session, 10)
    session.anew()
    session.hear(ObjectRequest(u32([0]), u64([10])))
    (effect,) = session.do(late)
    assert isinstance(effect, ev.ProvideObject)
    assert len(messages(session.do(stored(session, 10)))) == 1


def test_stored_results_are_resolved_with_their_sizes_and_released_by_id() -> None:
    session = Session()
    session.submit(task(10, 3))
    (effect,) = session.hear(ended(10, 0, 2, STORED))
    assert isinstance(effect, ev.Resolve)
    assert (effect.span.outcome, [SIZE.unpack(v) for v in values_of(effect.span)]) == (STORED, [(1000,), (1001,)])
    (released,) = messages(session.do(ev.Release([10])))
    assert isinstance(released, ObjectRelease)
    assert list(released.ids) == [10]


def test_values_that_are_stored_once_more_and_that_nobody_holds_are_released() -> None:
    session = Session()
    session.submit(task(10, 4))
    session.hear(ended(10, 0, 2, STORED), ended(10, 2, 3))
    session.do(ev.Release([10]))
    session.anew()
    released, resolve = session.hear(ended(10, 0, 4, STORED))
    assert isinstance(released, ev.Transmit)
    assert isinstance(released.message, ObjectRelease)
    assert list(released.message.ids) == [10, 12]  # 11 is held, 13 has just come
    assert isinstance(resolve, ev.Resolve)
    assert (resolve.span.lo, resolve.span.hi) == (3, 4)


def said_again(told: list[Message]) -> list[tuple[int, list[int]]]:
    """(batch, bounds of the rows that have ended) of the batches that a scheduler is told of."""
    return [(message.batch, list(message.ended)) for message in told if isinstance(message, Task)]


def test_a_batch_that_has_ended_is_said_again_as_long_as_a_stored_value_of_it_is_referred_to() -> None:
    session = Session()
    session.submit(task(10, 3))
    session.submit(task(20, 1))
    session.submit(task(30, 1))
    session.hear(ended(20, 0, 1), ended(10, 0, 2, STORED), ended(10, 2, 3))
    session.do(ev.Release([10]))
    assert said_again(session.taken_over()) == [(10, [0, 3]), (30, [])]  # of 20 the value itself is here
    assert said_again(session.anew()) == [(30, [])]  # whose number is new can't ask for what had the old one
    session.hear(ended(30, 0, 1, STORED))
    session.do(ev.Release([30]))
    assert said_again(session.taken_over()) == []
    assert not session.core.lineage.kept


def test_so_are_batches_that_made_what_it_needed_though_their_values_are_let_go() -> None:
    session = Session()
    session.do(ev.Announce(1, b"function"), ev.Announce(2, b"argument"))
    session.submit(task(10, 1))
    session.hear(ended(10, 0, 1, STORED))
    made, small = Token(), Token()
    needing = task(20, 1, dependencies=u64([10, 5, 2]), dependency_counts=u32([3]))
    session.submit(needing, needs=[[made, small, Token()]])
    session.hear(ended(20, 0, 1, STORED))
    session.do(ev.Release([10, 2]))
    announced, *told, released, _ = session.taken_over()
    assert isinstance(announced, ObjectAnnounce)
    assert list(announced.ids) == [1, 2]
    assert said_again(told) == [(10, [0, 1]), (20, [0, 1])]
    assert isinstance(released, ObjectRelease)
    assert list(released.ids) == [2]  # it is kept by the batch alone
    assert session.core.lineage.need(5) is small
    assert session.core.lineage.need(10) is None
    session.do(ev.Release([20]))
    assert not session.core.lineage.kept
    assert session.core.lineage.need(5) is None
    session.submit(task(40, 1))
    session.hear(ended(40, 0, 1))
    assert list(session.core.objects.kept) == []


def test_a_small_value_that_two_kept_batches_needed_is_known_until_both_are_let_go() -> None:
    session = Session()
    small = Token()
    for batch in (10, 20):
        session.submit(task(batch, 1, dependencies=u64([5]), dependency_counts=u32([1])), needs=[[small]])
        session.hear(ended(batch, 0, 1, STORED))
    session.do(ev.Release([10]))
    assert session.core.lineage.need(5) is small
    session.do(ev.Release([20]))
    assert session.core.lineage.need(5) is None


def test_no_more_of_what_has_ended_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MOST_BYTES", 5 * lineage.OVERHEAD)
    session = Session()
    for batch in range(10, 100, 10):
        session.submit(task(batch, 1))
        session.hear(ended(batch, 0, 1, STORED))
    assert list(session.core.lineage.kept) == [60, 70, 80, 90]
    session.do(ev.Release(list(range(10, 100, 10))))
    assert not session.core.lineage.kept
    assert not session.core.lineage.is_of_interest


def test_a_client_that_runs_on_does_not_grow_with_what_it_has_asked_for() -> None:
    session = Session()
    for batch in range(10, 20_000, 2):
        session.submit(task(batch, 1))
        session.hear(ended(batch, 0, 1))
    assert objects_below(session.core) < 5_000


def test_nor_with_stored_values_that_it_has_let_go_while_it_holds_an_older_one() -> None:
    session = Session()
    session.submit(task(10, 1))
    session.hear(ended(10, 0, 1, STORED))
    for batch in range(20, 20_000, 2):
        session.submit(task(batch, 1))
        session.hear(ended(batch, 0, 1, STORED))
        session.do(ev.Release([batch]))
    assert list(session.core.lineage.kept) == [10]
    assert session.core.lineage.oldest == 0
    assert objects_below(session.core) < 10_000


def test_rows_whose_values_are_stored_are_added_to_one_list_of_few_spans() -> None:
    session = Session()
    session.submit(task(10, 9))
    pending = session.core.pending.by_id[10]
    session.hear(ended(10, 0, 1, STORED))
    noted = pending.stored
    session.hear(*(ended(10, row, row + 1, STORED) for row in (1, 2, 3, 5, 7)))
    assert pending.stored is noted
    assert noted == [(0, 4), (5, 6), (7, 8)]


def announce_and_let_go(session: Session, times: int) -> None:
    """One object after the other is sent, needed by a row, and released."""
    for number in range(times):
        object_id, batch = 1_000 + 10 * number, 1_005 + 10 * number
        session.do(ev.Announce(object_id, b"argument"))
        session.submit(task(batch, 1, dependencies=u64([object_id]), dependency_counts=u32([1])))
        session.hear(ended(batch, 0, 1))
        session.do(ev.Release([object_id]))


def test_nor_with_objects_that_it_has_released_while_an_older_row_runs_on() -> None:
    session = Session()
    session.do(ev.Announce(1, b"function"), ev.Announce(2, b"argument"))
    session.submit(task(10, 1, dependencies=u64([2]), dependency_counts=u32([1])))
    session.do(ev.Release([1, 2]))
    announce_and_let_go(session, 1_000)
    assert list(session.core.objects.released)[:2] == [1, 2]
    assert len(session.core.objects.released) < 50
    session.hear(ended(10, 0, 1))
    assert not session.core.objects.released


def test_nor_with_those_it_has_released_while_it_holds_an_older_stored_value() -> None:
    session = Session()
    session.do(ev.Announce(1, b"function"), ev.Announce(2, b"argument"))
    session.submit(task(10, 1, dependencies=u64([2]), dependency_counts=u32([1])))
    session.hear(ended(10, 0, 1, STORED))
    session.do(ev.Release([1, 2]))
    announce_and_let_go(session, 1_000)
    assert list(session.core.objects.kept)[:2] == [1, 2]
    assert len(session.core.objects.kept) < 50
    session.do(ev.Release([10]))
    session.submit(task(20_000, 1))
    session.hear(ended(20_000, 0, 1))
    assert not session.core.objects.kept


def test_the_oldest_of_many_is_found_without_a_look_at_those_that_were_before_it() -> None:
    """A plain dict passes the entries that were removed, each time anew: that is nothing a test could count."""
    session = Session()
    session.submit(task(10, 1))
    announce_and_let_go(session, 100)
    objects = session.core.objects
    for table in (session.core.pending.by_id, session.core.lineage.kept, objects.released, objects.kept):
        assert type(table) is OrderedDict


@pytest.mark.parametrize("force", [False, True])
def test_what_a_cancelled_row_of_a_graph_needs_is_cancelled_as_it_was(force: bool) -> None:
    session = Session()
    tokens = [None, Token()]
    session.do(ev.Submit(graph(10, [[], [0]], [1]), tokens, group=ev.BatchGroup(1)))
    session.do(ev.Cancel([tokens[1]], force))
    effects = session.hear(ended(10, 1, 2, CANCELLED))
    (message,) = [effect.message for effect in effects if isinstance(effect, ev.Transmit)]
    assert isinstance(message, TaskCancel)
    assert (list(message.spans), message.force) == ([(0, 10, 0, 2)], force)


def test_stored_results_are_no_failures_of_a_graph() -> None:
    session = Session()
    group = ev.BatchGroup(1)
    session.do(ev.Submit(graph(10, [[], [0]], [1]), [None, Token()], group=group))
    assert messages(session.hear(ended(10, 1, 2, STORED))) == []
    assert session.core.pending.by_id == {}


@pytest.mark.parametrize("outcome", [VALUES_EACH, VALUES_LIST, STORED, CANCELLED])
def test_a_row_that_nobody_wants_does_not_end_for_its_client(outcome: int) -> None:
    session = Session()
    session.do(ev.Submit(graph(10, [[], [0]], [1]), [None, Token()], group=ev.BatchGroup(1)))
    with pytest.raises(ProtocolError, match="batch 10 were not all asked for"):
        session.hear(ended(10, 0, 2, outcome))
    with pytest.raises(ProtocolError, match="batch 10 were not all asked for"):
        session.hear(TaskClaimResponse(spans(Spans, 0, (10, 0, 1)), Spans()))
    assert not any(session.core.pending.by_id[10].done)


def test_questions_about_stores_are_passed_on_both_ways() -> None:
    session = Session()
    (asked,) = messages(session.do(ev.Request(StoreRequest())))
    assert asked == StoreRequest()
    offers, answer = StoreOffers(u32([1]), ("",), ("",), ("",)), ObjectResponse(u32([0]), u64([5]))
    assert session.hear(offers, answer) == [ev.StoreAnswered(offers), ev.StoreAnswered(answer)]
