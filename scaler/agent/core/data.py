"""Which objects an agent has, and how it gets those that it lacks.

Small ones are bytes that came in messages. Stored ones are in the index: files in the store or on disk, or live in the
worker that made them. `bring` makes a file of one, from wherever it is:

    live in a worker ── publish ──►┐
    on disk ── restore ───────────►├── a file in the store ──► `arrived`
    at other agents ── fetch ─────►┘                           `lost`, if that can't be done
"""

import math

from scaler.agent.core.bandwidth import Bandwidth
from scaler.agent.core.crew import Crew
from scaler.agent.core.events import DropClient, DropObject, Fetch, Restore, Serve, Spill
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.state import Worker
from scaler.protocol.messages import PLACE, STORED_OBJECT, Frame, Neighbours, ObjectAnnounce, ObjectFetch, Task
from scaler.store.index import StoreIndex
from scaler.store.layout import Key

#: seconds until a value that could not be written or read is tried again (memory or disk may be full), and how often
RETRY_SECONDS = 0.1
MAX_TRIES = 20


class Data:
    """See the module's text."""

    def __init__(self, out: Outbox, crew: Crew, index: StoreIndex) -> None:
        self._out = out
        self._crew = crew
        self.index = index
        #: objects that came inside messages
        self.inline: dict[Key, Frame] = {}
        self.bandwidth = Bandwidth()
        #: objects that are fetched
        self._fetches: set[Key] = set()
        #: this agent's number at the scheduler
        self.number = 1
        #: of stored objects: bytes, and the other agents that have it
        self._sources: dict[Key, tuple[int, list[int]]] = {}
        #: where agents are asked for objects; "" for one that can't be
        self._neighbours: dict[int, str] = {}
        #: objects that are being made files since somebody waits for that
        self._bringing: set[Key] = set()
        #: those of them that a worker was asked to write
        self._publishing: set[Key] = set()
        #: those that the scheduler asked for, to be answered
        self._asked: dict[Key, None] = {}
        #: those that others want to read
        self._requested: set[Key] = set()
        #: how often bringing failed, and when to try again
        self._tries: dict[Key, int] = {}
        self._again: dict[Key, float] = {}
        #: bytes on their way to disk
        self.leaving = 0
        #: bytes of objects that could not be made files, perhaps for lack of room; taken by `Memory.relieve`
        self.lacking = 0
        #: bytes that went to disk since then
        self._freed = 0
        #: what has become of objects that were brought, for whoever waits; taken by `Placement.settle`
        self.arrived: list[Key] = []
        self.lost: dict[Key, str] = {}

    @property
    def count(self) -> int:
        """Objects held."""
        return len(self.inline) + len(self.index)

    @property
    def wake(self) -> float:
        """When `retry` has something to do; infinite for never."""
        return min(self._again.values()) if self._again else math.inf

    @property
    def is_idle(self) -> bool:
        """Nothing is under way or remembered, but objects."""
        return not (
            self._bringing
            or self._publishing
            or self._asked
            or self._requested
            or self._tries
            or self._again
            or self._fetches
            or self.arrived
            or self.lost
        )

    # ---- what the scheduler says -----------------------------------------------------------------------------------
    def task(self, task: Task) -> None:
        """Rows came: the small objects with them, and where the others are."""
        if task.objects:
            payloads = task.bodies[len(task.bodies) - len(task.objects) :]
            for object_id, payload in zip(task.objects, payloads, strict=True):
                self.inline[task.client, object_id] = payload
        if not task.stored:
            return
        at = 0
        for object_id, size, count in zip(task.stored, task.stored_sizes, task.holder_counts, strict=True):
            self._learn((task.client, object_id), size, list(task.holders[at : at + count]))
            at += count

    def neighbours(self, message: Neighbours) -> None:
        """Where other agents are."""
        self._neighbours.update(zip(message.numbers, message.addresses, strict=True))

    def announced(self, message: ObjectAnnounce) -> None:
        """A client wrote these into the store."""
        for object_id, kind, body in zip(message.ids, message.kinds, message.bodies, strict=True):
            if kind == STORED_OBJECT:
                size, _ = PLACE.unpack(body)
                self.stored((message.client, object_id), size)

    def asked(self, message: ObjectFetch) -> None:
        """The scheduler wants these to be files here, for somebody to read."""
        at = 0
        for key, size, count in zip(
            zip(message.clients, message.ids, strict=True), message.sizes, message.holder_counts, strict=True
        ):
            self._learn(key, size, list(message.holders[at : at + count]))
            at += count
            entry = self.index.get(key)
            if entry is not None and entry.place == "shm":
                self.index.touch(key)
                self._out.respond(key, self.number, None)
            else:
                self._asked[key] = None
                self.bring(key)

    def release(self, keys: list[Key]) -> None:
        """Nobody needs these any more."""
        gone = set()
        for key in keys:
            self._sources.pop(key, None)
            if self.inline.pop(key, None) is not None or key in self.index:
                gone.add(key)
            if key in self.index:
                self._remove(key)
            self._no_more(key, "nobody needs it any more")
        for worker in self._crew.workers.values():
            known = gone & worker.objects
            if known:
                worker.objects -= known
                worker.stale += known

    def drop_client(self, client: int, stays: bool) -> None:
        """Forget all objects of a client. If it stays it may have written others, and will tell of them."""
        keys = [key for key in self.inline if key[0] == client] + self.index.of_client(client)
        self.release(keys)
        for key in [key for key in self._sources if key[0] == client]:
            del self._sources[key]
        if not stays:
            self._out.add(DropClient(client))

    def drop_everything(self) -> None:
        """Begin anew; what workers have is dropped by the caller."""
        for key in list(self._fetches):
            self._fetch_ends(key, 0)
        for key in list(self.index.keys()):  # not one by one: clients may have written files by these names since
            self.index.remove(key)
        self.leaving = self.lacking = 0
        self._out.add(DropClient(0))
        for table in (
            self.inline, self._sources, self._neighbours, self._bringing, self._publishing, self._asked,
            self._requested, self._tries, self._again, self.arrived, self.lost,
        ):  # fmt: skip
            table.clear()

    # ---- what workers say ------------------------------------------------------------------------------------------
    def stored(self, key: Key, size: int) -> None:
        """There is a file of it in the store."""
        entry = self.index.get(key)
        if entry is None:
            self.index.add(key, size)
        elif entry.place == "live":
            assert entry.slot is not None
            self._crew.drop(entry.slot, [key])
            self.index.move(key, "shm", size=size)
        elif entry.place == "disk" or (entry.place == "moving" and not entry.leaving):
            self.index.move(key, "shm", size=size)
        else:
            return
        self._arrive(key)

    def live(self, key: Key, size: int, worker: Worker) -> None:
        """A worker has it as an object of its own."""
        entry = self.index.get(key)
        worker.objects.add(key)
        if entry is None:
            self.index.add(key, size, "live", worker.slot)
        elif entry.place == "live" and entry.slot != worker.slot:
            assert entry.slot is not None
            self._crew.drop(entry.slot, [key])
            self.index.move(key, "live", worker.slot, size)
            if key in self._publishing:
                self._out.publish(worker.slot, key)
        elif entry.place != "live":
            self._crew.drop(worker.slot, [key])

    def published(self, worker: Worker, key: Key, size: int, error: str | None) -> None:
        """A worker wrote a live value into a file, asked or not; or could not."""
        entry = self.index.get(key)
        if entry is None:
            if error is None:
                self._out.add(DropObject(key))
        elif entry.place == "live" and entry.slot == worker.slot:
            self._publishing.discard(key)
            if error is None:
                self.index.move(key, "shm", size=size)
                self._arrive(key)
            else:
                self._fail(key, error)

    def unwanted(self, worker: Worker, key: Key, live: bool) -> None:
        """A worker made a value for a row that was taken from it."""
        entry = self.index.get(key)
        if live:
            if entry is None or entry.slot != worker.slot:
                self._crew.drop(worker.slot, [key])
        elif entry is None:
            self._out.add(DropObject(key))

    def worker_gone(self, slot: int) -> None:
        """What was live in a worker is gone with it."""
        for key in self.index.live_in(slot):
            self.index.remove(key)
            self._out.gone(key)
            self._lose(key, "the worker that had it has ended")

    # ---- what the store says ---------------------------------------------------------------------------------------
    def spill(self, key: Key) -> None:
        """Move an object to disk."""
        self.leaving += self.index.move(key, "moving").size
        self._out.add(Spill(key))

    def spilled(self, key: Key, error: str | None) -> None:
        """An object was moved to disk, or could not be."""
        entry = self.index.get(key)
        if entry is None or entry.place != "moving" or not entry.leaving:
            return
        self.leaving -= entry.size
        if error is not None:
            self.index.move(key, "shm")
            self._arrive(key)
        else:
            self.index.move(key, "disk")
            if key in self._bringing:
                self.bring(key)
            if self._again:
                self._try_earlier(entry.size)

    def _try_earlier(self, freed: int) -> None:
        """There is more room: what may have failed for lack of it is tried again as soon as it would fit."""
        self._freed += freed
        for key in self._again:
            size = self.size(key)
            if size <= self._freed and self._again[key] > self._crew.now:
                self._freed -= size
                self._again[key] = self._crew.now

    def restored(self, key: Key, error: str | None) -> None:
        """An object was moved back from disk, or could not be."""
        entry = self.index.get(key)
        if entry is None or entry.place != "moving" or entry.leaving:
            return
        self.index.move(key, "disk" if error is not None else "shm")
        if error is not None:
            self._fail(key, error)
        else:
            self._arrive(key)

    def fetched(self, key: Key, error: str | None) -> None:
        """An object came from another agent, or could not be had from any."""
        entry = self.index.get(key)
        self._fetch_ends(key, entry.size if entry is not None and error is None else 0)
        if entry is None or entry.place != "moving" or entry.leaving:
            return
        if error is not None:
            self.index.remove(key)
            self._sources.pop(key, None)
            self._lose(key, error)
        else:
            self.index.move(key, "shm")
            self._out.announce(key, entry.size, self.number)
            self._arrive(key)

    # ---- bringing --------------------------------------------------------------------------------------------------
    def can_bring(self, key: Key) -> bool:
        """It is here, or somebody is known who has it."""
        return key in self.index or bool(self._addresses(key))

    def size(self, key: Key) -> int:
        """Bytes; 0 if nothing is known of it."""
        entry = self.index.get(key)
        return entry.size if entry is not None else self._sources.get(key, (0,))[0]

    def bring(self, key: Key) -> None:
        """Make it a file in the store; `arrived` or `lost` will have it."""
        entry = self.index.get(key)
        self._bringing.add(key)
        if entry is None:
            addresses = self._addresses(key)
            if addresses:
                self.index.add(key, self._sources[key][0], "moving")
                self._fetches.add(key)
                self.bandwidth.begins(self._crew.now)
                self._out.add(Fetch(key, self._sources[key][0], addresses))
            else:
                self._sources.pop(key, None)
                self._lose(key, "no agent that has it can be reached")
        elif entry.place == "shm":
            self._arrive(key)
        elif entry.place == "live":
            if key not in self._publishing and key not in self._again:
                assert entry.slot is not None
                self._publishing.add(key)
                self._out.publish(entry.slot, key)
        elif entry.place == "disk" and key not in self._again:
            self.index.move(key, "moving")
            self._out.add(Restore(key))
        # else it is moving: what goes to disk is brought back when it is there, by `spilled`

    def requested(self, key: Key) -> None:
        """Somebody elsewhere wants to read it, and there is no file."""
        self.file_missing(key)
        if key in self.index:
            self._requested.add(key)
            self.bring(key)
        else:
            self._out.add(Serve(key, "it is not here"))

    def file_missing(self, key: Key) -> None:
        """There is no file of it; if there should be one somebody has removed it, and it is gone."""
        entry = self.index.get(key)
        if entry is not None and entry.place == "shm":
            self.index.remove(key)
            self._out.gone(key)

    def retry(self) -> None:
        """Try again what failed a while ago."""
        for key in [key for key, at in self._again.items() if at <= self._crew.now]:
            del self._again[key]
            self.bring(key)

    def publish_all(self, worker: Worker) -> None:
        """Have a worker write all its live values."""
        for key in self.index.live_in(worker.slot):
            self.bring(key)

    def _learn(self, key: Key, size: int, holders: list[int]) -> None:
        others = [number for number in holders if number != self.number]
        if others:
            self._sources[key] = size, others

    def _addresses(self, key: Key) -> list[str]:
        _, holders = self._sources.get(key, (0, ()))
        return [address for number in holders if (address := self._neighbours.get(number))]

    def _arrive(self, key: Key) -> None:
        if key in self._bringing:
            self._settle(key, None)
            self.arrived.append(key)

    def _lose(self, key: Key, reason: str) -> None:
        self._settle(key, reason)
        self.lost[key] = reason

    def _no_more(self, key: Key, reason: str) -> None:
        if key in self._bringing:
            self._lose(key, reason)

    def _settle(self, key: Key, reason: str | None) -> None:
        self._bringing.discard(key)
        self._publishing.discard(key)
        self._tries.pop(key, None)
        self._again.pop(key, None)
        if key in self._asked:
            del self._asked[key]
            self._out.respond(key, self.number, reason)
        if key in self._requested:
            self._requested.remove(key)
            self._out.add(Serve(key, reason))

    def _fail(self, key: Key, reason: str) -> None:
        """It is here and can't be made a file: perhaps later."""
        if key not in self._bringing:
            return
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        if tries < MAX_TRIES:
            if not self._again:
                self._freed = 0
            self._again[key] = self._crew.now + RETRY_SECONDS
            self.lacking += self.size(key)
            return
        self._remove(key)
        self._out.gone(key)
        self._lose(key, reason)

    def _fetch_ends(self, key: Key, size: int) -> None:
        if key in self._fetches:
            self._fetches.remove(key)
            self.bandwidth.ends(self._crew.now, size)

    def _remove(self, key: Key) -> None:
        entry = self.index.remove(key)
        self._fetch_ends(key, 0)
        if entry.place == "live":
            assert entry.slot is not None
            self._crew.drop(entry.slot, [key])
            return
        if entry.place == "moving" and entry.leaving:
            self.leaving -= entry.size
        self._out.add(DropObject(key))
