"""Moves of rows for which several things have to come together, each brought about step by step."""

import pytest
from simulator.moves import Move, Moves
from simulator.scripted import FakeScheduler, graph, result, spans, task

from scaler.protocol import messages as m
from scaler.scheduler.state.batch_records import AGENT

GPU = ("gpu",)
#: what an agent can say or do that takes the row 20 from it, and what the table calls that
ENDINGS = {
    "error": "it raised, and has retries left",
    "given back": "given back before it began",
    "too much": "its agent said of its batch more than it had",
    "worker lost": "its worker died",
    "agent lost": "its agent was lost",
    "missing": "its agent could not get what it needs",
}


class Case:
    """A scheduler with an agent that has the stored value 10 of a graph; rows 20 and 21 at an agent need it."""

    def __init__(self, apart: bool) -> None:
        """The rows are at another agent than the value if `apart`."""
        self.fake = FakeScheduler()
        self.moves = Moves()
        self.fake.core.state.facts.subscribe(self.moves.note_scheduler)
        self.home = self.fake.agent(1, () if apart else GPU)
        self.client = self.fake.client()
        self.fake.say(self.client, graph(10, [[], [0], [0]], [1, 2]))
        self.fake.report(self.home, self.client, result(10, 0, 1, m.STORED))
        if apart:
            self.fake.agent(1, GPU)
        needs = {"dependency_counts": m.u32([1, 1]), "dependencies": m.u64([10, 10])}
        self.fake.say(self.client, task(20, 2, capabilities=GPU, retries=1, **needs))

    @property
    def place(self) -> int:
        """The agent that row 20 is at."""
        batch = self.fake.core.state.clients[self.client].batches[20]
        (found,) = [n for n in self.fake.core.state.agents if (0, 1) in batch.spans_in(AGENT + n, 0, 1)]
        return found

    def end(self, how: str) -> None:
        """Row 20 leaves its agent."""
        fake, place = self.fake, self.place
        if how == "error":
            fake.report(place, self.client, result(20, 0, 1, m.ERROR))
        elif how == "given back":
            fake.say(place, spans(m.BalanceResponse, self.client, (20, 0, 1)))
        elif how == "too much":
            fake.report(place, self.client, result(20, 1, 2))
            fake.report(place, self.client, result(20, 0, 2))
        elif how == "worker lost":
            fake.report(place, self.client, result(20, 0, 1, m.LOST))
        elif how == "agent lost":
            fake.lose(place)
        else:
            fake.say(place, m.ObjectMissing(rows=spans(m.Spans, self.client, (20, 0, 1))))

    def met(self, how: str, to: str) -> bool:
        """The row made this move."""
        move: Move = f"row agent -> {to}: {ENDINGS[how]}"
        return move in self.moves.met()


@pytest.mark.parametrize("how", [how for how in ENDINGS if how != "missing"])
def test_a_row_that_comes_back_waits_if_its_input_was_lost_meanwhile(how: str) -> None:
    case = Case(apart=True)
    case.fake.lose(case.home)
    case.end(how)
    assert case.met(how, "waiting")


@pytest.mark.parametrize("how", [how for how in ENDINGS if how != "agent lost"])
def test_a_row_that_could_not_be_brought_its_input_goes_where_that_is(how: str) -> None:
    case = Case(apart=False)
    case.end("missing")
    case.end(how)
    assert case.met(how, "agent")


@pytest.mark.parametrize("how", ["too much", "missing"])
def test_a_row_without_stored_input_that_comes_back_is_queued(how: str) -> None:
    case = Case(apart=False)
    case.fake.say(case.client, task(40, 2, retries=1))
    batch = case.fake.core.state.clients[case.client].batches[40]
    (agent,) = batch.at.keys() or [None]
    if how == "too much":
        case.fake.report(agent, case.client, result(40, 1, 2))
        case.fake.report(agent, case.client, result(40, 0, 2))
    else:
        case.fake.say(agent, m.ObjectMissing(rows=spans(m.Spans, case.client, (40, 0, 1))))
    assert case.met(how, "queued")
