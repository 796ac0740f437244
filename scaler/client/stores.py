"""Where this client writes and reads large values: a directory of its own host, or a store that it reaches by network.

The scheduler is asked for stores when the first large value needs one. A directory is used if its token proves that it
is the very one the scheduler speaks of; else the store beside the scheduler is asked for, and its address used. A value
that is in no directory of this host is asked of the scheduler, which has it brought to a store that this client can
read. All that blocks here waits for answers that the I/O thread receives, so that thread goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from scaler import store
from scaler.client import events as ev
from scaler.errors import ConnectionFailed, ConnectionTimeout, ForkedClient, ObjectLost, StoreFull
from scaler.protocol.messages import PLACE, ObjectRequest, ObjectResponse, StoreOffers, StoreRequest, u32, u64
from scaler.serialize.outofband import Packed
from scaler.store.directory import is_same_host
from scaler.store.layout import Key, StoredObject
from scaler.store.remote import RemoteStore
from scaler.store.segments import open_object
from scaler.store.segments import write as write_object
from scaler.store.warm import WarmSegments
from scaler.transport import Address, Security

if TYPE_CHECKING:
    from scaler.client.link import Link

A = TypeVar("A")

#: seconds for which a store is waited for
PATIENCE = 10.0
#: seconds for which room in a full store is waited for: its agent moves objects to disk
ROOM_PATIENCE = 3.0
#: how often a value that was there a moment ago is asked for again
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Written:
    """An object in a store."""

    id: int
    #: bytes
    size: int
    #: number of the agent whose store it is
    agent: int
    #: of the session, when it was written
    generation: int

    def announce(self, source: Any) -> ev.Announce:
        """What tells the scheduler; `source()` packs the value again."""
        place = PLACE.pack(self.size, self.agent)
        return ev.Announce(self.id, place, stored=True, source=source, generation=self.generation)


class _Directory:
    """The store of an agent on this host."""

    def __init__(self, path: str, warm: WarmSegments) -> None:
        self.path = path
        self._warm = warm

    def put(self, key: Key, packed: Packed) -> int:
        return write_object(self.path, key, packed.inband, packed.buffers, self._warm.write)

    def get(self, key: Key) -> StoredObject:
        return open_object(self.path, key, sparing=True)

    def close(self) -> None:
        pass


class _Remote:
    """A store on another host."""

    def __init__(self, address: str, security: Security) -> None:
        self._store = RemoteStore(address, security)

    def put(self, key: Key, packed: Packed) -> int:
        return self._store.put(key, packed.inband, packed.buffers)

    def get(self, key: Key) -> StoredObject:
        return self._store.get(key)

    def close(self) -> None:
        """Blocks until calls of other threads have ended."""
        self._store.close()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where large values are written at present."""

    agent: int
    store: _Directory | _Remote
    #: of the client, in keys
    number: int
    generation: int


@dataclass(slots=True)
class _Question:
    """Where an object can be read."""

    #: threads that want to know
    askers: int = 0
    answer: ObjectResponse | None = None


class Stores:
    """See the module's text. Any thread."""

    def __init__(self, link: Link, security: Security) -> None:
        self._link = link
        self._security = security
        self._owner = os.getpid()
        #: told of answers, and of the end
        self._changed = threading.Condition()
        #: held by the thread that looks for a store
        self._looking = threading.Lock()
        self._place: _Place | None = None
        #: by number of its agent: what can be read
        self._readable: dict[int, _Directory | _Remote] = {}
        self._offers: StoreOffers | None = None
        #: an offer came unasked: there is a better store than the one that was found
        self._is_better = False
        self._warm = WarmSegments()
        self._questions: dict[int, _Question] = {}
        #: raised when all that was asked has to be asked again
        self._round = 0
        #: called when a store is full: lets go of what is not needed
        self.make_room: Callable[[], None] = lambda: None

    # ---- for the I/O thread ----------------------------------------------------------------------------------------
    def told(self, message: StoreOffers | ObjectResponse) -> None:
        """An answer came."""
        with self._changed:
            if isinstance(message, StoreOffers):
                self._offers = message
                self._is_better = not self._looking.locked()
            else:
                for object_id in message.ids:
                    question = self._questions.get(object_id)
                    if question is not None:
                        question.answer = message
            self._changed.notify_all()

    def renewed(self) -> None:
        """The scheduler and its stores are new ones."""
        with self._changed:
            self._round += 1
            self._changed.notify_all()
        self._forget()

    def ended(self) -> None:
        """There is no scheduler any more."""
        with self._changed:
            self._changed.notify_all()
        self._forget()

    def _forget(self) -> None:
        with self._changed:
            self._place = None
            readable, self._readable = self._readable, {}
        self._warm.clear()
        for other in readable.values():
            if isinstance(other, _Remote):
                threading.Thread(target=other.close, name="scaler-client-hangs-up", daemon=True).start()

    # ---- writing ---------------------------------------------------------------------------------------------------
    @property
    def is_here(self) -> bool:
        """Whether values are written to a directory of this host."""
        return self._place is not None and isinstance(self._place.store, _Directory)

    def write(self, object_id: int, packed: Packed, what: str, again: bool = False) -> Written | None:
        """Write a value; None if there is no store at all. `what` names it for messages.

        `again`: what was written before is lost, perhaps with its store, though the directory may be there still.

        Blocks as long as writing takes, and shortly if there is no room. Raises `StoreFull`, `ConnectionFailed`.
        """
        deadline = time.monotonic() + ROOM_PATIENCE
        trouble: BaseException | None = None
        for attempt in range(_ATTEMPTS):
            place = self._find(anew=again and not attempt)
            if place is None:
                return None
            try:
                size = self._write_to(place, object_id, packed, deadline)
            except store.StoreFull as full:
                raise StoreFull(
                    f"{what} takes {full.wanted:,} bytes: {full.path} has no room for it, {full.free:,} are free"
                ) from None
            except (OSError, store.TransferFailed) as error:  # its agent is gone, or was a moment ago
                trouble = error
                self._leave(place)
            else:
                return Written(object_id, size, place.agent, place.generation)
        raise ConnectionFailed(f"{what} could not be stored: {trouble}") from trouble

    def _write_to(self, place: _Place, object_id: int, packed: Packed, deadline: float) -> int:
        while True:
            try:
                return place.store.put((place.number, object_id), packed)
            except store.StoreFull:
                self._warm.clear()
                self.make_room()
                if time.monotonic() > deadline:
                    raise
            threading.Event().wait(0.05)

    def _leave(self, place: _Place) -> None:
        with self._changed:
            if self._place is place:
                self._place = None
                if isinstance(place.store, _Directory):
                    self._readable.pop(place.agent, None)

    # ---- reading ---------------------------------------------------------------------------------------------------
    def look_up(self, object_id: int) -> StoredObject | None:
        """An object, if it is in a directory of this host."""
        number = self._link.welcome.number
        for readable in list(self._readable.values()):
            if isinstance(readable, _Directory):
                with contextlib.suppress(store.ObjectMissing, OSError):
                    return readable.get((number, object_id))
        return None

    def read(self, object_id: int, what: str, timeout: float | None = None) -> StoredObject:
        """An object, wherever it is; blocks. Raises `ObjectLost`, `ConnectionFailed`, TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._place is None and self._find() is None:
            raise ObjectLost(f"{what} is in a store, and there is none that this client could read it from")
        reason = ""
        for _ in range(_ATTEMPTS):
            found = self.look_up(object_id)
            if found is not None:
                return found
            answer = self._ask_for(object_id, what, deadline)
            index = answer.ids.index(object_id)
            if answer.outcomes[index]:
                raise ObjectLost(f"{what} is lost: {answer.reason}")
            try:
                return self._readable_of(answer.agent).get((self._link.welcome.number, object_id))
            except (store.ObjectMissing, store.TransferFailed, OSError) as error:
                reason = str(error)
        raise ObjectLost(f"{what} is lost: {reason}")

    def _readable_of(self, agent: int) -> _Directory | _Remote:
        readable = self._readable.get(agent)
        if readable is None:
            self._find(anew=True)  # an agent that came later
            readable = self._readable.get(agent)
        if readable is None:
            raise store.ObjectMissing(f"it is in the store of agent {agent}, which can't be read from here")
        return readable

    def _ask_for(self, object_id: int, what: str, deadline: float | None) -> ObjectResponse:
        with self._changed:
            question = self._questions.setdefault(object_id, _Question())
            question.askers += 1
            question.answer = None
        try:
            answer = self._ask(ObjectRequest(u32([0]), u64([object_id])), lambda: question.answer, deadline)
            if answer is None:
                raise TimeoutError(f"{what} could not be read in time")
            return answer
        finally:
            with self._changed:
                question.askers -= 1
                if not question.askers:
                    self._questions.pop(object_id, None)

    # ---- which store -----------------------------------------------------------------------------------------------
    def _find(self, anew: bool = False) -> _Place | None:
        """The store to write to; None if there is none. Raises `ConnectionFailed`, `ConnectionTimeout`."""
        place = self._place
        if place is not None and not (anew or self._is_better):
            return place
        with self._looking:
            if self._place is not None and self._place is not place:
                return self._place
            deadline = time.monotonic() + PATIENCE
            self._is_better = False
            while True:
                generation, number = self._link.session.generation, self._link.welcome.number
                readable = self._look(deadline)
                with self._changed:
                    if generation != self._link.session.generation:
                        continue
                    self._readable = {**readable, **{a: r for a, r in self._readable.items() if a not in readable}}
                    self._place = next((_Place(a, r, number, generation) for a, r in readable.items()), None)
                    return self._place

    def _look(self, deadline: float) -> dict[int, _Directory | _Remote]:
        """The stores that can be used, by number of their agents: directories of this host, else others."""
        for beside in (False, True):
            offers = self._offers_of(beside, deadline)
            found: dict[int, _Directory | _Remote] = {
                agent: _Directory(path, self._warm)
                for agent, path, token in zip(offers.agents, offers.paths, offers.tokens, strict=True)
                if path and is_same_host(path, token)
            }
            if found:
                return found
        return {
            agent: self._readable.get(agent) or _Remote(self._reachable(address), self._security)
            for agent, address in zip(offers.agents, offers.addresses, strict=True)
            if address
        }

    def _reachable(self, address: str) -> str:
        """An address that only means something on the scheduler's host, as it is seen from here."""
        there, scheduler = Address.parse(address), self._link.address
        if there.is_loopback and not scheduler.is_loopback:
            return Address(scheduler.host, there.port).url
        return address

    def _offers_of(self, beside: bool, deadline: float) -> StoreOffers:
        self._offers = None
        offers = self._ask(StoreRequest(beside), lambda: self._offers, deadline)
        if offers is None:
            raise ConnectionTimeout(
                f"no store for large values within {PATIENCE:g} s: the scheduler at {self._link.address} offered none "
                "(has a host joined the cluster yet?)"
            )
        return offers

    def _ask(
        self, message: StoreRequest | ObjectRequest, answer: Callable[[], A | None], deadline: float | None
    ) -> A | None:
        """Ask the scheduler and wait for the answer; None if it does not come in time."""
        if os.getpid() != self._owner:
            raise ForkedClient("this client was made before this process was forked: make a new Client here")
        link, asked = self._link, -1
        while True:
            if asked != self._round:
                asked = self._round
                link.tell(ev.Say(message))
            with self._changed:
                while (found := answer()) is None and link.failure is None and asked == self._round:
                    left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                    if left <= 0:
                        return None
                    self._changed.wait(left)
            if found is not None:
                return found
            if link.failure is not None:
                raise ConnectionFailed(str(link.failure)) from link.failure
