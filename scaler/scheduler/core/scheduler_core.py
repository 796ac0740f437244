"""The scheduler's brain: `handle(events, now) -> effects`, and nothing else can change it.

It decides where rows run and in which order, counts what depends on what, and notices who is gone; payloads are opaque
bytes to it. This file says who may say what and who deals with it. What is decided comes back as moves, which the
worklist makes; `state/transitions.py` alone moves rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from scaler import defaults
from scaler.common.records import frozen
from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    Ack,
    BalanceResponse,
    ClientClear,
    ClientReturn,
    ClientShutdown,
    Command,
    DisconnectRequest,
    DisconnectResponse,
    Heartbeat,
    HeartbeatEcho,
    HostReport,
    Inventory,
    Message,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    Query,
    QueryResult,
    ShutdownResponse,
    StoreRequest,
    Task,
    TaskBegun,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskOutput,
    TaskResult,
    TaskRunning,
    Watch,
)
from scaler.protocol.results import SpanResult, spans_of
from scaler.scheduler.core import (
    admission,
    agent_heartbeats,
    balancing,
    batch_cost,
    crowding,
    defects,
    draining,
    late_rows,
    lifetimes,
    mail,
    peer_timeouts,
    peers,
    placement,
    reading,
    recomputing,
    reported_results,
    returning,
    roots,
    settling,
    store_choice,
    stored_objects,
    unmet,
    unread,
    watching,
    withdrawing,
)
from scaler.scheduler.core.events import (
    Announce,
    AwaitResidents,
    Effect,
    Event,
    Forget,
    HandOut,
    Joined,
    Lost,
    Moved,
    Received,
    Stirred,
    Stop,
    Unread,
    Vanished,
    WakeAt,
)
from scaler.scheduler.core.moves import Move, Route
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.core.worklist import Worklist
from scaler.scheduler.state.agent_records import AgentRecord
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.monitor_records import MonitorRecord
from scaler.scheduler.state.transitions import Cause, IllegalMove
from scaler.scheduler.views.story import Stories

if TYPE_CHECKING:
    from scaler.scheduler.core.rebuilding import Rebuilding

#: clients that are looked at after each step
FEW_CLIENTS = 8


@frozen
class Limits:
    """What the scheduler's operator decides, as in the options of these names; seconds."""

    client_timeout: float
    agent_timeout: float
    retries_on_loss: int
    protected: bool
    #: bytes
    max_message_bytes: int = defaults.MAX_MESSAGE_BYTES
    #: bytes of memory that tasks and objects of all clients may take here; no option: it follows from the machine's
    kept_bytes: int = 1 << 62


class SchedulerCore:
    """Decides for a whole cluster. `state` is for looking at, and for subscribing to its facts; nobody else changes it.

    With `strict` a move that is not in the table of transitions is raised as `IllegalMove`, for tests. Otherwise it is
    logged with the story of the row, its batch ends with an error, and the scheduler goes on. Any other exception that
    a message, or what is made of it, leads to costs its sender the session, and is raised only if it has left the state
    in disorder.
    """

    def __init__(self, limits: Limits, strict: bool = False) -> None:
        self.state = state = ClusterState()
        self.stories = Stories(state)
        self._limits = limits
        self._strict = strict
        #: what was raised in this step while a message was dealt with: the state may be in disorder
        self._doubt: Exception | None = None
        self._out = out = Outgoing(self.stories, limits.max_message_bytes)
        self._worklist = Worklist(state, out, limits.retries_on_loss)
        #: bytes of memory that tasks and objects take at which it is looked who has most
        self._crowded = int(limits.kept_bytes * crowding.WARNED)
        self._next_check: float | None = None
        #: a client has ended the cluster
        self._is_ending = False
        #: when the last `WakeAt` was for
        self._wake: float | None = None
        #: what monitors have asked in this step about rows, with their numbers
        self._questions: list[tuple[int, Query]] = []
        self._of_client: dict[type[Message], Callable[[ClientRecord, Any], list[Move] | None]] = {
            Task: self._task,
            TaskCancel: partial(withdrawing.cancel, state, out),
            TaskHold: partial(withdrawing.hold, state, out),
            TaskClaim: partial(withdrawing.claim, state, out),
            ObjectAnnounce: self._object_announce,
            ObjectRelease: self._object_release,
            ObjectRequest: self._object_request,
            StoreRequest: lambda client, message: store_choice.request(state, out, client, message.standalone),
            Heartbeat: self._echo,
            ClientReturn: lambda client, message: None,  # it had nothing to come back with
            DisconnectRequest: self._client_leaves,
            ClientShutdown: self._client_shutdown,
            ClientClear: lambda client, message: peers.forget_work(state, out, client, stays=True),
        }
        self._of_agent: dict[type[Message], Callable[[AgentRecord, Any], list[Move] | None]] = {
            TaskResult: self._task_result,
            TaskBegun: partial(withdrawing.forward_begun, state, out),
            TaskRunning: partial(withdrawing.take_running, state, out),
            TaskClaimResponse: partial(withdrawing.take_claim_response, state, out),
            TaskOutput: self._task_output,
            BalanceResponse: self._balance_response,
            ObjectAnnounce: partial(stored_objects.take_copies, state, out),
            ObjectGone: lambda agent, gone: recomputing.lose_copies(state, agent.number, list(gone), gone.with_worker),
            ObjectMissing: self._object_missing,
            ObjectResponse: self._object_response,
            Heartbeat: partial(agent_heartbeats.take, state, out),
            Inventory: self._inventory,
            HostReport: partial(watching.take_report, state),
            QueryResult: self._agent_answers,
            DisconnectRequest: lambda agent, message: self._lost(agent.number, "it said goodbye"),
        }
        self._of_monitor: dict[type[Message], Callable[[MonitorRecord, Any], None]] = {
            Query: self._query,
            Command: self._command,
            Watch: partial(watching.take_watch, state, out),
            Heartbeat: self._echo,
            DisconnectRequest: lambda monitor, message: self._lost(monitor.number, "it said goodbye"),
        }

    # ---- the entry point -------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it."""
        state = self.state
        state.now = now
        for event in events:
            if isinstance(event, Received):
                self._received(event.number, event.message, event.ack)
            elif isinstance(event, Joined):
                limits = self._limits
                self._run(peers.join(state, self._out, event, limits.retries_on_loss, limits.agent_timeout))
                self._hasten_check()  # it may have to be waited for
            elif isinstance(event, Lost):
                self._lost(event.number, event.reason)
            elif isinstance(event, Moved):
                if event.number in state.agents:
                    peers.move(state, self._out, state.agents[event.number], event.data)
            elif isinstance(event, Stirred):
                peer_timeouts.stir(state, event.number)
            elif isinstance(event, Unread) and event.number in state.clients:
                unread.note(state, self._out, state.clients[event.number], event.bytes, event.oldest)
            elif isinstance(event, Vanished):
                returning.take_vanished(state, self._out, event)
            elif isinstance(event, HandOut):
                limits = self._limits
                returning.hand_out(state, event.may, event.reason, limits.client_timeout, limits.agent_timeout)
            elif isinstance(event, Announce):
                state.roster = event.roster
            elif isinstance(event, AwaitResidents):
                returning.await_residents(state, event.are_due, self._limits.client_timeout)
        if self._next_check is not None and now >= self._next_check:
            self._check_liveness()
        awaited = state.returning
        if awaited.clients or awaited.absent or (state.roots.awaited and roots.are_due(state)):
            self._attend_to_returning()
        if state.kept > self._crowded:
            self._attend_to_crowd()
        if state.leaving:
            draining.attend(state, self._out)
        if state.unsorted:
            placement.sort_agents(state)
        are_queued = bool(state.queues)
        if are_queued:
            try:
                self._worklist.share_out()
            except IllegalMove as error:
                self._contain(error)
        if state.hands_out and (are_queued or state.standing.rich):  # else nothing is asked for
            for agent, request in balancing.begin_recalls(state):
                self._out.ask_back(agent.number, request)
        if state.monitors:
            self._answer_questions()
            self._publish()
        if self._is_ending:
            self._end_all()
        if self._next_check is None or self._next_check != self._wake or state.monitors or self._is_ending:
            self._plan_wake()
        effects = self._out.flush(state)
        if self._out.unsendable:
            self._blame_unsendable()
            effects += self.handle((), now)  # each time some client less
        if self._doubt is not None:
            doubt, self._doubt = self._doubt, None
            effects.append(defects.check(state, doubt))
        state.facts.publish(now)
        return effects

    @property
    def workers(self) -> int:
        """Workers in the whole cluster."""
        return self.state.workers

    @property
    def is_idle(self) -> bool:
        """No client waits for a row, so whoever asks next may do so at once; False if there are many to look at."""
        clients = self.state.clients
        if len(clients) > FEW_CLIENTS:
            return False
        for client in clients.values():  # noqa: SIM110 - in each step: a generator takes twice as long
            if client.outstanding:
                return False
        return True

    @property
    def has_rows(self) -> bool:
        """Some client waits for a row. Looks at all clients."""
        return any(client.outstanding for client in self.state.clients.values())

    def _run(self, moves: list[Move]) -> None:
        if moves:
            try:
                self._worklist.run(moves)
            except IllegalMove as error:
                self._contain(error)

    def _contain(self, error: IllegalMove) -> None:
        """A defect of ours has come to light: in tests it is raised, otherwise it ends one batch."""
        if self._strict:
            raise error
        story = self.stories.of(error.batch.client, error.batch.id, error.row)
        self._run(defects.end_batch(self.state, self._out, error, story))

    def _received(self, number: int, message: Message, ack: int = 0) -> None:
        state = self.state
        client = state.clients.get(number)
        try:
            if client is not None:
                client.seen = state.now
                if ack > client.settling.received:
                    settling.acknowledge(state, client, ack)
                if type(message) is Ack or (state.returning.clients and returning.put_aside(state, number, message)):
                    return
                of_client = self._of_client.get(type(message))
                if of_client is not None:
                    moves = of_client(client, message)
                    if moves:
                        self._worklist.run(moves)
                    return
            else:
                agent = state.agents.get(number)
                if agent is None:
                    self._received_of_monitor(number, message)
                    return
                agent.seen = state.now
                if type(message) is Ack:
                    return
                if state.returning.agents:
                    returning.check_first(state, agent, message)
                if state.returning.clients or state.returning.absent:
                    for_now = mail.put_aside(state, agent, message)
                    if for_now is None:
                        return
                    message = for_now
                of_agent = self._of_agent.get(type(message))
                if of_agent is not None:
                    moves = of_agent(agent, message)
                    if moves:
                        self._worklist.run(moves)
                    return
        except IllegalMove as error:
            self._contain(error)
            return
        except ProtocolError as problem:  # what it says can't be
            self._refuse_said(number, problem)
            return
        except Exception as error:
            self._blame(number, f"a {type(message).__name__}", error)
            return
        self._refuse(number, message)

    def _blame(self, number: int, what: str, error: Exception) -> None:
        """Something of a peer has met a defect of ours: in tests that is raised, otherwise it costs it the session.

        After this step it is looked at whether all else is in order.
        """
        if self._strict:
            raise error
        self._doubt = error
        self._lost(number, defects.log_failure(self._out, number, what, error), is_told=True)

    def _blame_unsendable(self) -> None:
        """Rows that were to be sent have met a defect."""
        unsendable, self._out.unsendable = self._out.unsendable, []
        for batch, error in unsendable:
            if batch.client in self.state.clients:
                self._blame(batch.client, f"batch {batch.id}", error)

    def _make_room(self, client: ClientRecord, message: Task | ObjectAnnounce) -> None:
        """Give up those who have more kept than this client with what it is about to say, until that can be kept, too.

        Raises `TooMuch` if it has most itself.
        """
        state, limit = self.state, self._limits.kept_bytes
        more = crowding.coming_with(state, client, message, limit)
        while state.kept + more > limit:
            most = crowding.largest(state)
            if most is None or most.kept <= client.kept + more:
                raise crowding.TooMuch(crowding.words(state, client, limit, more))
            self._give_up(most)

    def _attend_to_crowd(self) -> None:
        """Give up who has most kept as long as all have too much; tell of it in time."""
        state, limit = self.state, self._limits.kept_bytes
        while state.kept > limit and (most := crowding.largest(state)) is not None:
            self._give_up(most)
        if state.kept > self._crowded:
            crowding.warn(state, self._out, limit)
            self._crowded = limit  # until it is looked who is silent: not in each step

    def _give_up(self, client: ClientRecord) -> None:
        self._refuse_said(client.number, crowding.TooMuch(crowding.words(self.state, client, self._limits.kept_bytes)))

    def _publish(self) -> None:
        """Make snapshots for monitors; should that meet a defect, no monitor stays."""
        try:
            watching.publish(self.state, self._out)
        except Exception as error:
            for number in list(self.state.monitors):
                self._blame(number, "a snapshot", error)

    def _query(self, monitor: MonitorRecord, message: Query) -> None:
        if message.kind == "output":
            from scaler.scheduler.core import relaying

            relaying.ask(self.state, self._out, monitor.number, message)
            return
        self._questions.append((monitor.number, message))

    def _answer_questions(self) -> None:
        """Answer what monitors have asked about rows, now that those are where they are after this step."""
        questions, self._questions = self._questions, []
        for number, query in questions:
            if number not in self.state.monitors:
                continue
            from scaler.scheduler.core import answering  # here, as a cluster should start without it

            try:
                self._out.send(number, answering.answer(self.state, self.stories, query))
            except Exception as error:
                self._blame(number, "a question", error)

    def _agent_answers(self, agent: AgentRecord, message: QueryResult) -> None:
        if self.state.watching.asked:
            from scaler.scheduler.core import relaying

            relaying.take_answer(self.state, self._out, agent, message)

    def _command(self, monitor: MonitorRecord, message: Command) -> None:
        from scaler.scheduler.core import commanding

        outcome = commanding.obey(self.state, self._out, monitor.number, message)
        self._run(outcome.moves)
        self._out.send(monitor.number, outcome.result)

    def _received_of_monitor(self, number: int, message: Message) -> None:
        monitor = self.state.monitors.get(number)
        if monitor is None:
            return  # gone already; its session is refused by the shell
        monitor.seen = self.state.now
        of_monitor = self._of_monitor.get(type(message))
        if of_monitor is not None:
            of_monitor(monitor, message)
        elif type(message) is not Ack:  # what one hears many answers at once says in between
            self._refuse(number, message)

    def _refuse(self, number: int, message: Message) -> None:
        self._lost(number, f"sent {type(message).__name__}, which is not its to send", is_told=True)

    def _refuse_said(self, number: int, problem: ProtocolError) -> None:
        self._lost(number, f"sent {problem}", is_told=True, is_final=isinstance(problem, crowding.TooMuch))

    def _lost(self, number: int, reason: str, is_told: bool = False, is_final: bool = False) -> None:
        state, client, agent = self.state, self.state.clients.get(number), self.state.agents.get(number)
        monitor = state.monitors.get(number)
        if client is not None:
            peers.drop_client(state, self._out, client, reason)
            self._run(roots.miss(state, self._out, client.root, self._limits.client_timeout))
        elif agent is not None:
            self._run(peers.lose_agent(state, self._out, agent, reason, self._limits.retries_on_loss))
            self._run(peers.settle_lost_agent(state, self._out, agent, self._limits.retries_on_loss))
        elif monitor is not None:
            peers.drop_monitor(state, self._out, monitor, reason)
        else:
            return
        self._out.effects.append(Forget(number, reason, is_told, is_final))

    # ---- after another scheduler -----------------------------------------------------------------------------------
    def _attend_to_returning(self) -> None:
        """Put together the work of clients of which all is known; give up those that don't come."""
        state = self.state
        if not returning.may_be_elsewhere(state):
            sessions = returning.give_up_absent(state, self._out)
            self._run(roots.give_up_absent(state, self._out, sessions, self._limits.client_timeout))
        for number in returning.complete(state):
            client = state.clients[number]
            try:
                self._rebuild(client)
            except ProtocolError as problem:
                self._refuse_said(number, problem)
                continue
            except Exception as error:
                self._blame(number, "work of another scheduler", error)
                continue
            self._out.log("INFO", f"client {number} ({client.name}) is here, with {client.outstanding} rows")
        returning.tell_of_waiting(state, self._out)
        returning.look_for_missing(state, self._out)

    def _rebuild(self, client: ClientRecord) -> None:
        from scaler.scheduler.core import rebuilding  # here, as a cluster should start without it

        state = self.state
        work = rebuilding.Rebuilding(state, self._out, client)
        work.end_unknown()
        work.restore_ended()
        for i, message in enumerate(work.messages[: work.first_new]):
            if type(message) is Task and work.is_said_again(i, message):
                self._check_task(client, message)
                self._run(work.admit(message))
            elif not self._hear_returned(client, work, message):
                return
        for agent, span in work.results:
            try:
                self._take_results(agent, client, [span])
            except ProtocolError as problem:
                self._lost(agent.number, f"sent {problem}", is_told=True)
            back = [(client.number, span.batch, span.lo, span.hi)]
            self._answer_withdrawals(agent, back, back)  # the client has said again what it had cancelled
        for number, letter in work.mail:
            self._received(number, letter)
        for message in work.messages[work.first_new :]:
            if not self._hear_returned(client, work, message):
                return
        work.release_rest()
        self._run(roots.come_back(state, self._out, client))
        if client.number in state.clients:
            work.forget_agents(self._out)

    def _hear_returned(self, client: ClientRecord, work: Rebuilding, message: Message) -> bool:
        """Take what a client that came back has said; False if that can't be, and it is gone."""
        self._received(client.number, message)
        if type(message) is ObjectAnnounce:
            work.find_copies(message.ids)
        return client.number in self.state.clients

    # ---- time ------------------------------------------------------------------------------------------------------
    def _plan_wake(self) -> None:
        state = self.state
        if not (state.clients or state.agents or state.monitors or self._is_ending):
            self._next_check = self._wake = None
            return
        if self._next_check is None:
            self._next_check = state.now + min(self._limits.client_timeout, self._limits.agent_timeout) / 4
            self._hasten_check()
        wake = min(self._next_check, watching.next_due(state)) if state.monitors else self._next_check
        if self._is_ending:
            wake = min(wake, returning.coming_until(state, self._limits.agent_timeout))
        if wake != self._wake:
            self._wake = wake
            self._out.effects.append(WakeAt(wake))

    def _hasten_check(self) -> None:
        """Look when somebody has been waited for long enough; never later than it was due, however many come."""
        if self._next_check is not None:
            self._next_check = min(self._next_check, max(returning.next_deadline(self.state), self.state.now))

    def _check_liveness(self) -> None:
        assert self._next_check is not None
        late, self._next_check = self.state.now - self._next_check, None
        self._crowded = int(self._limits.kept_bytes * crowding.WARNED)
        peer_timeouts.forgive(self.state, late)
        peer_timeouts.tidy(self.state)
        limits = self._limits
        for number, reason in peer_timeouts.silent(self.state, limits.client_timeout, limits.agent_timeout):
            self._lost(number, reason)
        for number, reason in unread.overdue(self.state, self._out, limits.client_timeout):
            self._lost(number, reason, is_told=True)
        for number, reason in returning.overdue(self.state, limits.client_timeout):
            self._lost(number, reason, is_told=True)

    def _echo(self, sender: ClientRecord | MonitorRecord, message: Heartbeat) -> None:
        self._out.send(sender.number, HeartbeatEcho(message.clock, self.state.workers))

    # ---- what clients say ------------------------------------------------------------------------------------------
    def _task(self, client: ClientRecord, task: Task) -> list[Move]:
        self._check_task(client, task)
        moves = admission.admit(self.state, client, task)
        function = client.functions.get(task.name)  # None of a batch that is known by another name
        if function is not None and (task.capabilities or task.threads):
            demand = task.capabilities, task.threads or 1
            unmet.say_whether_met(self.state, self._out, client, function, demand)
        if roots.is_over(self.state, task.root):
            self._run(moves)
            batch = client.batches.get(task.batch)  # another one if it was said before
            return roots.cancel(self.state, self._out, client, (batch,) if batch and batch.task is task else ())
        return moves

    def _check_task(self, client: ClientRecord, task: Task) -> None:
        if task.spans.tolist() != [0, task.rows]:
            raise ProtocolError("a Task that is not a whole batch")
        if task.batch in client.remembered:
            raise ProtocolError("a Task with the id of one that has ended")
        admission.check_ids(client, task)
        task.client = client.number
        if task.batch not in client.batches:
            batch_cost.check_client(client.values, task)
            if task.rows + len(task.dependencies) > crowding.FEW and not client.is_resident:
                self._make_room(client, task)
            task.root = roots.note(self.state, client, task.root, self._limits.client_timeout)

    def _object_announce(self, client: ClientRecord, message: ObjectAnnounce) -> list[Move]:
        if len(message.ids) > crowding.FEW and not client.is_resident:
            self._make_room(client, message)
        tries = self._limits.retries_on_loss
        return stored_objects.take_from_client(self.state, self._out, client, message, tries)

    def _object_release(self, client: ClientRecord, message: ObjectRelease) -> None:
        for _, object_id in message:
            lifetimes.release_held(self.state, client, object_id)

    def _object_request(self, client: ClientRecord, message: ObjectRequest) -> None:
        for _, value in message:
            self._run(reading.read(self.state, self._out, client, value, self._limits.retries_on_loss))

    def _client_leaves(self, client: ClientRecord, message: DisconnectRequest) -> None:
        peers.drop_client(self.state, self._out, client, "it has ended" if client.is_resident else "it disconnected")
        self._run(roots.leave(self.state, self._out, client.root))
        self._out.send(client.number, DisconnectResponse())
        self._out.effects.append(Forget(client.number, "disconnected"))

    def _client_shutdown(self, client: ClientRecord, message: ClientShutdown) -> None:
        if self._limits.protected:
            reason = "this scheduler runs in protected mode; start it with --no-protected to let clients shut it down"
            self._out.send(client.number, ShutdownResponse(False, reason))
            return
        self._out.send(client.number, ShutdownResponse(True, ""))
        self._is_ending = True

    def _end_all(self) -> None:
        """A client has ended the cluster: so do agents that are here, or are about to come back."""
        state = self.state
        if state.now < returning.coming_until(state, self._limits.agent_timeout):
            return
        self._is_ending = False
        for number in state.agents:
            self._out.send(number, ClientShutdown())
        self._out.effects.append(Stop())

    # ---- what agents say -------------------------------------------------------------------------------------------
    def _task_result(self, agent: AgentRecord, message: TaskResult) -> None:
        client = self.state.clients.get(message.client)
        if client is None:
            return  # it left while this was on the way; its rows are accounted for
        self._out.note_results(client, agent)
        if client.values.awaited:
            self._run(reported_results.supply_awaited(self.state, client, spans_of(message)))
        if agent.number in self.state.returning.late:
            spans = spans_of(message)
            self._take_results(
                agent, client, reported_results.without_late(self.state, self._out, agent, client, spans)
            )
        elif not reported_results.forward(self.state, self._out, agent, client, message):
            self._take_results(agent, client, spans_of(message))
        if client.number in agent.withdrawals:
            spans = spans_of(message)
            rows = [(client.number, span.batch, span.lo, span.hi) for span in spans]
            self._answer_withdrawals(agent, rows, reported_results.still_to_run(client, spans))

    def _take_results(self, agent: AgentRecord, client: ClientRecord, spans: list[SpanResult]) -> None:
        if agent.number not in self.state.agents or client.number not in self.state.clients:
            return  # it said what can't be, just before
        tries = self._limits.retries_on_loss
        for moves in reported_results.take(self.state, self._out, agent, client, spans, tries):
            self._run(moves)

    def _task_output(self, agent: AgentRecord, message: TaskOutput) -> None:
        client = self.state.clients.get(message.client)
        if client is not None and self._may_print(agent, client):
            unread.send_output(self._out, client, message)

    def _may_print(self, agent: AgentRecord, client: ClientRecord) -> bool:
        """An agent has or had rows of a client, which may print; what others say would reach its terminal all the same.

        Rows that have ended or come back may have printed before; those from another scheduler do so meanwhile.
        """
        number = agent.number
        return number in client.agents or number in self.state.returning.holdings.get(client.number, ())

    def _balance_response(self, agent: AgentRecord, message: BalanceResponse) -> None:
        late_rows.take_back(self.state, agent, message)
        before = agent.load.outstanding
        for _, batch, lo, hi in withdrawing.spans_at(self.state, agent, message):
            self._run([Route(batch, lo, hi, Cause.GIVEN_BACK, front=True)])
        load = agent.load
        balancing.end_recall(agent, load.outstanding < before)
        if load.is_leaving and load.workers > load.slots:  # the task that it gets rows for does not wait any more
            placement.resize(self.state, agent, load.slots, load.is_full)  # until it says otherwise
        self._answer_withdrawals(agent, message, message)

    def _answer_withdrawals(
        self, agent: AgentRecord, rows: Iterable[withdrawing.Span], back: Iterable[withdrawing.Span]
    ) -> None:
        if agent.withdrawals:
            self._run(withdrawing.answer_for(self.state, self._out, agent, rows, back))

    def _object_missing(self, agent: AgentRecord, message: ObjectMissing) -> None:
        late_rows.take_back(self.state, agent, message.rows)
        for moves in stored_objects.take_missing(self.state, self._out, agent, message):
            self._run(moves)
        self._answer_withdrawals(agent, message.rows, message.rows)

    def _object_response(self, agent: AgentRecord, message: ObjectResponse) -> None:
        tries = self._limits.retries_on_loss
        for number, value, outcome in message:
            client = self.state.clients.get(number)
            if self.state.leaving:
                draining.take_response(self.state, agent, (number, value), bool(outcome))
            if client is not None:
                reason = message.reason if outcome else None
                self._run(reading.take_response(self.state, self._out, agent, client, value, reason, tries))

    def _inventory(self, agent: AgentRecord, message: Inventory) -> None:
        returning.take_inventory(self.state, self._out, agent, message, self._limits.client_timeout)
        self._hasten_check()  # its clients may have to be waited for
