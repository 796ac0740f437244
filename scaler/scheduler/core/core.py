"""The scheduler's brain: `handle(events, now) -> effects`, and nothing else can change it.

It decides where rows run and in which order, counts what depends on what, and notices who is gone. It holds payloads as
opaque bytes. `rows.py` has the life of rows, `placement.py` says who gets them, this file who may say what.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scaler.errors import ProtocolError
from scaler.protocol.failures import results_unreadable
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    FAILED,
    GRAPH,
    LOST,
    STORED,
    STORED_OBJECT,
    VALUES_EACH,
    VALUES_LIST,
    BalanceRequest,
    BalanceResponse,
    ClientClear,
    ClientDeparture,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Heartbeat,
    HeartbeatEcho,
    Message,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    ShutdownResponse,
    Spans,
    StoreRequest,
    Task,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskOutput,
    TaskResult,
    TaskRunning,
    u32,
)
from scaler.protocol.results import SpanResult, each_of, spans_of
from scaler.scheduler.core.events import Effect, Event, Forget, Joined, Log, Lost, Received, Stop, WakeAt
from scaler.scheduler.core.outbox import RELEASE_BYTES, Outbox
from scaler.scheduler.core.placement import Estimates, Placement
from scaler.scheduler.core.queues import ReadyQueues
from scaler.scheduler.core.rows import Rows
from scaler.scheduler.core.state import AGENT, Agent, Batch, Client
from scaler.scheduler.core.stores import Stores


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler's operator decides, as in the options of these names; seconds."""

    client_timeout: float
    agent_timeout: float
    retries_on_loss: int
    protected: bool


class SchedulerCore:
    """See the module's text. `clients` and `agents` are for looking at, not for changing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._queues = ReadyQueues()
        self._estimates = Estimates()
        self._outbox = Outbox()
        self._placement = Placement(self._queues, self._estimates, self._outbox.agents, {})
        self._rows = Rows(self._queues, self._placement, self._outbox, limits.retries_on_loss)
        self._stores = Stores(self._rows, self._outbox)
        self.clients = self._rows.clients
        self.agents = self._rows.agents
        self._now = 0.0
        self._next_check: float | None = None
        #: rows finished since the start, by outcome, for monitors
        self.finished = {"success": 0, "failed": 0, "canceled": 0}
        self._of_client: dict[type[Message], Callable[[Client, Any], None]] = {
            Task: self._task,
            TaskCancel: self._task_cancel,
            TaskClaim: self._task_claim,
            ObjectAnnounce: self._object_announce,
            ObjectRelease: self._object_release,
            ObjectRequest: self._stores.read,
            StoreRequest: lambda client, message: self._stores.request(client, message.beside),
            Heartbeat: self._client_heartbeat,
            DisconnectRequest: self._disconnect_request,
            ClientShutdown: self._client_shutdown,
            ClientClear: self._client_clear,
        }
        self._of_agent: dict[type[Message], Callable[[Agent, Any], None]] = {
            TaskResult: self._task_result,
            TaskRunning: self._task_running,
            TaskClaimResponse: self._task_claim_response,
            TaskOutput: self._task_output,
            BalanceResponse: self._balance_response,
            ObjectAnnounce: self._stores.announced_by_agent,
            ObjectGone: self._stores.gone,
            ObjectMissing: self._object_missing,
            ObjectResponse: lambda agent, message: self._stores.responded(agent, message, self._now),
            Heartbeat: self._agent_heartbeat,
            DisconnectRequest: self._agent_leaves,
        }

    # ---- the door --------------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it."""
        self._now = now
        for event in events:
            if isinstance(event, Received):
                self._received(event.number, event.message)
            elif isinstance(event, Joined):
                self._joined(event)
            elif isinstance(event, Lost):
                self._lost(event.number, event.reason)
        if self._next_check is not None and now >= self._next_check:
            self._check_liveness()
        if self._queues:
            self._placement.place()
        for agent, rows in self._placement.recalls():
            self._outbox.send(agent.number, BalanceRequest(rows))
        self._plan_wake()
        return self._outbox.flush(self.clients, self.agents)

    @property
    def workers(self) -> int:
        """Workers in the whole cluster."""
        return self._placement.workers

    @property
    def queued(self) -> int:
        """Rows that are ready and have no place at an agent."""
        return self._queues.rows

    def estimates(self, functions: int) -> tuple[float, list[tuple[str, float]]]:
        """What was learnt: bytes a second between hosts; names of the longest functions, with microseconds a row."""
        return self._placement.bandwidth, self._estimates.longest(functions)

    def _received(self, number: int, message: Message) -> None:
        client = self.clients.get(number)
        if client is not None:
            client.seen = self._now
            handler = self._of_client.get(type(message))
            if handler is not None:
                handler(client, message)
                return
        else:
            agent = self.agents.get(number)
            if agent is None:
                return  # gone already; its session is refused by the shell
            agent.seen = self._now
            handle = self._of_agent.get(type(message))
            if handle is not None:
                handle(agent, message)
                return
        self._lost(number, f"sent a {type(message).__name__}, which is not its to send")

    def _joined(self, event: Joined) -> None:
        hello = event.hello
        if hello.role == "client":
            self.clients[event.number] = Client(event.number, hello.name, self._now, boot_id=hello.boot_id)
        else:
            agent = Agent(
                event.number, hello.name, hello.workers, frozenset(hello.capabilities), self._now,
                boot_id=hello.boot_id, store=hello.store, token=hello.token, data=hello.data,
                beside=hello.role == "store",
            )  # fmt: skip
            self.agents[event.number] = agent
            self._placement.add(agent)
            self._stores.joined(agent)
        self._log("INFO", f"{hello.role} {event.number} joined: {hello.name}")

    def _lost(self, number: int, reason: str) -> None:
        client, agent = self.clients.get(number), self.agents.get(number)
        if client is not None:
            self._log("INFO", f"client {number} ({client.name}) is gone: {reason}; dropped {client.outstanding} rows")
            self._depart(client)
        elif agent is not None:
            self._log(
                "WARNING", f"agent {number} ({agent.name}) is gone: {reason}; {agent.outstanding} rows run elsewhere"
            )
            self._rows.agent_lost(agent, reason)
            self._stores.left(agent)
            self._answer_for(agent)
        else:
            return
        self._outbox.effects.append(Forget(number, reason))

    def _log(self, level: str, text: str) -> None:
        self._outbox.effects.append(Log(level, text))

    # ---- liveness --------------------------------------------------------------------------------------------------
    def _plan_wake(self) -> None:
        if not self.clients and not self.agents:
            self._next_check = None
        elif self._next_check is None:
            self._next_check = self._now + min(self._limits.client_timeout, self._limits.agent_timeout) / 4
            self._outbox.effects.append(WakeAt(self._next_check))

    def _check_liveness(self) -> None:
        assert self._next_check is not None
        late, self._next_check = self._now - self._next_check, None
        if late > 1.0:  # this process was stopped, and can't tell who was silent meanwhile
            for client in self.clients.values():
                client.seen += late
            for agent in self.agents.values():
                agent.seen += late
        for agent in self.agents.values():
            if agent.cut:
                self._rows.reach.forget_cuts(agent, self._now)
            if agent.released:
                agent.released_bytes = RELEASE_BYTES + 1
                self._outbox.agents.setdefault(agent)
        limits = self._limits
        peers: tuple[tuple[Mapping[int, Client | Agent], float], ...] = (
            (self.clients, limits.client_timeout),
            (self.agents, limits.agent_timeout),
        )
        for members, timeout in peers:
            for number in [n for n, peer in members.items() if self._now - peer.seen > timeout]:
                self._lost(number, f"silent for {timeout:g} s")

    def _client_heartbeat(self, client: Client, message: Heartbeat) -> None:
        self._outbox.send(client.number, HeartbeatEcho(message.clock, self.workers))

    def _agent_heartbeat(self, agent: Agent, message: Heartbeat) -> None:
        agent.stored = message.stored
        self._placement.moves(agent, message.bandwidth)
        if message.workers != agent.workers or message.full != agent.full:
            agent.full = message.full
            self._placement.resized(agent, message.workers)
        self._outbox.send(agent.number, HeartbeatEcho(message.clock, self.workers))

    # ---- what clients say ------------------------------------------------------------------------------------------
    def _task(self, client: Client, task: Task) -> None:
        if task.spans.tolist() != [0, task.rows]:
            self._lost(client.number, "sent a Task that is not a whole batch")
            return
        task.client = client.number
        self._rows.admit(client, task)
        if task.capabilities and not self._placement.can_ever_run(task.capabilities):
            self._log(
                "WARNING", f"{task.name} needs {', '.join(task.capabilities)}, which no agent has yet: its rows wait"
            )

    def _task_cancel(self, client: Client, message: TaskCancel) -> None:
        forward: dict[int, Spans] = {}
        for batch, lo, hi in self._known(client, message.spans):
            taken, elsewhere = self._rows.withdraw(client, batch, lo, hi)
            for a, b in taken:
                self.finished["canceled"] += b - a
                self._rows.cancel(client, batch, a, b)
            self._ask(client, batch, elsewhere, forward, "force" if message.force else "cancel")
        for number, spans in forward.items():
            self._outbox.ask(number, client.number, TaskCancel(spans, message.force))

    def _task_claim(self, client: Client, message: TaskClaim) -> None:
        granted, refused = Spans(), Spans()
        forward: dict[int, Spans] = {}
        for _, batch_id, lo, hi in message:
            batch = client.batches.get(batch_id)
            if batch is None or hi > batch.rows or batch.task.form == GRAPH or batch.again:
                refused.add(client.number, batch_id, lo, hi)
                continue
            taken, elsewhere = self._rows.withdraw(client, batch, lo, hi)
            asked = sum(b - a for a, b in taken) + sum(b - a for spans in elsewhere.values() for a, b in spans)
            if asked < hi - lo:  # some have ended: their results are on the way
                refused.add(client.number, batch_id, lo, hi)
            for a, b in taken:
                granted.add(client.number, batch_id, a, b)
                self._rows.hand_over(client, batch, a, b)
            self._ask(client, batch, elsewhere, forward, "claim")
        if granted or refused:
            self._outbox.send(client.number, TaskClaimResponse(granted, refused))
        for number, spans in forward.items():
            self._outbox.ask(number, client.number, TaskClaim(spans.clients, spans.batches, spans.spans))

    def _known(self, client: Client, spans: Spans) -> Iterable[tuple[Batch, int, int]]:
        for _, batch_id, lo, hi in spans:
            batch = client.batches.get(batch_id)
            if batch is not None and hi <= batch.rows:
                yield batch, lo, hi

    def _ask(
        self,
        client: Client,
        batch: Batch,
        elsewhere: dict[int, list[tuple[int, int]]],
        forward: dict[int, Spans],
        what: str,
    ) -> None:
        for number, spans in elsewhere.items():
            agent = self.agents[number]
            for lo, hi in spans:
                agent.asked.append((what, batch, lo, hi))
                forward.setdefault(number, Spans()).add(client.number, batch.id, lo, hi)

    def _answer_for(self, agent: Agent) -> None:
        """Rows that an agent was asked for are not there any more: what is queued again can be taken here.

        A claim is answered by the agent in any case, unless it is lost.
        """
        place, lost = AGENT + agent.number, agent.number not in self.agents
        asked, agent.asked = agent.asked, []
        for ask in asked:
            what, batch, lo, hi = ask
            client = self.clients.get(batch.client)
            if client is None or not batch.left:
                continue
            if place in batch.place[lo:hi] or (what == "claim" and not lost):
                agent.asked.append(ask)
                continue
            spans = Spans()
            spans.add(batch.client, batch.id, lo, hi)
            if what == "claim":
                self._task_claim(client, TaskClaim(spans.clients, spans.batches, spans.spans))
            else:
                self._task_cancel(client, TaskCancel(spans, what == "force"))

    def _object_announce(self, client: Client, message: ObjectAnnounce) -> None:
        stored: list[tuple[int, bytes]] = []
        for object_id, kind, body in zip(message.ids, message.kinds, message.bodies, strict=True):
            if kind == STORED_OBJECT:
                stored.append((object_id, bytes(body)))
            elif kind == FAILED:
                self._rows.announce_failed(client, object_id, body)
            else:
                self._rows.announce(client, object_id, body)
        if stored:
            self._stores.announced_by_client(client, [i for i, _ in stored], [body for _, body in stored])

    def _object_missing(self, agent: Agent, message: ObjectMissing) -> None:
        self._stores.missing(agent, message, self._now)
        self._placement.changed(agent)

    def _object_release(self, client: Client, message: ObjectRelease) -> None:
        for _, object_id in message:
            self._rows.release(client, object_id)

    def _disconnect_request(self, client: Client, message: DisconnectRequest) -> None:
        self._log("INFO", f"client {client.number} ({client.name}) disconnected")
        self._depart(client)
        self._outbox.send(client.number, DisconnectResponse())
        self._outbox.effects.append(Forget(client.number, "disconnected"))

    def _client_clear(self, client: Client, message: ClientClear) -> None:
        for number in self._rows.drop_client_work(client):
            self._outbox.send(number, ClientDeparture(client.number, stays=True))

    def _depart(self, client: Client) -> None:
        for number in self._rows.drop_client_work(client):
            self._outbox.send(number, ClientDeparture(client.number))
        self._outbox.flush_results(client.number)
        self._estimates.forget_client(client.number)
        del self.clients[client.number]

    def _client_shutdown(self, client: Client, message: ClientShutdown) -> None:
        if self._limits.protected:
            reason = "this scheduler runs in protected mode; start it with --no-protected to let clients shut it down"
            self._outbox.send(client.number, ShutdownResponse(False, reason))
            return
        self._outbox.send(client.number, ShutdownResponse(True, ""))
        for number in self.agents:
            self._outbox.send(number, ClientShutdown())
        self._outbox.effects.append(Stop())

    # ---- what agents say -------------------------------------------------------------------------------------------
    def _task_result(self, agent: Agent, message: TaskResult) -> None:
        client = self.clients.get(message.client)
        if client is None:
            return  # it left while this was on the way; its rows are accounted for
        place = AGENT + agent.number
        spans = list(spans_of(message))
        plain = all(self._is_plain(client, span, place) for span in spans)
        learnt: dict[Batch, tuple[int, int]] = {}
        for span in spans:
            batch = client.batches.get(span.batch)
            if batch is None or span.hi > batch.rows:
                if span.outcome == STORED:
                    self._rows.objects.release_now(
                        agent, client.number, [span.batch + row for row in range(span.lo, span.hi)]
                    )
                continue
            if not batch.are(span.lo, span.hi, place):
                self._half_known(agent, batch, span.lo, span.hi)
                continue
            if span.outcome == VALUES_LIST and (batch.keeps or batch.again):  # its values are needed one by one
                try:
                    span = each_of(span)
                except ProtocolError as problem:
                    self._unreadable(agent, client, batch, span, str(problem))
                    return
            if span.outcome <= ERROR or span.outcome == STORED:
                rows, us = learnt.get(batch, (0, 0))
                learnt[batch] = rows + span.hi - span.lo, us + span.duration
                self.finished["failed" if span.outcome == ERROR else "success"] += span.hi - span.lo
            elif span.outcome == CANCELLED:
                self.finished["canceled"] += span.hi - span.lo
            if plain:
                self._rows.finished_as_said(agent, client, batch, span)
            else:
                self._rows.ended(agent, client, batch, span)
            if span.outcome == LOST:
                self._log(
                    "WARNING", f"{batch.task.name}[{batch.id + span.lo}]: {bytes(span.body).decode(errors='replace')}"
                )
        if plain:
            self._outbox.pass_on(client.number, message)
        for batch, (rows, us) in learnt.items():
            self._placement.learnt(agent, self._estimates.learn(batch, rows, us))
        self._placement.changed(agent)
        if agent.asked:
            self._answer_for(agent)

    @staticmethod
    def _is_plain(client: Client, span: SpanResult, place: int) -> bool:
        """Values that nobody but the client needs, and all of them expected from this agent."""
        batch = client.batches.get(span.batch)
        return (
            batch is not None
            and span.outcome <= VALUES_EACH
            and not (batch.keeps or batch.waiters or batch.again)
            and span.hi <= batch.rows
            and batch.are(span.lo, span.hi, place)
        )

    def _unreadable(self, agent: Agent, client: Client, batch: Batch, span: SpanResult, problem: str) -> None:
        """An agent's list of values is none: its session ends, and for these rows this was an attempt."""
        why = results_unreadable(agent.name, problem).encode()
        for row in range(span.lo, span.hi):
            self._rows.ended(agent, client, batch, SpanResult(batch.id, row, row + 1, LOST, 0, 0, u32([len(why)]), why))
        self._lost(agent.number, f"sent {problem}")

    def _half_known(self, agent: Agent, batch: Batch, lo: int, hi: int) -> None:
        """A span that is only in part this agent's: what is, runs again; what isn't, is not its to say."""
        for a, b in batch.spans_in(AGENT + agent.number):
            a, b = max(a, lo), min(b, hi)
            if a < b:
                self._log(
                    "WARNING",
                    f"agent {agent.number} said of {batch.task.name} more than it had: {b - a} rows run again",
                )
                self._rows.given_back(agent, batch, a, b)

    def _task_running(self, agent: Agent, message: TaskRunning) -> None:
        for client, batch, lo, hi in self._rows.theirs(agent, message):
            agent.asked = [
                ask for ask in agent.asked if ask[0] == "claim" or ask[1] is not batch or ask[3] <= lo or hi <= ask[2]
            ]
            running = TaskRunning()
            running.add(client.number, batch.id, lo, hi)
            self._outbox.send(client.number, running)

    def _task_claim_response(self, agent: Agent, message: TaskClaimResponse) -> None:
        granted: dict[Client, Spans] = {}
        refused: dict[Client, Spans] = {}
        for client, batch, lo, hi in list(self._rows.theirs(agent, message.granted)):
            self._rows.leave(agent, batch, lo, hi)
            self._rows.hand_over(client, batch, lo, hi)
            granted.setdefault(client, Spans()).add(client.number, batch.id, lo, hi)
        for number, batch_id, lo, hi in message.refused:
            claimer = self.clients.get(number)
            if claimer is not None:
                refused.setdefault(claimer, Spans()).add(number, batch_id, lo, hi)
        answered = {(number, batch_id) for number, batch_id, _, _ in (*message.granted, *message.refused)}
        agent.asked = [ask for ask in agent.asked if ask[0] != "claim" or (ask[1].client, ask[1].id) not in answered]
        self._placement.changed(agent)
        for client in {**granted, **refused}:
            self._outbox.send(
                client.number, TaskClaimResponse(granted.get(client, Spans()), refused.get(client, Spans()))
            )

    def _balance_response(self, agent: Agent, message: BalanceResponse) -> None:
        agent.recalling = False
        before = agent.outstanding
        for _, batch, lo, hi in list(self._rows.theirs(agent, message)):
            self._rows.given_back(agent, batch, lo, hi)
        agent.barren = agent.outstanding >= before  # it gave nothing back that can run elsewhere
        self._placement.changed(agent)
        if agent.asked:
            self._answer_for(agent)

    def _task_output(self, agent: Agent, message: TaskOutput) -> None:
        if message.client in self.clients:
            self._outbox.send(message.client, message)

    def _agent_leaves(self, agent: Agent, message: DisconnectRequest) -> None:
        self._lost(agent.number, "it said goodbye")
