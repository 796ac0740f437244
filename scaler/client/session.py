"""The client's brain: what it asked for and has not got yet, as `handle(events, now) -> effects`.

It numbers objects and rows from one counter, keeps every batch until all its wanted rows have ended, so that it can be
said again to a scheduler that forgot it, and lets each row end once. What a row resolves to is the shell's business:
the session hands out tokens (futures, or whatever the shell gave) with the bytes that came for them.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaler.protocol.messages import (
    GRAPH,
    VALUES_EACH,
    ClientClear,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Frame,
    Heartbeat,
    HeartbeatEcho,
    Message,
    ObjectAnnounce,
    ObjectRelease,
    ObjectRequest,
    ShutdownResponse,
    Spans,
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
from scaler.results import SpanResult, part_of, spans_of
from scaler.spans import runs_of


# ---- events --------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Submit:
    """Send this batch; its id and the ids in `objects` were made by `SessionCore.take_ids`.

    A token stands for a row and is given the row's id as its `id`; None: nobody wants the row. With `whole` there is
    one token, for all rows of the batch.
    """

    task: Task
    tokens: Sequence[Any]
    whole: bool = False
    #: per row: the tokens and references that it needs; kept until the batch ends
    needs: Sequence[Sequence[Any]] = ()
    #: what the shell knows of the function, given back with `Granted`
    recipe: Any = None
    #: of a graph: shared by all its batches
    group: "Group | None" = None


@dataclass(slots=True, eq=False)
class Group:
    """The batches of one graph: they end together."""

    #: wanted rows that have not ended
    left: int
    batches: list[int] = field(default_factory=list)
    failed: bool = False


@dataclass(slots=True)
class Announce:
    """Send an object; it is kept by the scheduler until released."""

    id: int
    payload: Frame
    failed: bool = False


@dataclass(slots=True)
class Release:
    """Objects that nothing here refers to any more."""

    ids: Sequence[int]


@dataclass(slots=True)
class Cancel:
    """Cancel the rows of these tokens."""

    tokens: Sequence[Any]
    force: bool


@dataclass(slots=True)
class Claim:
    """The caller waits for this token inside a task: offer to run its rows here, half of them if there are many."""

    token: Any


@dataclass(slots=True)
class Say:
    """Send a message that needs no bookkeeping: a goodbye, a shutdown, a clear."""

    message: DisconnectRequest | ClientShutdown | ClientClear


@dataclass(slots=True)
class Arrived:
    """A message of the scheduler."""

    message: Message


@dataclass(slots=True)
class Welcomed:
    """The scheduler accepted this client; unless `resumed`, it knows nothing of it."""

    resumed: bool
    heartbeat: float
    workers: int


Event = Submit | Announce | Release | Cancel | Claim | Say | Arrived | Welcomed


# ---- effects -------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Transmit:
    """Send this to the scheduler."""

    message: Message


@dataclass(slots=True)
class Resolve:
    """The rows of these tokens ended; a token of None is nobody's."""

    tokens: Sequence[Any]
    span: SpanResult
    task: Task


@dataclass(slots=True)
class Unwithdrawable:
    """A cancellation was refused: the rows of these tokens run."""

    tokens: Sequence[Any]


@dataclass(slots=True)
class Granted:
    """This row is the claimer's to run; nothing more will come for it."""

    task: Task
    row: int
    token: Any
    needs: Sequence[Any]
    recipe: Any


@dataclass(slots=True)
class ClaimRefused:
    """The rows of these tokens run elsewhere, or have ended."""

    tokens: Sequence[Any]


@dataclass(slots=True)
class Supply:
    """The scheduler needs the value of a row that ended here, or an object: answer with `Announce`."""

    id: int


@dataclass(slots=True)
class Printed:
    """A task of this client printed something."""

    row: int
    name: str
    stream: int
    text: str


@dataclass(slots=True)
class Answered:
    """The answer to a goodbye or a shutdown came."""

    message: DisconnectResponse | ShutdownResponse


Effect = Transmit | Resolve | Unwithdrawable | Granted | ClaimRefused | Supply | Printed | Answered


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
        self._announced: dict[int, Frame] = {}
        #: objects released since that pending batches may need: (number of batches submitted before, id, payload)
        self._released: deque[tuple[int, int, Frame]] = deque()
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
        #: when the scheduler was last heard, seconds
        self.heard = 0.0
        self._handlers: dict[type, Callable[[Any], Iterable[Effect]]] = {
            Submit: self._submit,
            Announce: self._announce,
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
            if type(event) is Arrived or type(event) is Welcomed:
                self.heard = now
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
        return [Transmit(task)]

    def _announce(self, event: Announce) -> list[Effect]:
        requested = self._requested.get(event.id)
        if requested is not None:  # an answer: the scheduler lets go of it by itself
            if not requested:  # asked by a scheduler that forgot this client, or answered already
                return []
            self._requested[event.id] = False
        elif not event.failed:
            self._announced[event.id] = event.payload
        return [Transmit(ObjectAnnounce(u64([event.id]), u8([event.failed]), [event.payload]))]

    def _release(self, event: Release) -> list[Effect]:
        for object_id in event.ids:
            payload = self._announced.pop(object_id, None)
            if payload is not None and self.pending:
                self._released.append((self._submitted, object_id, payload))
        return [Transmit(ObjectRelease(u32([0]) * len(event.ids), u64(event.ids)))]

    def _say(self, event: Say) -> list[Effect]:
        if type(event.message) is ClientClear:
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
        return [Transmit(TaskCancel(spans, event.force))]

    def _claim(self, event: Claim) -> list[Effect]:
        rows = [(pending, row) for pending, row in self.find([event.token]) if pending.task.form != GRAPH]
        if not rows:
            return [ClaimRefused([event.token])]
        self._claims = {key: asked for key, asked in self._claims.items() if self.find([asked.token])}
        self._claims[id(event.token)] = event
        spans = self._spans(rows[len(rows) // 2 :])
        return [Transmit(TaskClaim(spans.clients, spans.batches, spans.spans))]

    # ---- the scheduler's side --------------------------------------------------------------------------------------
    def _welcomed(self, event: Welcomed) -> list[Effect]:
        self._heartbeat = event.heartbeat
        self.workers = event.workers
        if event.resumed:
            return []
        if self._leaving:
            return [Transmit(DisconnectRequest())]
        self._requested = dict.fromkeys(self._requested, False)
        effects: list[Effect] = []
        released = {object_id: payload for _, object_id, payload in self._released}
        objects = {**self._announced, **released}
        if objects:
            effects.append(Transmit(ObjectAnnounce(u64(objects), u8([0]) * len(objects), list(objects.values()))))
        effects += [Transmit(pending.task) for pending in self.pending.values()]
        if released:
            effects.append(Transmit(ObjectRelease(u32([0]) * len(released), u64(released))))
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
                parts = [part_of(span, a, b) for a, b in runs_of(new)]
            else:
                parts = [span]
            for part in parts:
                lo, hi = part.lo, part.hi
                pending.done[lo:hi] = b"\x01" * (hi - lo)
                pending.group.left -= hi - lo
                pending.group.failed |= part.outcome > VALUES_EACH
                effects.append(Resolve(pending.tokens_of(lo, hi), part, pending.task))
                if not pending.group.left:
                    effects += self._ended(pending.group)
        return effects

    def _ended(self, group: Group) -> list[Effect]:
        """All wanted rows have ended; of a graph that failed, rows may be left that nobody wants any more."""
        leftover = Spans()
        for batch in group.batches:
            pending = self.pending.pop(batch)
            if pending.task.form == GRAPH and group.failed:
                leftover.add(0, batch, 0, pending.task.rows)
        oldest = next(iter(self.pending.values())).number if self.pending else self._submitted
        while self._released and self._released[0][0] <= oldest:
            self._released.popleft()
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
