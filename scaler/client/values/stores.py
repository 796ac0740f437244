"""Where this client writes and reads large values: a directory of its own host, or a store that it reaches by network.

The scheduler is asked for stores when the first large value needs one. A directory is used if its token proves that it
is the very one the scheduler speaks of; else the store at the scheduler's host is asked for, and its address used. A
value that is in no directory of this host is asked of the scheduler, which has it brought to a store that this client
can read. All that blocks here waits for answers that the I/O thread receives, so that thread goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable

from scaler import store
from scaler.client.io.driver import SessionDriver
from scaler.client.values.places import LocalStore, Place, Written
from scaler.client.values.questions import StoreQuestions
from scaler.common.process_limits import is_lack, limit_of_descriptors
from scaler.errors import AddressError, ConnectionFailed, ConnectionTimeout, ObjectLost, StoreFull
from scaler.protocol.messages import ObjectResponse, StoreOffers
from scaler.serialize.outofband import Packed
from scaler.store.directory import is_same_host
from scaler.store.layout import StoredObject
from scaler.store.remote import RemoteStore
from scaler.store.warm import WarmSegments
from scaler.transport import Address, Security

#: seconds for which a store is waited for
PATIENCE = 10.0
#: how often a value that was there a moment ago is asked for again
_ATTEMPTS = 4


class Stores:
    """The stores of one client. Any thread, but for those methods that say otherwise."""

    def __init__(
        self,
        driver: SessionDriver,
        questions: StoreQuestions,
        scheduler: Callable[[], Address],
        security: Security,
        make_room: Callable[[], None],
    ) -> None:
        """`scheduler`: the one of its addresses at which it is now."""
        self._driver = driver
        self._questions = questions
        self._scheduler = scheduler
        self._security = security
        #: called when a store is full: lets go of what is not needed
        self._make_room = make_room
        #: held while the fields below change; the collector may run anybody's code meanwhile
        self._lock = threading.RLock()
        #: held by the thread that looks for a store; a finaliser that comes meanwhile may send a large value, too
        self._looking = threading.RLock()
        self._is_looking = False
        self._place: Place | None = None
        #: by number of its agent: what can be read
        self._readable: dict[int, LocalStore | RemoteStore] = {}
        #: an offer came unasked: there is a better store than the one that was found
        self._is_better_offered = False
        self._warm = WarmSegments()

    # ---- for the I/O thread ----------------------------------------------------------------------------------------
    def take_answer(self, message: StoreOffers | ObjectResponse) -> None:
        """The scheduler said something of stores."""
        if isinstance(message, StoreOffers):
            self._is_better_offered = not self._is_looking
        self._questions.answer(message)

    def renew(self, kept: bool) -> None:
        """The scheduler is a new one, and so are its stores unless they are `kept`."""
        self._questions.repeat()
        if not kept:
            self._forget()

    @property
    def has_connections(self) -> bool:
        """Some stores are reached by network. Any thread."""
        return any(isinstance(other, RemoteStore) for other in list(self._readable.values()))

    def tidy(self) -> None:
        """Hang up where stores are gone, and forget those not in use: they are offered again. Blocks for moments."""
        for agent, other in list(self._readable.items()):
            if isinstance(other, RemoteStore) and not other.tidy():
                with self._lock:
                    is_place = self._place is not None and self._place.store is other
                    if not is_place and self._readable.get(agent) is other:
                        del self._readable[agent]

    def end(self) -> None:
        """There is no scheduler any more."""
        self._questions.end()
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._place = None
            readable, self._readable = self._readable, {}
        self._warm.clear()
        for other in readable.values():
            if isinstance(other, RemoteStore):
                threading.Thread(target=other.close, name="scaler-client-hangs-up", daemon=True).start()

    # ---- writing ---------------------------------------------------------------------------------------------------
    @property
    def is_local(self) -> bool:
        """Whether values are written to a directory of this host."""
        return self._place is not None and isinstance(self._place.store, LocalStore)

    def write(self, object_id: int, packed: Packed, what: str, is_repeated: bool = False) -> Written | None:
        """Write a value; None if there is no store at all. `what` names it for messages.

        `is_repeated`: what was written before is lost, perhaps with its store, though the directory may be there still.

        Blocks as long as writing takes, and shortly if there is no room. Raises `StoreFull`, `ConnectionFailed`.
        """
        deadline = time.monotonic() + store.ROOM_PATIENCE
        trouble: BaseException | None = None
        for attempt in range(_ATTEMPTS):
            place = self._find(anew=is_repeated and not attempt, is_patient=True)
            if place is None:
                return None
            try:
                size = self._write_to(place, object_id, packed, deadline)
            except store.StoreFull as full:
                raise StoreFull(f"{what} takes {full.wanted:,} bytes: {full.reason}") from None
            except (OSError, store.TransferFailed) as error:  # its agent is gone, or was a moment ago
                trouble = error
                self._leave(place)
            else:
                return Written(object_id, size, place.agent, place.generation)
        raise ConnectionFailed(f"{what} could not be stored: {trouble}") from trouble

    def _write_to(self, place: Place, object_id: int, packed: Packed, deadline: float) -> int:
        while True:
            try:
                return place.store.put((place.client, object_id), packed.inband, packed.buffers)
            except store.StoreFull as full:
                self._warm.clear()
                self._make_room()
                if full.is_for_good or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _leave(self, place: Place) -> None:
        with self._lock:
            if self._place is place:
                self._place = None
                if isinstance(place.store, LocalStore):
                    self._readable.pop(place.agent, None)

    # ---- reading ---------------------------------------------------------------------------------------------------
    def look_up(self, object_id: int) -> StoredObject | None:
        """An object, if it is in a directory of this host."""
        number = self._driver.welcome.number
        for readable in list(self._readable.values()):
            if isinstance(readable, LocalStore):
                with contextlib.suppress(store.ObjectMissing, OSError):
                    return readable.get((number, object_id))
        return None

    def read(self, object_id: int, what: str, timeout: float | None = None) -> StoredObject:
        """An object, wherever it is; blocks. Raises `ObjectLost`, `ConnectionFailed`, TimeoutError.

        A scheduler that offers no store for a while, since it is stopped or a new one whose hosts are not back, is
        asked again: until `timeout` seconds are over, without one `_ATTEMPTS` times. Raises OSError where this process
        has no descriptor, or too little memory: nothing is lost by that.
        """
        try:
            return self._read(object_id, what, timeout)
        except OSError as error:
            if not is_lack(error):
                raise
            limit = f": {limit_of_descriptors()}" if error.errno == errno.EMFILE else ""
            raise OSError(error.errno, f"{what} can't be read for now: {error.strerror}{limit}") from error

    def _read(self, object_id: int, what: str, timeout: float | None) -> StoredObject:
        deadline = None if timeout is None else time.monotonic() + timeout
        failed, reason = 0, ""
        while failed < _ATTEMPTS:
            with contextlib.suppress(ConnectionTimeout):  # where it is can be asked all the same, and waited for
                if self._place is None and self._find() is None:
                    raise ObjectLost(f"{what} is in a store, and there is none that this client could read it from")
            found = self.look_up(object_id)
            if found is not None:
                return found
            answer = self._questions.place_of(object_id, deadline)
            if answer is None:
                raise TimeoutError(f"{what} could not be read in time")
            if answer.outcomes[answer.ids.index(object_id)]:
                raise ObjectLost(f"{what} is lost: {answer.reason}")
            try:
                return self._readable_of(answer.agent).get((self._driver.welcome.number, object_id))
            except ConnectionTimeout:
                failed += deadline is None
                if failed == _ATTEMPTS or (deadline is not None and time.monotonic() >= deadline):
                    raise
            except (store.ObjectMissing, store.TransferFailed, OSError) as error:
                if is_lack(error):
                    raise
                failed += 1
                reason = str(error)
        raise ObjectLost(f"{what} is lost: {reason}")

    def _readable_of(self, agent: int) -> LocalStore | RemoteStore:
        readable = self._readable.get(agent)
        if readable is None:
            self._find(anew=True)  # an agent that came later
            readable = self._readable.get(agent)
        if readable is None:
            raise store.ObjectMissing(f"it is in the store of agent {agent}, which can't be read from here")
        return readable

    # ---- which store -----------------------------------------------------------------------------------------------
    def _find(self, anew: bool = False, is_patient: bool = False) -> Place | None:
        """The store to write to; None if there is none. Raises `ConnectionFailed`, `ConnectionTimeout`."""
        place = self._place
        if place is not None and not (anew or self._is_better_offered):
            return place
        with self._looking:
            if self._place is not None and self._place is not place:
                return self._place
            was_looking, self._is_looking = self._is_looking, True
            try:
                return self._look(place, is_patient)
            finally:
                self._is_looking = was_looking

    def _look(self, before: Place | None, is_patient: bool) -> Place | None:
        deadline = time.monotonic() + PATIENCE
        self._is_better_offered = False
        session = self._driver.session
        while True:
            generation, number = session.generation, self._driver.welcome.number
            readable = self._ask_for_stores(deadline, is_patient)
            with self._lock:
                if self._place is not None and self._place is not before:
                    return self._place  # found in this thread, by a finaliser that has sent something meanwhile
                if generation != session.generation:
                    continue
                self._readable = {**readable, **{a: r for a, r in self._readable.items() if a not in readable}}
                self._place = next((Place(a, r, number, generation) for a, r in readable.items()), None)
                return self._place

    def _ask_for_stores(self, deadline: float, is_patient: bool) -> dict[int, LocalStore | RemoteStore]:
        """The stores that can be used, by number of their agents: directories of this host, else others."""
        for standalone in (False, True):
            offers = self._offers(standalone, deadline, is_patient)
            found: dict[int, LocalStore | RemoteStore] = {
                agent: LocalStore(path, self._warm)
                for agent, path, token in zip(offers.agents, offers.paths, offers.tokens, strict=True)
                if path and is_same_host(path, token)
            }
            if found:
                return found
        for agent, address in zip(offers.agents, offers.addresses, strict=True):
            if address:
                with contextlib.suppress(AddressError):  # nobody is reached there
                    found[agent] = self._readable.get(agent) or RemoteStore(self._reachable(address), self._security)
        return found

    def _offers(self, standalone: bool, deadline: float, is_patient: bool) -> StoreOffers:
        offers = self._questions.offers(standalone, deadline, is_patient)
        if offers is None:
            scheduler = f"the scheduler at {self._scheduler()}"
            why = (
                f"nothing comes of {scheduler}"
                if self._driver.is_cut_off(time.monotonic())
                else f"{scheduler} offered none (has a host joined the cluster yet?)"
            )
            raise ConnectionTimeout(f"no store for large values within {PATIENCE:g} s: {why}")
        return offers

    def _reachable(self, address: str) -> str:
        """An address that only means something on the scheduler's host, as it is seen from here."""
        there, scheduler = Address.parse(address), self._scheduler()
        if there.is_loopback and not scheduler.is_loopback:
            return Address(scheduler.host, there.port).url
        return address
