"""The client's brain: what it asked for and has not got yet, as `handle(events, now) -> effects`.

It numbers objects and rows from one counter, keeps every batch until all its wanted rows have ended, so that it can be
said again to a scheduler that forgot it, and lets each row end once. What a row resolves to is the shell's business:
the session hands out tokens (futures, or whatever the shell gave) with the bytes that came for them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from scaler.client.core.endings import RowEndings
from scaler.client.core.events import (
    Announce,
    Arrived,
    Cancel,
    Claim,
    ClaimRefused,
    Effect,
    Event,
    Printed,
    ProvideObject,
    Release,
    Request,
    RequestAnswered,
    Restored,
    RestoreObjects,
    ShutdownWithdrawn,
    StoreAnswered,
    StoresRenewed,
    Submit,
    Transmit,
    Welcomed,
)
from scaler.client.core.holding import Holding
from scaler.client.core.lineage import Lineage
from scaler.client.core.object_table import ObjectTable, announce_message, release_message
from scaler.client.core.pending import PendingBatch, PendingBatches
from scaler.client.core.unanswered import UnansweredRequests
from scaler.protocol.messages import (
    ClientClear,
    ClientReturn,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Heartbeat,
    HeartbeatEcho,
    ObjectRequest,
    ObjectResponse,
    ShutdownResponse,
    Spans,
    StoreOffers,
    Task,
    TaskBegun,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskOutput,
    TaskResult,
    TaskRunning,
    u32,
    u64,
)


class SessionCore:
    """One client's session. Not thread-safe."""

    def __init__(self) -> None:
        #: what is waited for
        self.pending = PendingBatches()
        #: what the scheduler was told of, and asks for
        self.objects = ObjectTable()
        #: what was asked about single rows
        self._unanswered = UnansweredRequests()
        #: what has ended and may have to be run again
        self.lineage = Lineage(self.pending, self.objects)
        self._endings = endings = RowEndings(self.pending, self.objects, self.lineage, self._unanswered)
        #: rows that are cancelled one by one
        self.holding = Holding()
        #: of the events that are handled, seconds
        self._now = 0.0
        #: how many schedulers this session has been told to anew
        self.generation = 0
        #: the scheduler took the place of another, which knew this client, and has not been told all yet
        self._is_returning = False
        #: a goodbye was said
        self._is_leaving = False
        #: the cluster was asked to end, and somebody waits for an answer
        self._is_shutting_down = False
        #: of objects and rows, which are numbered together
        self._next_id = 1
        #: seconds between heartbeats; None until the scheduler has said
        self._heartbeat: float | None = None
        #: when the next one is due, seconds
        self._next_heartbeat = 0.0
        #: number of workers in the cluster, as last heard
        self.workers = 0
        self._handlers: dict[type, Callable[[Any], Iterable[Effect]]] = {
            Submit: self._submit,
            Announce: self._announce,
            Restored: self._restored,
            Release: self._release,
            Cancel: self._cancel,
            Claim: self._claim,
            Request: self._request,
            ShutdownWithdrawn: self._withdraw_shutdown,
            Welcomed: self._welcomed,
            Arrived: lambda event: self._of_message[type(event.message)](event.message),
        }
        self._of_message: dict[type, Callable[[Any], Iterable[Effect]]] = {
            TaskResult: endings.take_results,
            TaskBegun: endings.take_begun,
            TaskRunning: endings.take_running,
            TaskClaimResponse: endings.take_claims,
            TaskHold: self._task_hold,
            TaskOutput: lambda m: [Printed(m.stream, m.text)],
            ObjectRequest: self._object_request,
            ObjectResponse: lambda m: [StoreAnswered(m)],
            StoreOffers: lambda m: [StoreAnswered(m)],
            HeartbeatEcho: self._echo,
            DisconnectResponse: lambda m: [RequestAnswered(m)],
            ShutdownResponse: self._shutdown_response,
        }

    def take_ids(self, count: int) -> int:
        """Reserve ids; the first of them."""
        first = self._next_id
        self._next_id = first + count
        return first

    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it. KeyError for a message that no scheduler sends."""
        effects: list[Effect] = []
        self._now = now
        for event in events:
            effects.extend(self._handlers[type(event)](event))
        if now >= self.holding.due:
            effects += self._release_held()
        if self._heartbeat is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            effects.append(Transmit(Heartbeat(now)))
        return effects

    @property
    def _is_silenced(self) -> bool:
        """Objects are being written again: what may need them is not said."""
        return bool(self.objects.restoring)

    # ---- the user's side -------------------------------------------------------------------------------------------
    def _submit(self, event: Submit) -> list[Effect]:
        self.pending.add(event)
        sent: list[Effect] = [Transmit(event.task)] if not self._is_silenced else []
        return [*self._release_held(), *sent] if self.holding.is_on else sent

    def _announce(self, event: Announce) -> list[Effect]:
        objects = self.objects
        is_stale = event.stored and event.generation != self.generation
        is_requested = objects.is_requested(event.id)
        if is_requested is not None:  # an answer: the scheduler lets go of it by itself
            if not is_requested:  # asked by a scheduler that forgot this client, or answered already
                return []
            if is_stale:
                return [ProvideObject(event.id)]
            objects.answer(event.id)
        elif not event.failed:
            objects.announced[event.id] = event
            if is_stale:
                objects.restoring.add(event.id)
                return [RestoreObjects([event])]
            if self._is_silenced:
                return []
        # what failed may be what rows needed that have ended here: they are cancelled, and did not fail with it
        told = self.holding.told() if event.failed else []
        return [*map(Transmit, told), Transmit(announce_message([event]))]

    def _restored(self, event: Restored) -> list[Effect]:
        objects, made = self.objects, event.announce
        was_awaited = event.id in objects.restoring
        if made is not None and made.generation != self.generation:
            return [RestoreObjects([made])] if was_awaited else []
        told: list[Effect] = []
        if made is not None and objects.source_of(event.id) is None:  # let go since: its store has it, for nobody
            told = [Transmit(announce_message([made])), Transmit(release_message([event.id]))]
        if not was_awaited:
            return told
        objects.restored(event)
        return told if self._is_silenced else [*told, *self._repeat()]

    def _release(self, event: Release) -> list[Effect]:
        pending, lineage = self.pending, self.lineage
        self.objects.release(event.ids, pending.submitted, bool(pending.by_id), bool(lineage.kept))
        if lineage.is_of_interest:
            lineage.release(event.ids)
        if not self._is_silenced and self.objects.are_many(len(pending.by_id) + len(lineage.kept)):
            ended = (batch.task for batch in lineage.kept.values())
            self.objects.keep_needed(_needs(batch.task for batch in pending.by_id.values()), _needs(ended))
        return [Transmit(release_message(event.ids))] if not self._is_silenced else []

    def _request(self, event: Request) -> list[Effect]:
        told = self._release_held() if self.holding.is_on else []
        if type(event.message) is ClientClear:
            self.pending.clear()
            self.lineage.clear()
            self.objects.clear()
            self._unanswered.clear()
            if self._is_returning:  # what was to be written first is cleared as well: this is all
                told += self._repeat()
        elif type(event.message) is DisconnectRequest:
            self._is_leaving = True
        elif type(event.message) is ClientShutdown:
            self._is_shutting_down = True
        return [*told, Transmit(event.message)]

    def _withdraw_shutdown(self, event: ShutdownWithdrawn) -> list[Effect]:
        self._is_shutting_down = False
        return []

    def _cancel(self, event: Cancel) -> list[Effect]:
        rows = self.pending.rows_of(event.tokens)
        is_lone = len(event.tokens) == len(rows) == 1
        if is_lone and self.holding.is_on and self.holding.take(*rows[0], self._now):
            return self._endings.cancel(*rows[0])
        if event.force:
            for pending, _ in rows:
                pending.group.is_forced = True
        spans = _spans_of_rows(rows)
        if not spans:
            return []
        self._unanswered.add_cancel(event, self.pending)
        if self._is_silenced:
            return []
        asked: list[Effect] = [*map(Transmit, TaskCancel(spans, event.force).parts())]
        if is_lone:
            pending, row = rows[0]
            said = self.holding.ask(self.pending, pending.task.batch + row, event.streak, self._now)
            asked += map(Transmit, said)
        return asked

    def _task_hold(self, message: TaskHold) -> list[Effect]:
        self.holding.answer(message, self._now)
        return []

    def _release_held(self) -> list[Effect]:
        return [*map(Transmit, self.holding.release())]

    def _claim(self, event: Claim) -> list[Effect]:
        rows = [
            (pending, row)
            for pending, row in self.pending.rows_of([event.token])
            if pending.task.may_be_claimed and pending.task.nesting < event.below
        ]
        if not rows:
            return [ClaimRefused([event.token])]
        self._unanswered.add_claim(event, self.pending)
        if self._is_silenced:
            return []
        first = max(len(rows) // 2, len(rows) - event.most) if event.most else len(rows) // 2
        spans = _spans_of_rows(rows[first:])
        return [*map(Transmit, TaskClaim(spans.clients, spans.batches, spans.spans).parts())]

    # ---- the scheduler's side --------------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> list[Effect]:
        self._heartbeat = event.heartbeat
        self.workers = event.workers
        if event.resumed:
            return []
        self.holding.forget()
        self._is_returning = event.returned
        self.generation += not event.returned
        if self._is_leaving:
            return [Transmit(DisconnectRequest())]
        told = self._introduce_again(event)
        return [*told, Transmit(ClientShutdown())] if self._is_shutting_down else told

    def _introduce_again(self, event: Welcomed) -> list[Effect]:
        """What a scheduler that forgot this client has to know as long as that does not leave."""
        if event.returned:
            self.objects.forget_requests()
            return [] if self._is_silenced else self._repeat()
        self.lineage.clear()  # what it could be asked for is gone with the number that this client had
        to_restore = self.objects.begin_anew()
        if to_restore:
            return [StoresRenewed(), RestoreObjects(to_restore)]
        return [StoresRenewed(), *self._repeat()] if self.generation > 1 else self._repeat()

    def _repeat(self) -> list[Effect]:
        """All that a scheduler that forgot this client has to know."""
        cancelled = Spans() if self._is_returning else self.pending.cancelled()
        before, behind = self.holding.around(cancelled)
        effects: list[Effect] = [*map(Transmit, before)]
        known = self.objects.known()
        if known:
            effects.append(Transmit(announce_message(known)))
        said = [(pending.number, _with_ended(pending)) for pending in self.pending.by_id.values()]
        if self._is_returning:
            over = ((ended.number, ended.task) for ended in self.lineage.kept.values())
            said += [(number, replace(task, ended=u32([0, task.rows]))) for number, task in over]
            said.sort(key=lambda numbered: numbered[0])  # batches come after those that made what they need
        effects += [Transmit(message) for message in (*(task for _, task in said), *behind)]
        gone = self.objects.gone()
        if gone:
            effects.append(Transmit(release_message(gone)))
        for cancel in list(self._unanswered.cancels.values()):
            effects += self._cancel(cancel)
        for claim in list(self._unanswered.claims.values()):
            effects += self._claim(claim)
        if self._is_returning:
            self._is_returning = False
            effects += [Transmit(ClientReturn(u64(sorted(self.objects.referenced)))), StoresRenewed(kept=True)]
        return effects

    def _object_request(self, message: ObjectRequest) -> list[Effect]:
        effects: list[Effect] = []
        for _, object_id in message:
            self.objects.request(object_id)
            effects.append(ProvideObject(object_id))
        return effects

    def _shutdown_response(self, message: ShutdownResponse) -> list[Effect]:
        self._is_shutting_down = False
        return [RequestAnswered(message)]

    def _echo(self, message: HeartbeatEcho) -> list[Effect]:
        self.workers = message.workers
        return []


def _with_ended(pending: PendingBatch) -> Task:
    """The batch as a scheduler is to hear of it that knows nothing: with the rows that have ended here."""
    done, ended = pending.done, u32()
    lo = done.find(1)
    while lo >= 0:
        hi = done.find(0, lo)
        hi = len(done) if hi < 0 else hi
        ended.extend((lo, hi))
        lo = done.find(1, hi)
    return replace(pending.task, ended=ended) if ended else pending.task


def _needs(tasks: Iterable[Task]) -> set[int]:
    """The objects that batches need."""
    needed: set[int] = set()
    for task in tasks:
        needed.update((task.function, task.arguments), task.dependencies)
    return needed


def _spans_of_rows(rows: Iterable[tuple[PendingBatch, int]]) -> Spans:
    """The spans of rows that come batch by batch, ascending."""
    spans = Spans()
    last: tuple[int, int] | None = None
    for pending, row in rows:
        batch = pending.task.batch
        if last == (batch, row):
            spans.spans[-1] = row + 1
        else:
            spans.add(0, batch, row, row + 1)
        last = batch, row + 1
    return spans
