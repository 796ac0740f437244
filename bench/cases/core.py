"""Does a task cost the scheduler more in a large cluster? Its core alone, without processes, network or clock."""

from __future__ import annotations

import gc
import time
from array import array
from collections import deque
from collections.abc import Iterator

from bench.results import Sample
from scaler.protocol.messages import EACH, PROTOCOL_VERSION, VALUES_LIST, Hello, Task, TaskResult, u8, u32, u64
from scaler.scheduler.core.events import Effect, Event, Joined, Received, Send
from scaler.scheduler.core.scheduler_core import Limits, SchedulerCore

#: a host's workers, and what a task takes them: long enough that an agent has no more than two rows for each of them
WORKERS, TASK_US = 4, 100_000
#: rows in all, and in a message of the client
ROWS, ROWS_OF_A_MESSAGE = 300_000, 4_000
#: finished rows between which the time is taken: every agent is full, and the queue isn't empty yet
BEGIN, END = 100_000, 200_000
#: messages that the scheduler finds when it looks, at most
MESSAGES = 10
CLIENT = 1
NEVER = Limits(client_timeout=1e9, agent_timeout=1e9, retries_on_loss=3, protected=True)


def core(name: str, repetitions: int) -> Iterator[Sample]:
    """Microseconds that the scheduler's core takes for a task, with few agents and with many.

    What counts as much as the number of agents is how many rows a message has; so agents give their results row by row,
    as they do when tasks are long, and the time is taken while all agents are full.
    """
    for _ in range(repetitions):
        yield Sample("core_10", name, _cost(10), END - BEGIN)
        yield Sample("core_10000", name, _cost(10_000), END - BEGIN)


def _hello(role: str, number: int, workers: int = 0) -> Joined:
    return Joined(number, Hello(role, f"{role}-{number}", number, PROTOCOL_VERSION, "", "", "", 1, workers=workers))


def _task(first: int, n: int) -> Task:
    task = Task(0, first, n, EACH, 0, 1 << 40, 0, "noop", spans=u32([0, n]), sizes=u32([4]) * n, bodies=[b"1234" * n])
    if first == 1:  # the function travels with the first message
        task.objects = u64([1 << 40])
        task.bodies.append(b"function")
    return task


def _cost(agents: int) -> float:
    """Agents that answer in turn."""
    gc.collect()
    gc.disable()  # it would look at the messages that wait here, of which a scheduler's process has none
    try:
        return _run(agents)
    finally:
        gc.enable()


def _run(agents: int) -> float:
    scheduler = SchedulerCore(NEVER)
    scheduler.handle([_hello("client", CLIENT), *(_hello("agent", 2 + i, WORKERS) for i in range(agents))], 0.0)
    inbox: deque[Event] = deque()
    first = 1
    while first <= ROWS:
        inbox.append(Received(CLIENT, _task(first, ROWS_OF_A_MESSAGE)))
        first += ROWS_OF_A_MESSAGE
    spent, now, finished = 0.0, 0.0, 0
    while inbox:
        events = [inbox.popleft() for _ in range(min(MESSAGES, len(inbox)))]
        now += 0.001
        start = time.process_time()
        effects = scheduler.handle(events, now)
        if BEGIN <= finished < END:
            spent += time.process_time() - start
        finished += _answer(effects, inbox)
    if finished != ROWS:
        raise AssertionError(f"{finished:,} of {ROWS:,} rows finished with {agents:,} agents")
    return spent / (END - BEGIN) * 1e6


def _answer(effects: list[Effect], inbox: deque[Event]) -> int:
    """What the agents say to what they were sent; how many rows the client heard of."""
    heard = 0
    for effect in effects:
        if not isinstance(effect, Send):
            continue
        message = effect.message
        if isinstance(message, TaskResult):
            heard += _total(message.spans)
        elif isinstance(message, Task):
            pairs = message.spans
            for lo, hi in zip(pairs[::2], pairs[1::2], strict=True):
                inbox.extend(Received(effect.number, _result(message, row)) for row in range(lo, hi))
    return heard


def _result(task: Task, row: int) -> TaskResult:
    span = u64([task.batch]), u32([row, row + 1])
    return TaskResult(task.client, *span, u8([VALUES_LIST]), u32([TASK_US]), u32([2]), [b"v1"])


def _total(pairs: array[int]) -> int:
    return sum(pairs[1::2]) - sum(pairs[::2])
