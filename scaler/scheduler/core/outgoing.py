"""What one `handle` of the scheduler's core is going to send, gathered so that each peer gets few, large messages."""

from collections.abc import Iterable, Sequence

from scaler.errors import ProtocolError
from scaler.protocol.codes import MOST_ASKED
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.failures import task_words
from scaler.protocol.messages import (
    AgentsInUse,
    BalanceRequest,
    ClientIntroduction,
    Frame,
    Message,
    Neighbours,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    TaskCancel,
    TaskClaim,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import FULL, ResultBuilder, SpanResult, parts_within
from scaler.scheduler.core import settling
from scaler.scheduler.core.dispatching import parted, task_for
from scaler.scheduler.core.events import Effect, Log, Send
from scaler.scheduler.state.agent_records import LOCAL_AGENT, AgentRecord
from scaler.scheduler.state.batch_records import AGENT, Batch
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.views.story import Stories

#: agents that are gone are known to another one until they are as many as are there, and so many more
FEW_AGENTS = 16
#: releases of objects wait for the next message to the agent until they are this many, or this large together
RELEASE_COUNT = 256
RELEASE_BYTES = 1 << 16
#: values that one answer to a client is about, at most: they take about as much as the rest of it
MOST_ANSWERED = 32
#: stories that are told with errors in one step, at most
STORIES = 32
#: the errors that say what happened to the row
WITH_STORY = frozenset({ErrorKind.LOST, ErrorKind.TIMEOUT, ErrorKind.MEMORY, ErrorKind.OBJECT})


class Outgoing:
    """Effects in order, with results and tasks grouped by receiver."""

    __slots__ = (
        "_asked",
        "_full",
        "_heard_of",
        "_questions",
        "_results",
        "_stories",
        "_stories_left",
        "effects",
        "limit",
        "sent",
        "unsendable",
    )

    def __init__(self, stories: Stories, limit: int = FULL) -> None:
        self._stories = stories
        #: bytes of results that a message may have, and after which another one is begun
        self.limit, self._full = limit, min(FULL, limit)
        #: stories that may still be told in this step
        self._stories_left = STORIES
        self.effects: list[Effect] = []
        #: number of the client -> messages that it was sent
        self.sent: dict[int, int] = {}
        #: clients of whose rows agents have told in this step; a dict serves as an ordered set
        self._heard_of: dict[ClientRecord, None] = {}
        #: number of the client -> its next TaskResult
        self._results: dict[int, ResultBuilder] = {}
        #: clients that are asked for values -> ids of these; the inner dict serves as an ordered set
        self._asked: dict[ClientRecord, dict[int, None]] = {}
        #: what comes behind everything else: agent, client (None: it is no matter of one) and message
        self._questions: list[tuple[int, int | None, Message]] = []
        #: batches with rows that were to be sent to agents, which has met a defect
        self.unsendable: list[tuple[Batch, Exception]] = []

    @property
    def is_empty(self) -> bool:
        """Nothing is to be sent."""
        return not (self.effects or self._results or self._asked or self._questions)

    def send(self, number: int, message: Message) -> None:
        """Send a message; results gathered for this peer go first."""
        if self._results:
            self.flush_results(number)
        if number in self.sent:
            self.sent[number] += 1
        self.effects.append(Send(number, message))

    def answer_read(self, number: int, value: int, agent: int, reason: str) -> None:
        """Tell a client which agent has a value, or why none (0) has; what it was told just before may say so, too."""
        last = self.effects[-1] if self.effects else None
        if isinstance(last, Send) and last.number == number and type(last.message) is ObjectResponse:
            said = last.message
            if said.agent == agent and said.reason == reason and len(said.ids) < MOST_ANSWERED:
                said.add(number, value, not agent)
                return
        self.send(number, ObjectResponse(u32([number]), u64([value]), u8([not agent]), agent, reason))

    def with_story(self, batch: Batch, row: int, record: Frame) -> Frame:
        """The error record of a row that ends because of losses, with its story as a note; other records as they are.

        Of many rows that end in one step only the first have one, since a story costs a look at all facts.
        """
        if len(record) < 2 or record[1] not in WITH_STORY or not self._stories_left:
            return record
        try:
            decoded = ErrorRecord.decode(record)
        except ProtocolError:
            return record  # its client says so
        if decoded.notes:
            return record
        self._stories_left -= 1
        story = self._stories.of(batch.client, batch.id, row)
        heading = f"What happened to {task_words(batch.function.name, batch.id + row)}:"
        return decoded.with_note("\n  ".join([heading, *story])).encode()

    def log(self, level: str, text: str) -> None:
        """Write a line to the log."""
        self.effects.append(Log(level, text))

    def ask(self, agent: int, client: int, message: TaskCancel | TaskClaim) -> None:
        """Ask an agent for rows of a client, some of which it may only be given now: behind all tasks."""
        self._questions += [(agent, client, part) for part in message.parts()]

    def ask_for(self, client: ClientRecord, values: Sequence[int]) -> None:
        """Ask a client for values, together with all others that this step asks it for, behind its results."""
        self._asked.setdefault(client, {}).update(dict.fromkeys(values))

    def ask_back(self, agent: int, request: BalanceRequest) -> None:
        """Ask an agent for rows that others are to have, some of which it may only be given now: behind all tasks."""
        self._questions.append((agent, None, request))

    def ask_no_more(self, client: int) -> None:
        """A client's rows are forgotten."""
        self._questions = [question for question in self._questions if question[1] != client]

    def result(self, client: int, span: SpanResult) -> None:
        """Add a span to the client's next TaskResult."""
        for part in (span,) if len(span.body) <= self.limit else parts_within(span, self._full):
            builder = self._results.get(client)
            if builder is not None and builder.size + len(part.body) > self._full:
                self.flush_results(client)
                builder = None
            if builder is None:
                builder = self._results[client] = ResultBuilder(client)
            builder.add(part)

    def cancelled(self, client: int, batch: int, spans: list[tuple[int, int]]) -> None:
        """Add spans of a batch that all end as cancelled to the client's next TaskResult."""
        builder = self._results.get(client)
        if builder is None:
            builder = self._results[client] = ResultBuilder(client)
        builder.add_cancelled(batch, spans)

    def flush_results(self, client: int) -> None:
        """Send what was gathered for this client."""
        builder = self._results.pop(client, None)
        if builder is not None:
            self.sent[client] += 1
            self.effects.append(Send(client, builder.build()))

    def flush(self, state: ClusterState) -> list[Effect]:
        """All effects of the step; nothing is left afterwards but what is `unsendable`."""
        for client in list(self._results):
            self.flush_results(client)
        if self._asked:
            self._flush_asked()
        if self._heard_of:
            for record in self._heard_of:
                if record.number in self.sent:
                    settling.note_sent(state, record, self.sent[record.number])
            self._heard_of.clear()
        for agent in state.touched:
            if agent.holdings.released and (agent.unsent or agent.number not in state.returning.late):
                self._flush_releases(agent)  # not while it is to end rows, which may need it
            if agent.unsent:
                self._flush_tasks(state, agent)
        state.touched.clear()
        if self._questions:
            self.effects += [Send(number, message) for number, _, message in self._questions if number in state.agents]
            self._questions.clear()
        self._stories_left = STORIES
        effects, self.effects = self.effects, []
        return effects

    def note_results(self, client: ClientRecord, agent: AgentRecord) -> None:
        """An agent has told of a client's rows; what follows from it is in this step."""
        if agent.number != LOCAL_AGENT:
            agent.clients[client.number] = None
            settling.count_results(client, agent.number)
            self._heard_of[client] = None

    def meet(self, client: ClientRecord, agent: AgentRecord) -> None:
        """An agent may have something of a client from now on; both are told, for a scheduler that comes after.

        A client is not told of the standalone store, which ends with this scheduler: nobody should wait for it.
        """
        if agent.number in client.agents:
            return
        client.agents.add(agent.number)
        agent.clients[client.number] = None
        if agent.number != LOCAL_AGENT:
            self.effects.append(Send(agent.number, ClientIntroduction(client.number, client.session)))
            if not agent.is_standalone:
                self.send(client.number, AgentsInUse(u32([agent.number]), whereabouts=(agent.host.whereabouts,)))

    def introduce(self, state: ClusterState, agent: AgentRecord, holders: Iterable[int]) -> None:
        """Tell an agent where it can ask those for objects that it was not told of yet; and which others are gone."""
        known = agent.introduced
        strangers = [state.agents[number] for number in holders if number not in known and number in state.agents]
        strangers = [other for other in strangers if other is not agent]
        if strangers:
            gone = known - state.agents.keys() if len(known) > 2 * len(state.agents) + FEW_AGENTS else ()
            known.difference_update(gone)
            known.update(other.number for other in strangers)
            addresses = [""] * len(gone) + [other.host.data for other in strangers]
            numbers = [*gone, *(other.number for other in strangers)]
            self.effects.append(Send(agent.number, Neighbours(u32(numbers), tuple(addresses))))

    def _flush_asked(self) -> None:
        """Ask for what has not come since, nor been forgotten: a row may need a million values that nobody knows."""
        asked, self._asked = self._asked, {}
        for client, values in asked.items():
            ids = [value for value in values if value in client.values.asked]
            for first in range(0, len(ids), MOST_ASKED):
                part = ids[first : first + MOST_ASKED]
                self.send(client.number, ObjectRequest(u32([client.number]) * len(part), u64(part)))

    def _flush_releases(self, agent: AgentRecord) -> None:
        """Releases go along with the next tasks, unless they are worth a message of their own."""
        holdings = agent.holdings
        if agent.unsent or holdings.released_bytes > RELEASE_BYTES or len(holdings.released) > RELEASE_COUNT:
            holdings.released_bytes = 0
            released, holdings.released = holdings.released, []
            release = ObjectRelease(u32([c for c, _ in released]), u64([i for _, i in released]))
            self.effects.append(Send(agent.number, release))

    def _flush_tasks(self, state: ClusterState, agent: AgentRecord) -> None:
        unsent, agent.unsent = agent.unsent, {}
        for batch, spans in unsent.items():
            if batch.has_come_back:  # rows that this step gave to the agent may have ended in it, as was told before
                spans = [left for lo, hi in spans for left in batch.spans_in(AGENT + agent.number, lo, hi)]
                if not spans:
                    continue
            client = state.clients[batch.client]
            self.meet(client, agent)
            if agent.number != LOCAL_AGENT and (batch.keeps or batch.task.retries):
                batch.keep_at(agent.number)
            try:
                task = task_for(agent, client, batch, spans)
            except Exception as error:
                self.unsendable.append((batch, error))
                continue
            if task.holders:
                self.introduce(state, agent, dict.fromkeys(task.holders))
            if agent.number == LOCAL_AGENT:
                self.effects.append(Send(agent.number, task))
            else:
                self.effects += [Send(agent.number, part) for part in parted(task, self.limit)]
