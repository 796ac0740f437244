"""What one `handle` of an agent's core is going to do, in order, with what is said to the scheduler in few messages."""

from scaler.agent.core.events import Effect, Log, ToScheduler, ToWorker
from scaler.agent.state.unsettled import UnsettledResults
from scaler.protocol.messages import (
    PLACE,
    STORED_OBJECT,
    Message,
    ObjectAnnounce,
    ObjectGone,
    ObjectMissing,
    ObjectResponse,
)
from scaler.protocol.results import FULL, ResultBuilder, SpanResult, parts_within
from scaler.store.layout import Key
from scaler.worker_protocol.messages import Publish


class Outgoing:
    """Effects in order. The scheduler hears everything in the order in which it was said here."""

    __slots__ = ("_effects", "_limit", "_missing", "_open", "_publish", "_results", "_unsettled", "full")

    def __init__(self, unsettled: UnsettledResults | None = None, limit: int = FULL) -> None:
        """`unsettled` keeps what is said of rows that ended; None: nobody will ask for that. `limit`: see `heed`."""
        self._unsettled = unsettled
        self.heed(limit)
        self._effects: list[Effect] = []
        self._results: dict[int, ResultBuilder] = {}
        #: a message about objects that more can be added to
        self._open: Message | None = None
        #: the objects in it, if it says that they are missing
        self._missing: set[Key] = set()
        #: objects that workers shall write, by slot
        self._publish: dict[int, list[Key]] = {}

    def heed(self, limit: int) -> None:
        """Messages may have so many bytes of results."""
        self._limit = limit
        #: bytes of results after which another message is begun
        self.full = min(FULL, limit)

    def add(self, effect: Effect) -> None:
        """Anything but a message to the scheduler."""
        self._effects.append(effect)

    def log(self, level: str, text: str) -> None:
        """A line for the log."""
        self._effects.append(Log(level, text))

    def say(self, message: Message) -> None:
        """Tell the scheduler."""
        if self._results:
            self._flush_results()
        if self._open is not None:
            self._close()
        self._effects.append(ToScheduler(message))

    def result(self, client: int, span: SpanResult) -> None:
        """Tell how rows ended."""
        if self._open is not None:
            self._close()
        for part in (span,) if len(span.body) <= self._limit else parts_within(span, self.full):
            builder = self._results.get(client)
            if builder is not None and builder.size + len(part.body) > self.full:
                self._flush_results()
                builder = None
            if builder is None:
                builder = self._results[client] = ResultBuilder(client)
            builder.add(part)

    def cancelled(self, client: int, batch: int, spans: list[tuple[int, int]]) -> None:
        """Tell that spans of a batch are cancelled: what `result` does with each, at less cost."""
        if self._open is not None:
            self._close()
        builder = self._results.get(client)
        if builder is None:
            builder = self._results[client] = ResultBuilder(client)
        builder.add_cancelled(batch, spans)

    def drop_results(self, client: int | None = None) -> None:
        """Nobody wants to hear how rows ended: those of a client, or all."""
        if client is None:
            self._results.clear()
        else:
            self._results.pop(client, None)

    def publish(self, slot: int, key: Key) -> None:
        """A worker shall write a value that it has."""
        self._publish.setdefault(slot, []).append(key)

    def announce(self, key: Key, size: int, agent: int) -> None:
        """This agent has a copy of an object."""
        message = self._open
        if not isinstance(message, ObjectAnnounce) or message.client != key[0]:
            self._reopen(message := ObjectAnnounce(client=key[0]))
        message.ids.append(key[1])
        message.kinds.append(STORED_OBJECT)
        message.bodies.append(PLACE.pack(size, agent))

    def gone(self, key: Key, with_worker: bool = False) -> None:
        """This agent has an object no more, perhaps because the worker that alone had it has ended."""
        if self._unsettled is not None:
            self._unsettled.lose(key)
        message = self._open
        if not isinstance(message, ObjectGone) or message.with_worker != with_worker:
            self._reopen(message := ObjectGone(with_worker=with_worker))
        message.add(*key)

    def missing(self, keys: list[Key], client: int, batch: int, lo: int, hi: int) -> None:
        """Objects can't be had; rows that need them go back."""
        message = self._open
        if not isinstance(message, ObjectMissing) or message.refusal:
            self._reopen(message := ObjectMissing())
            self._missing.clear()
        for key in keys:
            if key not in self._missing:
                self._missing.add(key)
                message.objects.add(*key)
        message.rows.add(client, batch, lo, hi)

    def refuse(self, why: str, client: int, batch: int, lo: int, hi: int, unfit: bool = False) -> None:
        """Rows can never run here; they go back. `unfit`: none can."""
        message = self._open
        if not isinstance(message, ObjectMissing) or message.refusal != why:
            self._reopen(message := ObjectMissing(refusal=why, unfit=unfit))
        message.rows.add(client, batch, lo, hi)

    def respond(self, key: Key, agent: int, reason: str | None) -> None:
        """The scheduler asked for an object: it is a file now, or can't be one."""
        message = self._open
        if not isinstance(message, ObjectResponse) or message.reason != (reason or ""):
            self._reopen(message := ObjectResponse(agent=agent, reason=reason or ""))
        message.add(*key, reason is not None)

    def begin_anew(self) -> None:
        """What was to be said was for another scheduler; how rows ended is kept."""
        if self._results:
            self._flush_results()
        self._open = None
        self._effects = [effect for effect in self._effects if not isinstance(effect, ToScheduler)]

    def flush(self) -> list[Effect]:
        """All effects; nothing is left here afterwards."""
        if self._results:
            self._flush_results()
        elif self._open is not None:
            self._close()
        if self._publish:
            for slot, keys in self._publish.items():
                self._effects.append(ToWorker(slot, Publish(keys), control=True))
            self._publish.clear()
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_empty(self) -> bool:
        """Nothing was left behind."""
        return not (self._effects or self._results or self._open or self._publish)

    def _flush_results(self) -> None:
        for builder in self._results.values():
            message = builder.build()
            if self._unsettled is not None:
                self._unsettled.add(message)
            self._effects.append(ToScheduler(message))
        self._results.clear()

    def _reopen(self, message: Message) -> None:
        if self._results:
            self._flush_results()
        if self._open is not None:
            self._close()
        self._open = message

    def _close(self) -> None:
        assert self._open is not None
        self._effects.append(ToScheduler(self._open))
        self._open = None
