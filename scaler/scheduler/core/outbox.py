"""What one `handle` of the scheduler's core is going to send, gathered so that each peer gets few, large messages."""

from collections.abc import Iterable
from itertools import chain

from scaler.protocol.messages import (
    EACH,
    Frame,
    Neighbours,
    ObjectRelease,
    Task,
    TaskCancel,
    TaskClaim,
    TaskResult,
    i32,
    u32,
    u64,
)
from scaler.protocol.results import FULL, ResultBuilder, SpanResult
from scaler.scheduler.core.events import Effect, Send
from scaler.scheduler.core.state import Agent, Batch, Client

#: releases of objects wait for the next message to the agent until they are this many, or this large together
RELEASE_COUNT = 256
RELEASE_BYTES = 1 << 16


class Outbox:
    """Effects in order, with results and tasks grouped by receiver."""

    __slots__ = ("_questions", "_results", "agents", "effects")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._results: dict[int, ResultBuilder] = {}
        #: what comes behind everything else: agent, client and message
        self._questions: list[tuple[int, int, TaskCancel | TaskClaim]] = []
        #: agents with something in their own outboxes
        self.agents: dict[Agent, None] = {}

    def send(self, number: int, message: object) -> None:
        """Send a message; results gathered for this peer go first."""
        self.flush_results(number)
        self.effects.append(Send(number, message))  # type: ignore[arg-type]

    def ask(self, agent: int, client: int, message: TaskCancel | TaskClaim) -> None:
        """Ask an agent for rows of a client, some of which it may only be given now: behind all tasks."""
        self._questions.append((agent, client, message))

    def ask_no_more(self, client: int) -> None:
        """A client's rows are forgotten."""
        self._questions = [question for question in self._questions if question[1] != client]

    def result(self, client: int, span: SpanResult) -> None:
        """Add a span to the client's next TaskResult."""
        builder = self._results.get(client)
        if builder is None:
            builder = self._results[client] = ResultBuilder(client)
        builder.add(span)
        if builder.size > FULL:
            self.flush_results(client)

    def pass_on(self, client: int, message: TaskResult) -> None:
        """Send an agent's result message to the client as it is."""
        self.send(client, message)

    def flush_results(self, client: int) -> None:
        """Send what was gathered for this client."""
        builder = self._results.pop(client, None)
        if builder is not None:
            self.effects.append(Send(client, builder.build()))

    def flush(self, clients: dict[int, Client], agents: dict[int, Agent]) -> list[Effect]:
        """All effects; the outbox is empty afterwards."""
        for client in list(self._results):
            self.flush_results(client)
        for agent in self.agents:
            self._flush_agent(agent, clients, agents)
        self.agents.clear()
        if self._questions:
            self.effects += [Send(agent, message) for agent, _, message in self._questions if agent in agents]
            self._questions.clear()
        effects, self.effects = self.effects, []
        return effects

    def introduce(self, agent: Agent, holders: Iterable[int], agents: dict[int, Agent]) -> None:
        """Tell an agent where it can ask those for objects that it was not told of yet."""
        strangers = [agents[number] for number in holders if number not in agent.neighbours and number in agents]
        strangers = [other for other in strangers if other is not agent]
        if strangers:
            agent.neighbours.update(other.number for other in strangers)
            told = Neighbours(u32([other.number for other in strangers]), tuple(other.data for other in strangers))
            self.effects.append(Send(agent.number, told))

    def _flush_agent(self, agent: Agent, clients: dict[int, Client], agents: dict[int, Agent]) -> None:
        """Releases go along with the next tasks, unless they are worth a message of their own."""
        if agent.released and (
            agent.outbox or agent.released_bytes > RELEASE_BYTES or len(agent.released) > RELEASE_COUNT
        ):
            agent.released_bytes = 0
            released, agent.released = agent.released, []
            release = ObjectRelease(u32([c for c, _ in released]), u64([i for _, i in released]))
            self.effects.append(Send(agent.number, release))
        if agent.outbox:
            outbox, agent.outbox = agent.outbox, {}
            for batch, spans in outbox.items():
                client = clients[batch.client]
                client.agents.add(agent.number)
                task = task_for(agent, client, batch, spans)
                if task.holders:
                    self.introduce(agent, dict.fromkeys(task.holders), agents)
                self.effects.append(Send(agent.number, task))


def task_for(agent: Agent, client: Client, batch: Batch, spans: list[tuple[int, int]]) -> Task:
    """The message that gives these rows of a batch, and the objects they need and it lacks, to an agent."""
    source = batch.task
    if (
        source.form == EACH
        and batch.needs is None
        and (client.number, source.function) in agent.holds
        and not client.objects[source.function].size
        and spans == [(0, batch.rows)]
    ):
        return source  # the client's message has all that the agent needs
    task = Task(
        client.number, batch.id, batch.rows, source.form, source.flags, source.function, source.arguments, source.name,
        source.priority, source.retries, source.timeout, source.capabilities, u32(chain.from_iterable(spans)),
    )  # fmt: skip
    if source.form == EACH:
        assert batch.offsets is not None
        offsets, body = batch.offsets, memoryview(source.bodies[0])
        if len(spans) == 1:
            lo, hi = spans[0]
            task.sizes = source.sizes if hi - lo == batch.rows else source.sizes[lo:hi]
            payload: Frame = source.bodies[0] if hi - lo == batch.rows else bytes(body[offsets[lo] : offsets[hi]])
        else:
            for lo, hi in spans:
                task.sizes.extend(source.sizes[lo:hi])
            payload = b"".join(body[offsets[lo] : offsets[hi]] for lo, hi in spans)
        task.bodies.append(payload)
    stored: dict[int, None] = {}
    lend(agent, client, task, source.function, stored)
    if source.arguments:
        lend(agent, client, task, source.arguments, stored)
    if batch.needs is not None:
        located, counts, ids, indexes = client.located, u32(), u64(), i32()
        for lo, hi in spans:
            for row in range(lo, hi):
                needs = batch.needs[row]
                counts.append(len(needs))
                for value in needs:
                    object_id, index = located.get(value) or (value, -1)
                    ids.append(object_id)
                    indexes.append(index)
                    lend(agent, client, task, object_id, stored)
        task.dependency_counts, task.dependencies, task.indexes = counts, ids, indexes
    if source.wanted:
        task.wanted = source.wanted
    for object_id in stored:
        item = client.objects[object_id]
        task.stored.append(object_id)
        task.stored_sizes.append(item.size)
        task.holder_counts.append(len(item.copies))
        task.holders.extend(item.copies)
    return task


def lend(agent: Agent, client: Client, task: Task, object_id: int, stored: dict[int, None]) -> None:
    """Put an object into the message if the agent doesn't have it; only note it if it is stored."""
    key = (client.number, object_id)
    if key in agent.holds:
        if client.objects[object_id].size:
            stored[object_id] = None
        return
    item = client.objects[object_id]
    agent.holds.add(key)
    item.holders.add(agent.number)
    if item.size:
        stored[object_id] = None
        return
    task.objects.append(object_id)
    task.bodies.append(item.payload)
