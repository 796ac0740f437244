"""What somebody tells a scheduler to do: rows cancelled, agents drained, hosts to come; and what it answers."""

import contextlib

import pytest
from simulator.scripted import FakeScheduler, result, task

from scaler.cli import commands
from scaler.cli.command import call
from scaler.monitor.commands import CommandRefused
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import MAX_LINE, MAX_LINES, AgentFlag, Wish
from scaler.protocol.messages import (
    CANCELLED,
    BalanceResponse,
    Command,
    CommandResult,
    Drain,
    Malformed,
    Query,
    TaskCancel,
    u32,
)
from scaler.scheduler.state import fleet_records
from scaler.scheduler.state.function_records import FEW_ROWS
from scaler.scheduler.state.validate import validate
from scaler.scheduler.views.cluster_view import cluster_view


def tell(fake: FakeScheduler, operator: int, command: Command) -> CommandResult:
    """Somebody says what is to be done; the answer."""
    fake.say(operator, decode(encode(command)).message)  # type: ignore[arg-type]
    (answer,) = fake.heard(operator, CommandResult)
    assert answer.number == command.number
    assert not validate(fake.core.state)
    return answer  # type: ignore[no-any-return]


def test_a_row_is_cancelled_and_its_client_is_told() -> None:
    fake = FakeScheduler()
    operator, client = fake.monitor(), fake.client()
    fake.say(client, task(10, 4))
    assert tell(fake, operator, Command(1, "cancel", client, 12)) == CommandResult(1, 1)
    assert fake.ends(client) == [(10, 2, 3, CANCELLED)]
    assert "no task" in tell(fake, operator, Command(2, "cancel", client, 12)).error
    assert "is not there" in tell(fake, operator, Command(3, "cancel", 4711)).error


def test_all_rows_of_a_function_are_cancelled_whoever_they_are_of() -> None:
    fake = FakeScheduler(1)
    operator, first, second = fake.monitor(), fake.client(), fake.client()
    fake.say(first, task(10, 4))
    fake.say(second, task(10, 3), task(50, 2, name="other"))
    at_agent = fake.holds(fake.agents[0])
    fake.heard(fake.agents[0])
    answer = tell(fake, operator, Command(1, "cancel", name="f", force=True))
    assert (answer.done, answer.asked) == (7 - at_agent, at_agent)
    assert at_agent
    told = fake.heard(fake.agents[0], TaskCancel)
    assert all(each.force for each in told)
    asked = {client: hi - lo for each in told for client, _, lo, hi in each.spans}
    assert sum(asked.values()) == at_agent
    for client, rows in asked.items():
        fake.report(fake.agents[0], client, result(10, 0, rows, outcome=CANCELLED))
    assert fake.core.state.clients[second].outstanding == 2
    assert "no tasks of f" in tell(fake, operator, Command(2, "cancel", second, name="f")).error


def test_a_row_that_several_clients_have_is_cancelled_for_none() -> None:
    fake = FakeScheduler()
    operator, first, second = fake.monitor(), fake.client(), fake.client()
    fake.say(first, task(10, 1))
    fake.say(second, task(10, 1))
    assert tell(fake, operator, Command(1, "cancel", row=10)).error.endswith(f"{first}:10, {second}:10")
    assert not fake.ends(first) + fake.ends(second)
    assert tell(fake, operator, Command(2, "cancel", first)).done == 1


def test_agents_are_drained_by_number_or_job_and_may_be_told_to_stay() -> None:
    fake = FakeScheduler(1)
    operator = fake.monitor()
    numbered, named = fake.agent(), fake.agent()
    fake.core.state.agents[named].job = "4711"
    client = fake.client()
    fake.say(client, task(10, 3))
    assert tell(fake, operator, Command(1, "drain", agents=u32([numbered]), jobs=("4711",))).done == 2
    assert fake.heard(numbered, Drain) == fake.heard(named, Drain) == [Drain(Wish.DRAIN)]
    flags = cluster_view(fake.core.state)[0].agents.flags
    assert [bool(each & AgentFlag.DRAINING) for each in flags] == [False, True, True]
    assert tell(fake, operator, Command(2, "undrain", jobs=("4711",))).done == 1
    assert fake.heard(named, Drain) == [Drain(Wish.STAY)]
    assert "own process" in tell(fake, operator, Command(5, "drain", agents=u32([1]))).error
    assert "is not draining" in tell(fake, operator, Command(3, "undrain", agents=u32([named]))).error
    assert tell(fake, operator, Command(4, "drain", agents=u32([99]), jobs=("x",))).error == (
        "agent 99, job x is not there"
    )


@pytest.mark.parametrize(
    ("which", "said", "code"),
    [
        (["job0", "job1"], "draining: 3 hosts\n", 0),
        (["x", "job0", "9", "7"], "draining: 3 hosts (job0, 7); job x is not there; agent 9 is not there\n", 1),
        (["x", "9"], "scaler: job x is not there; agent 9 is not there\n", 1),
    ],
    ids=["all", "some", "none"],
)
def test_those_that_are_there_are_drained_though_others_are_not(which, said, code, monkeypatch, capsys) -> None:
    class Told(contextlib.nullcontext):
        def drain(self, agents=(), jobs=()) -> int:
            hosts = {"job0": 2, "job1": 1, 7: 1}
            kind, name = ("agent", *agents) if agents else ("job", *jobs)
            if name not in hosts:
                raise CommandRefused(f"{kind} {name} is not there")
            return hosts[name]

        def __enter__(self) -> "Told":
            return self

    monkeypatch.setattr(commands, "_commands", lambda *_: Told())
    assert call(commands.drain, "scaler", ["tcp://a:1", *which]) == code
    assert "".join(capsys.readouterr()) == said


def test_demand_is_told_by_what_rows_ask_for() -> None:
    fake = FakeScheduler(2)
    gpu = fake.agent(4, ("gpu",))
    client = fake.client()
    fake.say(client, task(10, 8), task(50, 3, name="g", capabilities=("gpu",)))
    fake.say(client, task(90, 5, name="h", capabilities=("ssd",), threads=2))
    fake.core.state.clients[client].functions["f"].learn(1, 2_000)
    fake.core.state.clients[client].functions["h"].learn(1, 1_000)
    demand = cluster_view(fake.core.state)[0].demand
    state = fake.core.state
    assert demand.capabilities == ("", "gpu", "ssd")
    held = [state.agents[number].load.rows for number in (fake.agents[0], gpu)]
    assert demand.queued[0] + demand.at_agents[0] == 8
    assert sum(demand.at_agents) == sum(held)
    assert list(demand.work_us) == [demand.queued[0] * 2_000, 0, 10_000]
    assert list(demand.unknown) == [0, demand.queued[1], 0]
    assert list(demand.hardly_known) == [demand.queued[0], 0, 5]
    assert demand.queued[2] == 5
    assert demand.free[2] == 0
    fake.end_all(fake.agents[0], client)
    fake.end_all(gpu, client)
    while any(state.agents[number].load.outstanding for number in (fake.agents[0], gpu)):
        fake.end_all(fake.agents[0], client)
        fake.end_all(gpu, client)
    demand = cluster_view(state)[0].demand
    fake.core.state.clients[client].functions["h"].learn(FEW_ROWS, 5)
    assert list(cluster_view(state)[0].demand.hardly_known) == [0, 0, 0]
    assert (list(demand.queued), list(demand.at_agents), list(demand.free)) == ([0, 0, 5], [0, 0, 0], [6, 4, 0])


def test_since_when_an_agent_has_nothing_to_do_is_told() -> None:
    fake = FakeScheduler(1)
    client = fake.client()
    fake.wait(2)
    assert list(cluster_view(fake.core.state)[0].agents.idle) == [2000]
    fake.say(client, task(10, 1))
    fake.core.state.now += 1
    assert list(cluster_view(fake.core.state)[0].agents.idle) == [0]
    fake.end_all(fake.agents[0], client)
    fake.wait(0.5)
    assert list(cluster_view(fake.core.state)[0].agents.idle) == [500]


def test_an_agent_that_has_just_come_is_not_idle_since_long_ago() -> None:
    """Hosts that are idle for a while are sent away."""
    fake = FakeScheduler()
    fake.wait(3600.0)
    fake.agent()
    fake.wait(2)
    assert list(cluster_view(fake.core.state)[0].agents.idle) == [2000]


def fleet(number: int, provider: str = "slurm", **more: object) -> Command:
    """A word on hosts that are to come."""
    figures = {"desired": 6, "pending": 4, "running": 2, "waited": 1000, "lines": ("Priority",), **more}
    return Command(number, "fleet", provider=provider, **figures)  # type: ignore[arg-type]


def test_what_is_told_of_hosts_is_shown_while_its_teller_is_there() -> None:
    fake = FakeScheduler()
    operator = fake.monitor()
    assert tell(fake, operator, fleet(1)).done == 1
    fake.core.state.now += 3
    told = cluster_view(fake.core.state)[0].fleets
    assert (told.providers, list(told.pending), list(told.waited), told.lines) == (
        ("slurm",), [4], [4000], ("Priority",)
    )  # fmt: skip
    for i in range(fleet_records.PROVIDERS - 1):
        assert tell(fake, operator, fleet(10 + i, f"p{i}")).done == 1
    assert "at most" in tell(fake, operator, fleet(90, "one more")).error
    fake.core.state.now += fleet_records.BELIEVED
    assert not cluster_view(fake.core.state)[0].fleets.providers  # it was not said again
    fake.lose(operator)
    assert not fake.core.state.fleets


@pytest.mark.parametrize(
    "command",
    [
        Command(1, "explode"),
        Command(1, "cancel"),
        Command(1, "drain"),
        Command(1, "fleet"),
        Command(1, "cancel", 2**31),
        fleet(1, "x" * 201),
        fleet(1, lines=("x",) * (MAX_LINES + 1)),
        fleet(1, lines=("x" * (MAX_LINE + 1),)),
        Command(1, "drain", agents=u32(range(10_001))),
    ],
)
def test_a_command_that_can_not_be_is_no_message(command: Command) -> None:
    with pytest.raises(Malformed):
        command.validate()


def test_nobody_but_a_monitor_gives_commands() -> None:
    fake = FakeScheduler(1)
    for number in (fake.client(), fake.agents[0]):
        fake.say(number, Command(1, "cancel", 7))
        assert number not in {**fake.core.state.clients, **fake.core.state.agents}


def test_a_drained_agent_that_says_what_can_not_be_harms_nobody() -> None:
    fake = FakeScheduler(1, 1)
    operator, client = fake.monitor(), fake.client()
    fake.say(client, task(10, 2))
    tell(fake, operator, Command(1, "drain", agents=u32([fake.agents[1]])))
    fake.say(fake.agents[1], BalanceResponse(u32([client]), u32([999]), u32([0, 5])))  # rows that nobody knows
    fake.say(operator, Query(5, "tasks"))
    assert not validate(fake.core.state)
