"""The client's brain: what it asked for and has not got yet, as `handle(events, now) -> effects`.

It numbers objects and rows from one counter, keeps every batch until all its wanted rows have ended, so that it can be
said again to a scheduler that forgot it, and lets each row end once. What a row resolves to is the shell's business:
the session hands out tokens (futures, or whatever the shell gave) with the bytes that came for them.

Of a stored object the session knows only where it is. After a scheduler that forgot everything its stores are new, too:
the shell has to write the objects again (`Restore`), and until it has, nothing is said that may need them.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scaler.client.events import (
    Announce,
    Answered,
    Arrived,
    Cancel,
    Claim,
    ClaimRefused,
    Effect,
    Event,
    Granted,
    Group,
    Printed,
    Release,
    Renewed,
    Resolve,
    Restore,
    Restored,
    Say,
    Submit,
    Supply,
    Told,
    Transmit,
    Unwithdrawable,
    Welcomed,
)
from scaler.common.spans import runs_of
from scaler.errors import ProtocolError
from scaler.protocol import failures
from scaler.protocol.messages import (
    CANCELLED,
    ERROR,
    GRAPH,
    LOST,
    STORED,
    ClientClear,
    DisconnectRequest,
    DisconnectResponse,
    Frame,
    Heartbeat,
    HeartbeatEcho,
    ObjectAnnounce,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    ShutdownResponse,
    Spans,
    StoreOffers,
    Task,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskOutput,
    TaskResult,
    TaskRunning,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import SpanResult, parts_of, spans_of


@dataclass(slots=True, eq=False)
class Pending:
    """A batch whose wanted rows, or those of its graph, have not all ended."""

    task: Task
    tokens: Sequence[Any]
    #: wanted rows that have not ended; of all its graph
    group: Group
    #: 1 for rows that have ended
    done: bytearray
    #: there is one token, for all rows
    whole: bool
    needs: Sequence[Sequence[Any]]
    recipe: Any
    #: how many batches were submitted before it
    number: int

    def tokens_of(self, lo: int, hi: int) -> Sequence[Any]:
        """The tokens of these rows."""
        return self.tokens if self.whole else self.tokens[lo:hi]

    def rows_of(self, token: Any) -> Iterable[int]:
        """The rows of a token that have not ended."""
        if self.whole:
            return [row for row in range(self.task.rows) if not self.done[row]]
        row = token.id - self.task.batch
        return () if self.done[row] else (row,)


class SessionCore:
    """See the module's text."""

    def __init__(self) -> None:
        #: batch id -> batch, in the order submitted
        self.pending: dict[int, Pending] = {}
        #: ids of batches, ascending, for finding the batch of a row; may hold ended ones
        self._order: list[int] = []
        #: objects the scheduler was asked to keep
        self._announced: dict[int, Announce] = {}
        #: objects released since that pending batches may need, and how many batches were submitted before; ascending
        self._released: dict[int, tuple[int, Announce]] = {}
        #: ids of stored values of rows that the shell holds
        self._held: set[int] = set()
        #: stored objects that are being written again: until they are, nothing that may need them is said
        self._missing: set[int] = set()
        #: those that could not be: nothing is said of them until they are asked for
        self._unstored: set[int] = set()
        #: how many schedulers this session has been told to anew
        self.generation = 0
        self._submitted = 0
        #: what was asked about tokens and has not been answered, by the token's `id()`
        self._cancels: dict[int, Cancel] = {}
        self._claims: dict[int, Claim] = {}
        self._leaving = False
        #: values and objects that the scheduler has asked for: it still waits for them
        self._requested: dict[int, bool] = {}
        self._next_id = 1
        self._heartbeat: float | None = None
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
            Say: self._say,
            Welcomed: self._welcomed,
            Arrived: lambda event: self._of_message[type(event.message)](event.message),
        }
        self._of_message: dict[type, Callable[[Any], Iterable[Effect]]] = {
            TaskResult: self._task_result,
            TaskRunning: self._task_running,
            TaskClaimResponse: self._claim_response,
            TaskOutput: lambda m: [Printed(m.row, m.name, m.stream, m.text)],
            ObjectRequest: self._object_request,
            ObjectResponse: lambda m: [Told(m)],
            StoreOffers: lambda m: [Told(m)],
            HeartbeatEcho: self._echo,
            DisconnectResponse: lambda m: [Answered(m)],
            ShutdownResponse: lambda m: [Answered(m)],
        }

    def take_ids(self, count: int) -> int:
        """Reserve ids; the first of them."""
        first = self._next_id
        self._next_id = first + count
        return first

    @property
    def outstanding(self) -> int:
        """Wanted rows that have not ended."""
        return sum(group.left for group in {pending.group for pending in self.pending.values()})

    @property
    def is_lone(self) -> bool:
        """Exactly one row is under way. May be asked by any thread, as a guess."""
        pending = self.pending
        if len(pending) != 1:
            return False
        try:
            return next(iter(pending.values())).task.rows == 1
        except (StopIteration, RuntimeError):  # it ended just now
            return False

    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what happened, in order; what is to be done about it. KeyError for a message that no scheduler sends."""
        effects: list[Effect] = []
        for event in events:
            effects.extend(self._handlers[type(event)](event))
        if self._heartbeat is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._heartbeat
            effects.append(Transmit(Heartbeat(now)))
        return effects

    # ---- the user's side -------------------------------------------------------------------------------------------
    def _submit(self, event: Submit) -> list[Effect]:
        task, tokens = event.task, event.tokens
        batch = task.batch
        for row_id, token in enumerate(tokens, batch):
            if token is not None:
                token.id = row_id
        group = event.group or Group(task.rows)
        group.batches.append(batch)
        self.pending[batch] = Pending(
            task, tokens, group, bytearray(task.rows), event.whole, event.needs, event.recipe, self._submitted
        )
        self._submitted += 1
        insort(self._order, batch)
        return [Transmit(task)] if not self._missing else []

    def _announce(self, event: Announce) -> list[Effect]:
        stale = event.stored and event.generation != self.generation
        requested = self._requested.get(event.id)
        if requested is not None:  # an answer: the scheduler lets go of it by itself
            if not requested:  # asked by a scheduler that forgot this client, or answered already
                return []
            if stale:
                return [Supply(event.id)]
            self._requested[event.id] = False
        elif not event.failed:
            self._announced[event.id] = event
            if stale:
                self._missing.add(event.id)
                return [Restore([event])]
            if self._missing:
                return []
        return [Transmit(_message_of([event]))]

    def _restored(self, event: Restored) -> list[Effect]:
        object_id, made = event.id, event.announce
        if object_id not in self._missing:
            return []  # cleared since
        if made is not None and made.generation != self.generation:
            return [Restore([made])]
        self._missing.discard(object_id)
        if made is None:
            self._unstored.add(object_id)
        elif object_id in self._released:
            self._released[object_id] = self._released[object_id][0], made
        else:
            self._announced[object_id] = made
        return self._say_again() if not self._missing else []

    def _release(self, event: Release) -> list[Effect]:
        for object_id in event.ids:
            self._held.discard(object_id)
            announce = self._announced.pop(object_id, None)
            if announce is not None and self.pending:
                self._released[object_id] = self._submitted, announce
        return [Transmit(_release_of(event.ids))] if not self._missing else []

    def source_of(self, object_id: int) -> Any:
        """What a stored object of the client can be written from again; None if it is not known any more."""
        announce = self._announced.get(object_id)
        if announce is None and object_id in self._released:
            _, announce = self._released[object_id]
        return announce.source if announce is not None else None

    def payload_of(self, object_id: int) -> Frame | None:
        """The payload of an object of the client that is not stored; None if it is, or is not known any more."""
        announce = self._announced.get(object_id)
        return announce.payload if announce is not None and not announce.stored else None

    def _say(self, event: Say) -> list[Effect]:
        if type(event.message) is ClientClear:
            self._missing.clear()
            self._held.clear()
            for table in (self.pending, self._announced, self._released, self._cancels, self._claims):
                table.clear()
        elif type(event.message) is DisconnectRequest:
            self._leaving = True
        return [Transmit(event.message)]

    def pending_of(self, row_id: int) -> Pending | None:
        """The batch of a row, None if it has ended or was never sent."""
        order = self._order
        if len(order) > 2 * len(self.pending) + 1000:
            order[:] = sorted(self.pending)
        at = bisect_right(order, row_id)
        pending = self.pending.get(order[at - 1]) if at else None
        return pending if pending is not None and row_id < pending.task.batch + pending.task.rows else None

    def needed(self, value_id: int) -> Any:
        """The token or reference with this id that a pending row needs; None if there is none."""
        for pending in self.pending.values():
            if value_id in pending.group.keep:
                return pending.group.keep[value_id]
            if pending.needs and value_id in pending.task.dependencies:
                tokens = [token for needs in pending.needs for token in needs]
                return tokens[pending.task.dependencies.index(value_id)]
        return None

    def find(self, tokens: Sequence[Any]) -> list[tuple[Pending, int]]:
        """The rows of these tokens that have not ended."""
        found = []
        for token in tokens:
            pending = self.pending_of(token.id)
            if pending is not None:
                found += [(pending, row) for row in pending.rows_of(token)]
        return found

    def _spans(self, rows: list[tuple[Pending, int]]) -> Spans:
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

    def _cancel(self, event: Cancel) -> list[Effect]:
        spans = self._spans(self.find(event.tokens))
        if not spans:
            return []
        if len(self._cancels) > 2 * len(self.pending) + 1000:
            self._cancels = {key: asked for key, asked in self._cancels.items() if self.find(asked.tokens)}
        for token in event.tokens:
            self._cancels[id(token)] = Cancel((token,), event.force)
        return [Transmit(TaskCancel(spans, event.force))] if not self._missing else []

    def _claim(self, event: Claim) -> list[Effect]:
        rows = [(pending, row) for pending, row in self.find([event.token]) if pending.task.form != GRAPH]
        if not rows:
            return [ClaimRefused([event.token])]
        self._claims = {key: asked for key, asked in self._claims.items() if self.find([asked.token])}
        self._claims[id(event.token)] = event
        if self._missing:
            return []
        spans = self._spans(rows[len(rows) // 2 :])
        return [Transmit(TaskClaim(spans.clients, spans.batches, spans.spans))]

    # ---- the scheduler's side --------------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> list[Effect]:
        self._heartbeat = event.heartbeat
        self.workers = event.workers
        if event.resumed:
            return []
        self.generation += 1
        if self._leaving:
            return [Transmit(DisconnectRequest())]
        self._requested = dict.fromkeys(self._requested, False)
        stored = [announce for announce in self._objects() if announce.stored]
        self._missing = {announce.id for announce in stored}
        self._unstored.clear()
        if stored:
            return [Renewed(), Restore(stored)]
        return [Renewed(), *self._say_again()] if self.generation > 1 else self._say_again()

    def _objects(self) -> list[Announce]:
        return [*self._announced.values(), *(announce for _, announce in self._released.values())]

    def _say_again(self) -> list[Effect]:
        """All that a scheduler that forgot this client has to know."""
        effects: list[Effect] = []
        objects = [announce for announce in self._objects() if announce.id not in self._unstored]
        if objects:
            effects.append(Transmit(_message_of(objects)))
        effects += [Transmit(pending.task) for pending in self.pending.values()]
        if self._released:
            effects.append(Transmit(_release_of(list(self._released))))
        for cancel in list(self._cancels.values()):
            effects += self._cancel(cancel)
        for claim in list(self._claims.values()):
            effects += self._claim(claim)
        return effects

    def _object_request(self, message: ObjectRequest) -> list[Effect]:
        if len(self._requested) > 10_000:
            self._requested = {object_id: True for object_id, open_ in self._requested.items() if open_}
        effects: list[Effect] = []
        for _, object_id in message:
            self._requested[object_id] = True
            effects.append(Supply(object_id))
        return effects

    def _echo(self, message: HeartbeatEcho) -> list[Effect]:
        self.workers = message.workers
        return []

    def _task_result(self, message: TaskResult) -> list[Effect]:
        effects: list[Effect] = []
        for span in spans_of(message):
            pending = self.pending.get(span.batch)
            if pending is None or span.hi > pending.task.rows:
                continue
            lo, hi = span.lo, span.hi
            if pending.done.find(1, lo, hi) >= 0:  # said before by a scheduler that is gone: only what is new counts
                new = [row for row in range(lo, hi) if not pending.done[row]]
                parts = _parts(span, list(runs_of(new)))
                if span.outcome == STORED:
                    effects += self._stored_again(span, new)
            else:
                parts = [span]
            for part in parts:
                lo, hi = part.lo, part.hi
                pending.done[lo:hi] = b"\x01" * (hi - lo)
                pending.group.left -= hi - lo
                pending.group.failed |= part.outcome in (ERROR, CANCELLED, LOST)
                if part.outcome == STORED:
                    self._held.update(range(span.batch + lo, span.batch + hi))
                effects.append(Resolve(pending.tokens_of(lo, hi), part, pending.task))
                if not pending.group.left:
                    effects += self._ended(pending.group)
        return effects

    def _stored_again(self, span: SpanResult, new: list[int]) -> list[Effect]:
        """Rows that had ended before were run again, and their values stored: let go of those that nobody holds."""
        ids = {span.batch + row for row in range(span.lo, span.hi)} - {span.batch + row for row in new} - self._held
        return [Transmit(_release_of(sorted(ids)))] if ids else []

    def _ended(self, group: Group) -> list[Effect]:
        """All wanted rows have ended; of a graph that failed, rows may be left that nobody wants any more."""
        leftover = Spans()
        for batch in group.batches:
            pending = self.pending.pop(batch)
            if pending.task.form == GRAPH and group.failed:
                leftover.add(0, batch, 0, pending.task.rows)
        oldest = next(iter(self.pending.values())).number if self.pending else self._submitted
        while self._released:
            object_id, (number, _) = next(iter(self._released.items()))
            if number > oldest:
                break
            del self._released[object_id]
        if not self.pending:
            self._cancels.clear()
            self._claims.clear()
        return [Transmit(TaskCancel(leftover))] if leftover else []

    def _task_running(self, message: TaskRunning) -> list[Effect]:
        effects: list[Effect] = []
        for pending, lo, hi in self._mine(message):
            tokens = pending.tokens_of(lo, hi)
            for token in tokens:
                self._cancels.pop(id(token), None)
            effects.append(Unwithdrawable(tokens))
        return effects

    def _mine(self, spans: Spans) -> Iterable[tuple[Pending, int, int]]:
        for _, batch, lo, hi in spans:
            pending = self.pending.get(batch)
            if pending is not None and hi <= pending.task.rows:
                yield pending, lo, hi

    def _claim_response(self, message: TaskClaimResponse) -> list[Effect]:
        effects: list[Effect] = []
        for pending, lo, hi in list(self._mine(message.granted)):
            for row in range(lo, hi):
                self._claims.pop(id(pending.tokens_of(row, row + 1)[0]), None)
                if not pending.done[row]:
                    pending.done[row] = 1
                    pending.group.left -= 1
                    needs = pending.needs[row] if pending.needs else ()
                    effects.append(
                        Granted(pending.task, row, pending.tokens_of(row, row + 1)[0], needs, pending.recipe)
                    )
            if not pending.group.left:
                effects += self._ended(pending.group)
        for pending, lo, hi in self._mine(message.refused):
            tokens = pending.tokens_of(lo, hi)
            for token in tokens:
                self._claims.pop(id(token), None)
            effects.append(ClaimRefused(tokens))
        return effects


def _parts(span: SpanResult, runs: Sequence[tuple[int, int]]) -> list[SpanResult]:
    """These rows of a span; as failed ones where they can't be told apart."""
    try:
        return parts_of(span, runs)
    except ProtocolError as problem:
        record = failures.results_damaged(str(problem)).encode()
        size = u32([len(record)])
        rows = [row for lo, hi in runs for row in range(lo, hi)]
        return [SpanResult(span.batch, row, row + 1, ERROR, 0, 0, size, record) for row in rows]


def _message_of(objects: Sequence[Announce]) -> ObjectAnnounce:
    return ObjectAnnounce(
        u64([announce.id for announce in objects]),
        u8([announce.kind for announce in objects]),
        [announce.payload for announce in objects],
    )


def _release_of(ids: Sequence[int]) -> ObjectRelease:
    return ObjectRelease(u32([0]) * len(ids), u64(ids))
