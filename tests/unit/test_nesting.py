"""What a task does that waits for tasks of its own: what it asks for, runs, and leaves to others."""

from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from simulator.scripted import task

from scaler.client.core import events as ev
from scaler.client.core.session import SessionCore
from scaler.client.waiting import nesting
from scaler.client.waiting.claims import Claims
from scaler.client.waiting.nesting import NestedWaits
from scaler.protocol.messages import TOGETHER, VALUES_EACH, Spans, TaskClaim, TaskClaimResponse, u32, u64
from scaler.protocol.results import SpanResult
from scaler.worker import context
from scaler.worker.context import TaskContext
from scaler.worker_protocol.messages import Blocked, FromWorker, Unblocked


class Template:
    """What the shell knows of a function."""


TEMPLATE = Template()


class Token:
    """Stands for rows; of a map there is one for all."""

    def __init__(self, rows: int = 1) -> None:
        self.id = 0
        self.left = rows

    def has_ended(self) -> bool:
        return self.left == 0


class Waiter:
    """A task in its worker, the client that it waits by, and a cluster that grants all, or refuses."""

    def __init__(self) -> None:
        self.session = SessionCore()
        self.claims = Claims()
        #: what was asked for: the (batch, lo, hi) of each question
        self.questions: list[list[tuple[int, int, int]]] = []
        self.said: list[FromWorker] = []
        self.ran: list[int] = []
        self.resubmitted: list[int] = []
        #: microseconds that a row takes, and rows that others have begun
        self.takes: dict[int, int] = {}
        self.begun: set[int] = set()
        self.during: dict[int, Any] = {}
        context.install(lambda: TaskContext(1, 7, "outer"), lambda: 0, self.said.append, lambda: None)
        self.waits = NestedWaits(
            SimpleNamespace(session=self.session, tell=self._tell),  # type: ignore[arg-type]
            SimpleNamespace(failure=None),  # type: ignore[arg-type]
            self.claims,
            SimpleNamespace(run=self._run, resubmit=self._resubmit),  # type: ignore[arg-type]
            SimpleNamespace(begin_here=lambda token: None, resolve=self._resolve, end_here=lambda token: None),  # type: ignore[arg-type]
            SimpleNamespace(step_aside=lambda: None),  # type: ignore[arg-type]
            SimpleNamespace(watch_for_answer=self._watch, watch_while_waiting=self._watch, recover=lambda: None),  # type: ignore[arg-type]
        )

    def submit(self, batch: int, rows: int = 1, whole: bool = False, needs: Any = ()) -> list[Token]:
        tokens = [Token(rows)] if whole else [Token() for _ in range(rows)]
        form = {"form": TOGETHER} if whole else {}
        if needs:
            form |= {"dependency_counts": u32([1]), "dependencies": u64([needs[0][0].id])}
        self.session.handle([ev.Submit(task(batch, rows, **form), tokens, whole, needs=needs, template=TEMPLATE)], 0.0)
        return tokens

    def wait(self, token: Token) -> None:
        self.waits.wait(token, token.has_ended, None)

    def _tell(self, event: ev.Claim) -> None:
        for effect in self.session.handle([event], 0.0):
            if isinstance(effect, ev.ClaimRefused):
                self.claims.refuse(effect.tokens)
                continue
            assert isinstance(effect, ev.Transmit)
            assert isinstance(effect.message, TaskClaim)
            self.questions.append([(batch, lo, hi) for _, batch, lo, hi in effect.message])
            granted, refused = Spans(), Spans()
            for _, batch, lo, hi in effect.message:
                for row in range(lo, hi):
                    (refused if batch + row in self.begun else granted).add(0, batch, row, row + 1)
            for answer in self.session.handle([ev.Arrived(TaskClaimResponse(granted, refused))], 0.0):
                if isinstance(answer, ev.ClaimGranted):
                    assert self.claims.grant(answer)
                elif isinstance(answer, ev.ClaimRefused):
                    self.claims.refuse(answer.tokens)

    def _run(self, claimed: ev.ClaimGranted, outer: TaskContext) -> SpanResult:
        row = claimed.task.batch + claimed.row
        for need in claimed.needs:
            if not need.has_ended():
                self.wait(need)
        self.during.pop(row, lambda: None)()
        self.ran.append(row)
        return SpanResult(
            claimed.task.batch, claimed.row, claimed.row + 1, VALUES_EACH, self.takes.get(row, 10), 0, u32([1]), b"v"
        )

    def _resolve(self, tokens: list[Token], *_: object) -> None:
        tokens[0].left -= 1

    def _resubmit(self, claimed: ev.ClaimGranted) -> None:
        self.resubmitted.append(claimed.task.batch + claimed.row)

    def _watch(self, is_over: Any, seconds: float) -> None:
        """What others have begun ends."""
        for claim in self.claims.by_token.values():
            if claim.token.id in self.begun:
                claim.token.left = 0
                claim.changed.open()


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    yield Waiter()
    context.uninstall()


def test_the_first_question_is_for_what_is_waited_for_the_next_for_as_much_as_is_short(waiter: Waiter) -> None:
    tokens = waiter.submit(10) + waiter.submit(20, 3) + waiter.submit(30, 2)
    for token in tokens:
        if not token.has_ended():
            waiter.wait(token)
    assert waiter.questions == [[(10, 0, 1)], [(20, 0, 3), (30, 0, 2)]]
    assert waiter.ran == [10, 20, 21, 22, 30, 31]
    assert waiter.said == []


def test_rows_of_a_map_are_asked_for_by_halves_until_they_are_known_to_be_short(waiter: Waiter) -> None:
    first, second = waiter.submit(10, 20, whole=True) + waiter.submit(40, 20, whole=True)
    waiter.wait(first)
    assert waiter.questions == [[(10, 10, 20)], [(10, 0, 10), (40, 0, 20)]]
    assert second.has_ended()


def test_long_rows_are_asked_for_one_by_one(waiter: Waiter) -> None:
    waiter.takes = dict.fromkeys(range(100), 2_000)
    for token in waiter.submit(10, 3):
        waiter.wait(token)
    assert waiter.questions == [[(10, 0, 1)], [(10, 1, 2)], [(10, 2, 3)]]


def test_nor_are_many_that_others_are_handed_at_once(waiter: Waiter) -> None:
    for token in waiter.submit(10, 300)[:3]:
        waiter.wait(token)
    assert waiter.questions == [[(10, 0, 1)], [(10, 1, 2)], [(10, 2, 3)]]


def test_a_row_that_took_long_after_all_leaves_those_that_came_along_to_others(waiter: Waiter) -> None:
    tokens = waiter.submit(10, 4)
    waiter.takes = {11: 5_000}
    waiter.wait(tokens[0])
    waiter.wait(tokens[1])
    assert waiter.ran == [10, 11]
    assert waiter.resubmitted == [12, 13]


def test_a_chain_of_short_rows_is_asked_for_once_and_runs_in_order(waiter: Waiter) -> None:
    (known,) = waiter.submit(5)
    waiter.wait(known)
    tokens = waiter.submit(10)
    for batch in range(11, 20):
        tokens += waiter.submit(batch, needs=[[tokens[-1]]])
    waiter.wait(tokens[-1])
    assert waiter.questions[1:] == [[(batch, 0, 1) for batch in range(10, 20)]]
    assert waiter.ran == [5, *range(10, 20)]


def test_what_a_row_waits_for_and_came_along_for_a_task_around_it_is_run_inside(waiter: Waiter) -> None:
    (known,) = waiter.submit(5)
    waiter.wait(known)
    tokens = waiter.submit(10, 3)
    waiter.during[10] = lambda: waiter.wait(tokens[2])
    waiter.wait(tokens[0])
    assert waiter.ran == [5, 12, 10, 11]
    assert waiter.said == []


def test_a_task_whose_rows_others_have_begun_is_blocked_until_they_have_ended(waiter: Waiter) -> None:
    waiter.begun = {10}
    waiter.wait(*waiter.submit(10))
    assert waiter.said == [Blocked(), Unblocked()]
    assert waiter.ran == []


def test_a_task_that_is_to_yield_leaves_what_it_was_granted_to_others(waiter: Waiter) -> None:
    (token,) = waiter.submit(10, 8, whole=True)
    waiter.begun = {10}  # and ends then
    waiter.during[14] = lambda: context.note_yield(True)
    waiter.wait(token)
    assert waiter.ran == [14]
    assert waiter.resubmitted == [15, 16, 17]
    assert waiter.said == [Blocked(), Unblocked()]


@pytest.mark.parametrize("depth", [nesting.MAX_DEPTH - 1, nesting.MAX_DEPTH])
def test_a_task_that_is_too_deep_asks_for_nothing(waiter: Waiter, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "depth", lambda: depth)
    waiter.begun = {10}
    waiter.wait(*waiter.submit(10))
    assert len(waiter.questions) == (depth < nesting.MAX_DEPTH)


def test_a_row_that_is_granted_while_the_wait_for_it_ends_is_not_forgotten() -> None:
    claims, token = Claims(), Token()
    claim = claims.open(token)

    class Closing(deque[ev.ClaimGranted]):
        """Another thread adds to it, and the wait ends just before."""

        def append(self, effect: ev.ClaimGranted) -> None:
            claims.close(claim)
            super().append(effect)

    claim.granted = Closing()
    granted = ev.ClaimGranted(task(10, 1), 0, token, (), TEMPLATE)
    assert not claims.grant(granted), "it is sent again"
    assert not claim.granted
