"""An agent that is about to go, at the scheduler: nothing new, what only it has is copied, then it is told to end."""

import pytest
from simulator.scripted import FakeScheduler, hello, result, spans, task
from support.counting import steps_of

from scaler.protocol.codes import Leaving, Wish
from scaler.protocol.messages import (
    ERROR,
    LOST,
    STORED,
    BalanceResponse,
    Command,
    Drain,
    Heartbeat,
    Inventory,
    ObjectFetch,
    ObjectRelease,
    ObjectResponse,
    Spans,
    Task,
    TaskBegun,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core.draining import AT_ONCE, LOOK_AGAIN
from scaler.scheduler.core.events import Log
from scaler.scheduler.core.explaining import Reason, explain
from scaler.scheduler.core.reachability import note_unreachable
from scaler.scheduler.state.validate import validate


class Cluster(FakeScheduler):
    """A scheduler whose first agent is in nobody's way: it has no workers."""

    def __init__(self) -> None:
        super().__init__(0)
        self.operator = self.monitor()

    def drain(self, *agents: int, kind: str = "drain") -> None:
        """Somebody says so."""
        self.say(self.operator, Command(1, kind, agents=u32(agents)))

    def wishes(self, agent: int) -> list[int]:
        """What an agent was told since the last time."""
        return [message.wish for message in self.heard(agent, Drain)]

    def beat(self, agent: int, leaving: Leaving = Leaving.NOT, workers: int = 1) -> None:
        """An agent's heartbeat."""
        self.say(agent, Heartbeat(self.now, workers, leaving=leaving))

    def fetched(self, agent: int, *messages: ObjectFetch, outcome: int = 0) -> None:
        """An agent has fetched what it was asked for, or could not."""
        for message in messages:
            n = len(message.ids)
            self.say(agent, ObjectResponse(message.clients, message.ids, u8([outcome] * n), agent, "no" * outcome))


def cluster_of(*workers: int) -> tuple[Cluster, list[int], int]:
    """A cluster with agents of so many workers, and a client."""
    fake = Cluster()
    agents = [fake.agent(count) for count in workers]
    return fake, agents, fake.client()


def test_an_agent_that_has_nothing_is_told_to_end_at_once() -> None:
    fake, (one, _), _ = cluster_of(1, 1)
    fake.drain(one)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]
    fake.drain(one)
    fake.drain(one, kind="undrain")
    assert not fake.wishes(one)  # it is ending
    assert not validate(fake.core.state)


def test_the_end_of_an_agent_is_a_warning_unless_it_was_to_go_and_had_nothing() -> None:
    fake, (idle, busy, unexpected), client = cluster_of(1, 1, 1)

    def level() -> str:
        (said,) = [effect for effect in fake.effects if isinstance(effect, Log) and " is gone: " in effect.text]
        return said.level

    fake.drain(idle)
    fake.lose(idle)
    assert level() == "INFO"
    fake.say(client, task(10, 2))
    assert fake.holds(busy)
    fake.drain(busy)
    fake.lose(busy)
    assert level() == "WARNING"
    fake.end_all(unexpected, client)
    assert not fake.holds(unexpected)
    fake.lose(unexpected)
    assert level() == "WARNING"


def test_a_draining_agent_gets_no_rows_and_is_told_to_end_when_its_last_row_has_ended() -> None:
    fake, (one, other), client = cluster_of(1, 1)
    fake.say(client, task(10, 2))
    fake.drain(one)
    assert fake.wishes(one) == [Wish.DRAIN]
    fake.heard(one)
    fake.say(client, task(50, 10))
    assert not fake.placed(one)
    assert fake.holds(other)
    fake.end_all(one, client)
    assert fake.wishes(one) == [Wish.END]
    fake.drain(one, other)
    assert not validate(fake.core.state)


def test_rows_that_a_draining_agent_gives_back_run_elsewhere() -> None:
    fake, (one, other), client = cluster_of(1, 1)
    fake.say(client, task(10, 4))
    mine = [(lo, hi) for batch, lo, hi in fake.placed(one)]
    fake.drain(one)
    hi = mine[-1][1]
    fake.say(one, BalanceResponse(u32([client]), u64([10]), u32([hi - 1, hi])))
    fake.end_all(other, client)
    fake.end_all(one, client)
    fake.end_all(other, client)
    assert fake.core.state.clients[client].outstanding == 0
    assert not fake.core.state.clients[client].functions["f"].failed
    assert not validate(fake.core.state)


def test_values_that_only_a_draining_agent_has_are_fetched_by_others_before_it_ends() -> None:
    fake, (one, other), client = cluster_of(1, 0)
    fake.core.state.agents[1].load.is_full = True
    fake.say(client, task(10, 1))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.drain(one)
    assert fake.wishes(one) == [Wish.DRAIN]
    fetch, *more = fake.heard(other, ObjectFetch)
    assert (fetch.ids.tolist(), fetch.holders.tolist()) == ([10], [one])
    fake.fetched(other, fetch, *more)
    assert fake.core.state.clients[client].values.objects[10].copies == {one, other}
    assert fake.wishes(one) == [Wish.END]
    fake.lose(one)
    assert fake.core.state.clients[client].values.objects[10].copies == {other}
    assert not fake.core.state.clients[client].values.lost
    assert not validate(fake.core.state)


def test_a_value_that_one_agent_can_not_fetch_another_one_does() -> None:
    fake, (one, *others), client = cluster_of(1, 0, 0)
    fake.say(client, task(10, 1))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.drain(one)
    asked = {}
    for _ in range(3):
        for other in [fake.agents[0], *others]:
            for fetch in fake.heard(other, ObjectFetch):
                asked[other] = fetch
                if len(asked) < 2:
                    fake.fetched(other, fetch, outcome=1)
                else:
                    fake.fetched(other, fetch)
    assert len(asked) == 2
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]


def test_an_agent_that_could_not_reach_a_draining_one_a_while_ago_tries_again_if_no_other_can() -> None:
    fake, (one, other, third), client = cluster_of(1, 0, 0)
    state = fake.core.state
    state.agents[fake.agents[0]].load.is_full = True
    fake.say(client, task(10, 1))
    fake.report(one, client, result(10, 0, 1, STORED))
    note_unreachable(state, state.agents[other], {one})
    fake.drain(one)
    (fetch,) = fake.heard(third, ObjectFetch)
    assert not fake.heard(other, ObjectFetch)
    fake.fetched(third, fetch, outcome=1)
    (fetch,) = fake.heard(other, ObjectFetch)
    fake.fetched(other, fetch)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]


def test_values_are_copied_a_few_at_a_time_and_those_that_somebody_drops_meanwhile_are_not() -> None:
    fake, (one, other), client = cluster_of(1, 0)
    fake.core.state.agents[1].load.is_full = True
    count = 3 * AT_ONCE
    fake.say(client, task(10, count))
    while fake.holds(one):
        fake.end_all(one, client, STORED)
    fake.drain(one)
    first = fake.heard(other, ObjectFetch)
    assert len(first) == AT_ONCE
    fake.say(client, ObjectRelease(u32([0] * count), u64(range(10, 10 + count))))
    fake.wait(LOOK_AGAIN)
    fake.beat(one)
    assert not fake.heard(other, ObjectFetch)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]


def steps_beside_a_departure(others: int, have_room: bool) -> int:
    """Steps of the interpreter when a row comes while an agent drains, and so many others take over what it has."""
    fake, (one, *rest), client = cluster_of(1, *[0] * others)
    fake.core.state.agents[1].load.is_full = True
    for number in rest:
        fake.core.state.agents[number].load.is_full = not have_room
    fake.say(client, task(10, 3 * AT_ONCE))
    while fake.holds(one):
        fake.end_all(one, client, STORED)
    fake.drain(one)
    departure = fake.core.state.leaving[one]
    assert (len(departure.moving), departure.is_stuck) == ((AT_ONCE, False) if have_room else (0, True))
    assert not validate(fake.core.state)
    return steps_of(lambda: fake.say(client, task(1_000, 1)))


@pytest.mark.parametrize("have_room", [False, True])
def test_a_departure_does_not_have_each_step_look_at_all_agents(have_room: bool) -> None:
    """With 5,000 of them a lone task took 2 ms instead of 50 us."""
    assert abs(steps_beside_a_departure(200, have_room) - steps_beside_a_departure(20, have_room)) < 20


def test_values_go_to_all_others_in_turn() -> None:
    fake, (one, *others), client = cluster_of(1, *[0] * 4)
    fake.say(client, task(10, 20))
    while fake.holds(one):
        fake.end_all(one, client, STORED)
    fake.drain(one)
    given = dict.fromkeys([fake.agents[0], *others], 0)
    for _ in range(20):
        for agent in given:
            for fetch in fake.heard(agent, ObjectFetch):
                given[agent] += 1
                fake.fetched(agent, fetch)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]
    assert set(given.values()) == {4}


def test_without_another_agent_values_stay_until_one_comes() -> None:
    fake, (one,), client = cluster_of(1)
    fake.core.state.agents[1].load.is_full = True
    fake.say(client, task(10, 2))
    fake.end_all(one, client, STORED)
    fake.end_all(one, client, STORED)
    fake.drain(one)
    assert [line for line in fake.log if "no other agent can take over the 2 objects" in line]
    for _ in range(3):
        fake.wait(LOOK_AGAIN)
        fake.beat(one)
    assert len([line for line in fake.log if "no other agent" in line]) == 1
    assert fake.wishes(one) == [Wish.DRAIN]
    other = fake.agent(0)
    fake.wait(LOOK_AGAIN)
    fake.beat(one)
    fetches = fake.heard(other, ObjectFetch)
    assert sorted(fetch.ids[0] for fetch in fetches) == [10, 11]
    fake.fetched(other, *fetches)
    assert fake.wishes(one) == [Wish.END]


def test_an_agent_that_fetches_for_one_that_goes_and_is_lost_is_replaced() -> None:
    fake, (one, first, second), client = cluster_of(1, 0, 0)
    fake.core.state.agents[1].load.is_full = True
    fake.say(client, task(10, 1))
    fake.report(one, client, result(10, 0, 1, STORED))
    fake.drain(one)
    asked = next(agent for agent in (first, second) if fake.heard(agent, ObjectFetch))
    fake.lose(asked)
    (other,) = {first, second} - {asked}
    fake.wait(0)
    fetch, *_ = fake.heard(other, ObjectFetch)
    fake.fetched(other, fetch)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]
    assert not validate(fake.core.state)


def test_an_agent_that_says_that_it_goes_is_not_told_so_and_can_not_be_kept() -> None:
    fake, (one, _), client = cluster_of(1, 1)
    fake.say(client, task(10, 2))
    fake.beat(one, Leaving.ANNOUNCED)
    assert not fake.wishes(one)
    assert fake.core.state.agents[one].load.is_leaving
    fake.drain(one, kind="undrain")
    assert not fake.wishes(one)
    fake.end_all(one, client)
    assert fake.wishes(one) == [Wish.END]


def test_an_agent_that_stays_gets_rows_again() -> None:
    fake, (one,), client = cluster_of(1)
    fake.say(client, task(10, 1))
    fake.drain(one)
    fake.end_all(one, client, STORED)  # what it has nobody can take over: it is there still
    fake.core.state.agents[1].load.is_full = True
    fake.say(client, task(50, 1))
    assert not fake.holds(one)
    fake.drain(one, kind="undrain")
    assert fake.holds(one) == 1
    fake.beat(one, Leaving.TOLD)  # it said so before it heard
    assert not fake.core.state.agents[one].load.is_leaving
    assert not validate(fake.core.state)


def test_losses_that_were_announced_are_no_strikes() -> None:
    fake = Cluster()
    agents = [fake.agent() for _ in range(9)]
    client = fake.client()
    fake.say(client, task(10, 1))

    def at() -> int:
        (found,) = [agent for agent in agents if agent in fake.core.state.agents and fake.holds(agent)]
        fake.say(found, spans(TaskBegun, client, (10, 0, 1)))
        return found

    for turn in range(8):  # more than `retries_on_loss`
        agent = at()
        fake.beat(agent, Leaving.WALLTIME)
        if turn % 2:
            fake.lose(agent)
        else:
            fake.report(agent, client, result(10, 0, 1, LOST))  # its worker was ended with it
    assert fake.core.state.clients[client].batches[10].attempts.losses == {}  # type: ignore[union-attr]
    assert not fake.ends(client)
    fake.lose(at())
    assert fake.core.state.clients[client].batches[10].attempts.losses == {0: 1}  # type: ignore[union-attr]


def test_a_row_that_may_run_only_once_is_given_up_though_its_loss_was_announced() -> None:
    fake = FakeScheduler(0, retries_on_loss=0)
    one, client = fake.agent(), fake.client()
    fake.say(client, task(10, 1))
    fake.say(one, Heartbeat(0.0, 1, leaving=Leaving.ANNOUNCED))
    fake.lose(one)
    assert [outcome for *_, outcome in fake.ends(client)] == [ERROR]


def test_a_draining_agent_whose_task_waits_is_given_what_nobody_else_can_run() -> None:
    fake = Cluster()
    one, client, inner = fake.agent(1, ("gpu",)), fake.client(), fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)))
    fake.heard(one)
    fake.drain(one)
    fake.say(inner, task(50, 2, capabilities=("gpu",)))
    assert not fake.heard(one, Task)
    state = fake.core.state
    why = explain(state, state.clients[inner], state.clients[inner].batches[50], 0)
    assert why.reason is Reason.AGENTS_LEAVE
    assert "it was told to drain" in why.lines[-1]
    fake.beat(one, Leaving.TOLD, workers=2)  # its task waits: another worker has its place
    assert fake.holds(one) == 2
    other = fake.agent(1, ("gpu",))
    assert fake.holds(other) == 1
    fake.end_all(one, inner)
    fake.end_all(other, inner)
    fake.end_all(one, client)
    assert fake.wishes(one)[-1] == Wish.END
    assert not validate(state)


def test_it_is_given_no_more_once_it_gives_that_back_before_it_says_that_its_task_has_ended() -> None:
    """The same row went to and fro, as fast as messages go, until the next heartbeat."""
    fake = Cluster()
    one, client, inner = fake.agent(1, ("gpu",)), fake.client(), fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)))
    fake.drain(one)
    fake.beat(one, Leaving.TOLD, workers=2)
    fake.say(inner, task(50, 1, capabilities=("gpu",)))
    assert fake.holds(one) == 2
    fake.say(one, spans(BalanceResponse, inner, (50, 0, 1)))
    assert fake.holds(one) == 1
    fake.beat(one, Leaving.TOLD, workers=2)
    assert fake.holds(one) == 2


def test_an_agent_that_comes_from_another_scheduler_and_was_about_to_go_still_is() -> None:
    fake, (one,), _ = cluster_of(1)
    at = fake.come_back("agent", 100, leaving=int(Leaving.TOLD))
    assert fake.core.state.agents[at].load.is_leaving
    assert fake.wishes(at) == [Wish.DRAIN]  # not told to end: what it has is not known yet
    assert not fake.core.state.agents[one].load.is_leaving


def test_an_agent_with_something_of_a_client_that_may_come_back_stays_and_others_go() -> None:
    fake, (one,), _ = cluster_of(1)
    held = Inventory(u32([99]), u64([7]), spans(Spans, 99, (10, 0, 1)))
    at = fake.come_back("agent", 100)
    fake.say(at, held)
    fake.drain(one, at)
    assert fake.wishes(one) == [Wish.DRAIN, Wish.END]
    assert fake.wishes(at) == [Wish.DRAIN]
    fake.wait(fake.core._limits.client_timeout)
    assert fake.wishes(at) == [Wish.END]


# ---- walltime --------------------------------------------------------------------------------------------------------
def limited(fake: FakeScheduler, seconds: float, workers: int = 1) -> int:
    """An agent joins that ends after so many seconds."""
    made = hello("agent", "limited", workers, (), "here", "/store")
    made.walltime = round(1000 * seconds)
    return fake._join(made)


def test_rows_that_take_longer_than_an_agent_has_left_are_not_given_to_it() -> None:
    fake = Cluster()
    short, client = limited(fake, 60), fake.client()
    fake.say(client, task(10, 1))
    fake.report(short, client, result(10, 0, 1, us=90_000_000))  # 90 s: known now
    fake.say(client, task(20, 4))
    assert not fake.holds(short)
    state = fake.core.state
    why = explain(state, state.clients[client], state.clients[client].batches[20], 0)
    assert why.reason is Reason.TOO_LITTLE_TIME
    assert why.lines == ["it needs ~90 s", f"agent {short} (limited) has 60 s left"]
    fake.say(client, task(40, 1, name="quick"))  # it is not held up by those before it
    assert fake.holds(short) == 1
    assert not validate(state)
    long = limited(fake, 200)
    assert fake.holds(long) >= 1
    fake.cancel(client, (20, 0, 4))
    fake.end_all(short, client)
    fake.end_all(long, client)
    assert not state.queues.rows
    assert not validate(state)


def test_rows_of_unknown_duration_are_given_to_an_agent_while_a_minimum_is_left() -> None:
    fake = Cluster()
    short, client = limited(fake, 5), fake.client()
    fake.now += 4
    fake.beat(short)
    fake.say(client, task(10, 1))
    assert not fake.holds(short)
    state = fake.core.state
    why = explain(state, state.clients[client], state.clients[client].batches[10], 0)
    assert (why.reason, why.lines[0]) == (
        Reason.TOO_LITTLE_TIME, "it needs at least 2 s, as nothing is known of its function"
    )  # fmt: skip
    limited(fake, 5)
    assert not state.queues.rows


def test_rows_that_were_set_aside_are_in_the_queues_of_their_client_and_go_with_it() -> None:
    fake = Cluster()
    short, client, other = limited(fake, 30), fake.client(), fake.client()
    for number in (client, other):
        fake.say(number, task(10, 1))
        fake.end_all(short, number)
        fake.core.state.clients[number].functions["f"].duration_us = 60e6
        fake.say(number, task(20, 3))
    assert fake.core.state.queues.rows == 6
    assert not validate(fake.core.state)
    fake.lose(client)
    assert fake.core.state.queues.rows == 3
    assert not validate(fake.core.state)
    fake.agent(5)
    assert not fake.core.state.queues.rows
    assert [batch for batch, *_ in fake.ends(client)] == [10]


def test_rows_set_aside_go_to_an_agent_that_had_no_time_for_those_before_them() -> None:
    fake = Cluster()
    short, client = limited(fake, 5), fake.client()
    long = fake.agent(1, ("gpu",))  # looked at after the other
    fake.say(client, task(10, 40, priority=-1, name="quick"))
    fake.report(long, client, result(10, 1, 2, us=3_000))
    fake.now += 4
    fake.beat(short)
    fake.beat(long)
    fake.say(client, task(100, 1, name="y"))
    fake.say(client, task(110, 1, name="x"))
    fake.say(client, task(120, 1, name="x"))
    fake.say(client, task(130, 1, name="y"))
    assert fake.core.state.queues.rows > 2  # those of x and y that nobody has room or time for, in the same queue
    fake.report(long, client, result(100, 0, 1, us=3_000))  # room for x; y is known by now, and there is time for it
    batches = fake.core.state.clients[client].batches
    assert list(batches[120].at) == [long]
    assert batches[130].at
    assert not validate(fake.core.state)


def test_what_is_told_of_hosts_that_are_to_come_explains_why_rows_wait() -> None:
    fake = Cluster()
    client = fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)))
    report = Command(
        1, "fleet", provider="slurm", desired=4, pending=4, waited=180_000, lines=("Priority",)
    )  # fmt: skip
    fake.say(fake.operator, report)
    state = fake.core.state
    why = explain(state, state.clients[client], state.clients[client].batches[10], 0)
    assert why.reason is Reason.WAITS_FOR_HOSTS
    assert why.lines[-1] == "waits for hosts: 4 pending since 3 min (slurm), reason Priority"


def test_why_no_host_comes_explains_why_rows_wait_also_while_none_is_asked_for() -> None:
    fake = Cluster()
    client = fake.client()
    fake.say(client, task(10, 1, capabilities=("gpu",)))
    state = fake.core.state
    for running, words in ((1, "3 are wanted and have not come (slurm), reason sbatch: error"), (4, "")):
        fake.say(
            fake.operator,
            Command(1, "fleet", provider="slurm", desired=4, running=running, lines=("sbatch: error",)),
        )
        why = explain(state, state.clients[client], state.clients[client].batches[10], 0)
        assert why.reason is (Reason.WAITS_FOR_HOSTS if words else Reason.NO_SUCH_AGENT)
        assert why.lines[-1] == (f"waits for hosts: {words}" if words else "no agent has joined")
