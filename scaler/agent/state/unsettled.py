"""What an agent has said of rows that ended, kept as long as a scheduler that knows nothing may have to hear it again.

A result is settled when what followed from it has reached its client: the scheduler says so by numbers of messages.
Results of rows whose values other rows may need are kept beyond that, until their batch is over.
"""

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import field

from scaler.common.records import entity
from scaler.common.span_lists import runs_of
from scaler.errors import ProtocolError
from scaler.protocol.messages import CANCELLED, ERROR, KEEP, LOST, STORED, Task, TaskResult
from scaler.protocol.results import FULL, ResultBuilder, SpanResult, cut, spans_of
from scaler.store.layout import Key

#: bytes of values kept until their batches are over; of the oldest batch nothing is kept when there are more
KEPT_BYTES = 256 << 20
#: what a kept result takes besides its value
KEPT_OVERHEAD = 256


@entity
class _OfClient:
    """What was said of the rows of one client."""

    #: how many messages this scheduler has been sent
    said: int = 0
    #: the last of them, that are not settled
    unsettled: deque[TaskResult] = field(default_factory=deque)


@entity
class UnsettledResults:
    """Of all clients."""

    #: client -> its session, of all that this agent may have something of
    sessions: dict[int, int] = field(default_factory=dict)
    _clients: dict[int, _OfClient] = field(default_factory=dict)
    #: batches whose results are kept until they are over, the oldest first, and what is settled of each
    _kept: dict[Key, list[SpanResult]] = field(default_factory=dict)
    #: batches whose rows may raise and run again
    _retried: set[Key] = field(default_factory=set)
    #: stored values of kept results that are gone from here though somebody may need them
    _lost: set[Key] = field(default_factory=set)
    #: bytes that are kept
    kept_bytes: int = 0

    def expect(self, task: Task) -> None:
        """Rows have come."""
        if task.flags & KEEP:
            self._kept.setdefault((task.client, task.batch), [])
        if task.retries:
            self._retried.add((task.client, task.batch))

    def add(self, message: TaskResult) -> None:
        """The scheduler is told this."""
        of_client = self._clients.get(message.client)
        if of_client is None:
            of_client = self._clients[message.client] = _OfClient()
        of_client.said += 1
        of_client.unsettled.append(message)

    def settle(self, client: int, results: int) -> None:
        """So many of the messages about a client's rows have reached it."""
        of_client = self._clients.get(client)
        if of_client is None:
            return
        unsettled = of_client.unsettled
        while unsettled and of_client.said - len(unsettled) < results:
            message = unsettled.popleft()
            if self._kept:
                self._keep(message)

    def lose(self, key: Key) -> None:
        """A stored value is gone from here; nobody has said that it is not needed."""
        if self._kept:
            self._lost.add(key)

    def end_batch(self, client: int, batch: int) -> None:
        """A batch is over."""
        self._retried.discard((client, batch))
        self._drop_kept((client, batch))

    def drop_client(self, client: int, stays: bool) -> None:
        """Nobody wants to hear how rows of a client ended."""
        for key in [key for key in self._kept.keys() | self._retried if key[0] == client]:
            self.end_batch(*key)
        of_client = self._clients.get(client)
        if of_client is not None:
            of_client.unsettled.clear()
        if not stays:
            self._clients.pop(client, None)
            self.sessions.pop(client, None)

    def clear(self) -> None:
        """The scheduler knows nothing of what this agent has said, and will not be told."""
        self.sessions.clear()
        self._clients.clear()
        self._kept.clear()
        self._retried.clear()
        self._lost.clear()
        self.kept_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Nothing is kept."""
        return not (self._kept or self._retried or any(of_client.unsettled for of_client in self._clients.values()))

    @property
    def has_results(self) -> bool:
        """Something is kept of how rows ended."""
        return any(self._kept.values()) or any(of_client.unsettled for of_client in self._clients.values())

    def say_again(self, held: dict[Key, set[int]], stored: Container[Key], full: int = FULL) -> list[TaskResult]:
        """All that another scheduler has to be told, which counts messages anew; each `full` of bytes at most.

        Not what became of rows that came again since and are `held` here to be run, nor of those whose values are lost
        (`stored` are there), and neither losses nor errors after which a row may run again: all those rows run as if
        nothing had been said. Nor what was cancelled: the client says again what it has cancelled, and what another
        scheduler had ended here, as another agent had it, too, nobody has.
        """
        lost = {key for key in self._lost if key not in stored}
        spans: dict[int, list[SpanResult]] = {}
        for (client, _), kept in self._kept.items():
            spans.setdefault(client, []).extend(kept)
            kept.clear()
        self.kept_bytes = 0
        for client, of_client in self._clients.items():
            for message in of_client.unsettled:
                spans.setdefault(client, []).extend(spans_of(message))
        self._clients.clear()
        messages: list[TaskResult] = []
        for client, of_one in spans.items():
            builder = ResultBuilder(client)
            for span in of_one:
                for part in self._still_true(client, span, held.get((client, span.batch)), lost):
                    if builder.size and builder.size + len(part.body) > full:
                        messages.append(builder.build())
                        builder = ResultBuilder(client)
                    builder.add(part)
            if builder.message.batches:
                messages.append(builder.build())
        for message in messages:
            self.add(message)
        self._forget_others({*held, *((each.client, batch) for each in messages for batch in each.batches)})
        return messages

    def _forget_others(self, told: Container[Key]) -> None:
        """The scheduler is told of these batches alone: of others it will not say that they are over."""
        self._kept = {key: kept for key, kept in self._kept.items() if key in told}
        self._retried = {key for key in self._retried if key in told}

    def _still_true(self, client: int, span: SpanResult, held: set[int] | None, lost: set[Key]) -> Iterable[SpanResult]:
        if span.outcome in (LOST, CANCELLED) or (span.outcome == ERROR and (client, span.batch) in self._retried):
            return ()
        if lost and span.outcome == STORED:
            gone = {row for row in range(span.lo, span.hi) if (client, span.batch + row) in lost}
            held = gone | held if held else gone
        if not held or held.isdisjoint(range(span.lo, span.hi)):
            return (span,)
        try:
            return cut(span, list(runs_of([row for row in range(span.lo, span.hi) if row not in held])))
        except ProtocolError:
            return ()

    def _drop_kept(self, key: Key) -> None:
        for span in self._kept.pop(key, ()):
            self.kept_bytes -= len(span.body) + KEPT_OVERHEAD
        if not self._kept:
            self._lost.clear()

    def _keep(self, message: TaskResult) -> None:
        for span in spans_of(message):
            kept = self._kept.get((message.client, span.batch))
            if kept is not None:
                kept.append(span._replace(body=bytes(span.body)))
                self.kept_bytes += len(span.body) + KEPT_OVERHEAD
        while self.kept_bytes > KEPT_BYTES:
            self._drop_kept(next(iter(self._kept)))
