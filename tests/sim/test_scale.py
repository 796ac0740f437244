"""A scheduler of 10,000 agents spends on a task what one of 10 agents does."""

import gc
import sys
import time
from collections.abc import Callable
from random import Random

import pytest
from simulator.scripted import FakeScheduler, hello, result, task

from scaler.protocol.messages import BalanceRequest, BalanceResponse, Heartbeat, Message, Task
from scaler.protocol.results import ResultBuilder
from scaler.scheduler.core import events as ev

WORKERS = 4
MANY = 10_000


def cluster(agents: int, are_alike: bool) -> tuple[FakeScheduler, int]:
    """A scheduler with that many agents, and a client whose function is known to take a second.

    Unless they `are_alike` each agent has a capability of its own, as where rows may ask for a certain host.
    """
    fake = FakeScheduler()
    names = {n: f"agent-{n}" for n in range(1, agents + 1)}
    fake.core.handle(
        [ev.Joined(n, hello("agent", name, WORKERS, () if are_alike else (name,))) for n, name in names.items()], 0.0
    )
    fake._last = agents
    client = fake.client()
    fake.say(client, task(10, 1))
    (agent,) = [n for n in fake.core.state.agents if fake.heard(n, Task)]
    fake.report(agent, client, result(10, 0, 1, us=1_000_000))
    return fake, client


def answers(client: int, effects: list[ev.Effect]) -> list[ev.Received]:
    """What agents say to what they were sent: each row ends by itself, nothing is given back."""
    events = []
    for effect in effects:
        if not isinstance(effect, ev.Send):
            continue
        message: Message = effect.message
        if isinstance(message, Task):
            for lo, hi in zip(message.spans[::2], message.spans[1::2], strict=True):
                for row in range(lo, hi):
                    builder = ResultBuilder(client)
                    builder.add(result(message.batch, row, row + 1, us=1_000_000))
                    events.append(ev.Received(effect.number, builder.build()))
        elif isinstance(message, BalanceRequest):
            events.append(ev.Received(effect.number, BalanceResponse()))
    return events


Meter = Callable[[Callable[[], list[ev.Effect]]], list[ev.Effect]]


def lone_tasks(agents: int, meter: Meter, count: int, are_alike: bool = True) -> int:
    """One at a time, in a cluster with nothing else to do; the number of tasks."""
    fake, client = cluster(agents, are_alike)
    for n in range(count):
        events: list[ev.Event] = [ev.Received(client, task(100 + n, 1))]
        while events:
            effects = meter(lambda events=events: fake.core.handle(events, 0.0))  # type: ignore[misc]
            events = list(answers(client, effects))
    return count


def busy_cluster(agents: int, meter: Meter, count: int, are_alike: bool = True) -> int:
    """Every agent has all it may have, rows are queued, results come one by one in any order; the number of results."""
    fake, client = cluster(agents, are_alike)
    rows = 8 * WORKERS * agents + count
    under_way = list(answers(client, fake.core.handle([ev.Received(client, task(100, rows))], 0.0)))
    random = Random(0)
    for _ in range(count):
        at = random.randrange(len(under_way))
        under_way[at], under_way[-1] = under_way[-1], under_way[at]
        event = under_way.pop()
        under_way += answers(client, meter(lambda event=event: fake.core.handle([event], 0.0)))  # type: ignore[misc]
    return count


def heartbeats(agents: int, meter: Meter, count: int, are_alike: bool = True) -> int:
    """Each agent says that it is there; the number of heartbeats."""
    fake, _ = cluster(agents, are_alike)
    for n in range(count):
        meter(lambda n=n: fake.core.handle([ev.Received(n % agents + 1, Heartbeat(0.0, WORKERS))], 0.0))  # type: ignore[misc]
    return count


SCENES = [lone_tasks, busy_cluster, heartbeats]


def calls(scene: Callable[[int, Meter, int, bool], int], agents: int, are_alike: bool) -> float:
    """Python and C function calls, and generator steps, in the core for each task."""
    total = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal total
        total += event in ("call", "c_call")

    def meter(work: Callable[[], list[ev.Effect]]) -> list[ev.Effect]:
        sys.setprofile(note)
        try:
            return work()
        finally:
            sys.setprofile(None)

    count = scene(agents, meter, 60, are_alike)
    return total / count


def seconds(scene: Callable[[int, Meter, int], int], agents: int) -> float:
    """Processor's time in the core for each task."""
    spent = 0.0

    def meter(work: Callable[[], list[ev.Effect]]) -> list[ev.Effect]:
        nonlocal spent
        begun = time.thread_time()
        effects = work()
        spent += time.thread_time() - begun
        return effects

    gc.collect()
    gc.disable()
    try:
        count = scene(agents, meter, 1_500)
    finally:
        gc.enable()
    return spent / count


@pytest.mark.parametrize("are_alike", [True, False])
@pytest.mark.parametrize("scene", SCENES)
def test_what_the_scheduler_does_for_a_task_does_not_grow_with_the_cluster(
    scene: Callable[[int, Meter, int, bool], int], are_alike: bool
) -> None:
    few, many = calls(scene, 10 if are_alike else 100, are_alike), calls(scene, 2_000, are_alike)
    assert few > 0
    assert many <= 1.2 * few


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", SCENES)
def test_nor_does_the_time_it_takes(scene: Callable[[int, Meter, int], int]) -> None:
    # in turns, and the least of each: what else this machine does troubles both
    times = [(seconds(scene, 10), seconds(scene, MANY)) for _ in range(7)]
    few, many = (min(column) for column in zip(*times, strict=True))
    print(
        f"{scene.__name__}: {1e6 * few:.1f} us with 10 agents, {1e6 * many:.1f} with {MANY:,}: {many / few:.2f} times"
    )
    assert many <= 1.5 * few
