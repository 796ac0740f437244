"""The store of a host around the agent's core: its directory, what is moved to disk, what other hosts get and give.

Removing is done at once, by the agent's own thread, so that it is over before anybody can make the same object again.
What other threads were asked for before is still done; its result is then of no interest, and left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from typing import Any

from scaler.agent.core.events import (
    DropClient,
    DropObject,
    Effect,
    Event,
    Fetch,
    Fetched,
    FileMissing,
    Put,
    Requested,
    Restore,
    Restored,
    Serve,
    Spill,
    Spilled,
)
from scaler.agent.limits import live_limit
from scaler.agent.state.memory import AgentLimits
from scaler.agent.store_cleaning import FreedMemory, Sweeper, remove_older
from scaler.common.loop import Loop
from scaler.config import OptionError
from scaler.errors import AddressError
from scaler.protocol.messages import INLINE_LIMIT
from scaler.store import segments
from scaler.store.directory import TOKEN, StoreDirectory, clean_up_dead
from scaler.store.index import StoreIndex
from scaler.store.layout import Key
from scaler.store.spill import Spiller
from scaler.store.transfer import Transfer
from scaler.transport import Address, Security

logger = logging.getLogger("scaler.agent")


class HostStore:
    """The directory of a host's objects, and the threads that move objects to it and from it. One thread calls it."""

    def __init__(self, limit: int, spill_root: str | None = None, port: int = 0) -> None:
        """Make a store for `limit` bytes in memory; remove those of dead agents. Raises OSError, and `OptionError` for
        a `spill_root` that can't be used.

        `port`: where it listens once it is open; 0: a free one.
        """
        clean_up_dead()
        self.directory = StoreDirectory()
        #: what was made for `spill_root`, the innermost first, and goes with this if nothing else is in it then
        self._made = list[str]()
        try:
            if spill_root is not None:
                self._made = _missing(spill_root)
                os.makedirs(spill_root, exist_ok=True)
            self._spiller = Spiller(self.directory.path, spill_root)
        except BaseException as error:
            self.directory.remove()
            self._remove_made()
            if spill_root is not None and isinstance(error, OSError):
                why = f"{spill_root} is a file" if isinstance(error, FileExistsError) else error
                raise OptionError("spill_directory", f"cannot be written: {why}") from error
            raise
        self._transfer: Transfer | None = None
        #: of a store that may have to listen otherwise than it was first thought: see `widen`
        self._security: Security | None = None
        self._address = ""
        self._port = port
        #: where agents are asked for objects that say that they are on the scheduler's own host
        self._scheduler_host: str | None = None
        #: how many moves to and from disk are under way for an object, and how many of them nobody waits for
        self._moves: Counter[Key] = Counter()
        self._stale_moves: Counter[Key] = Counter()
        #: the same of objects that are fetched
        self._fetches: set[Key] = set()
        self._stale_fetches: Counter[Key] = Counter()
        #: objects that are or may be on disk
        self._on_disk: set[Key] = set()
        #: when the agent introduced itself to the scheduler, as files have it: nanoseconds
        self._introduced = 0
        self._freed = FreedMemory(self.directory.path, limit)
        self._sweeper = Sweeper(self.directory.path)
        #: when `tidy` has to be called though nothing happens, seconds; None: it hasn't
        self.wake: float | None = None
        #: until then there is nothing to tidy
        self.tidy_at = 0.0
        #: the log says that the directory is gone, and can't be made again
        self._is_broken = False

    @property
    def path(self) -> str:
        """The directory."""
        return self.directory.path

    @property
    def address(self) -> str:
        """Where others can fetch objects; "" if they can't."""
        return self._address

    @property
    def hello(self) -> tuple[str, str, str]:
        """What `Hello` says of it: directory, token, address."""
        return self.directory.path, self.directory.token, self.address

    def open(self, security: Security, scheduler: Address, on_its_host: bool) -> None:
        """Let others fetch objects, and fetch theirs. `on_its_host`: this process is on the scheduler's own host.

        Listens where others can reach it that can reach the scheduler. Raises `AddressInUse`, `AddressError`.
        """
        host = scheduler.host
        if not on_its_host:
            host = scheduler.reached_from()
            self._scheduler_host = scheduler.host
        wanted = Address(host, self._port)
        bind = wanted if on_its_host or wanted.is_loopback else self._everywhere(host)
        self._security = None if on_its_host else security
        self._listen(security, bind, bind.for_client().host if on_its_host else host)

    def _listen(self, security: Security, bind: Address, host: str) -> Transfer:
        """`host`: where others find it."""
        transfer = Transfer(self.directory.path, security, bind.url, on_demand=True)
        self._transfer, self._address = transfer, Address(host, transfer.address.port).url
        transfer.advertise(self._address)
        return transfer

    def _everywhere(self, host: str) -> Address:
        """Where to listen to be found at this address: at all there are, those of IPv6 among them if it is one."""
        return Address("::" if ":" in host else "0.0.0.0", self._port)

    def widen(self, scheduler: Address, loop: Loop) -> bool:
        """Let other hosts fetch, too, if they can reach the scheduler; whether that is new, and with it the address.

        To be called when there is a connection: only then it shows that a scheduler which this agent reaches by a
        loopback address listens everywhere. Others take a loopback address for one of the scheduler's own host.
        """
        transfer, security = self._transfer, self._security
        if transfer is None or security is None or not transfer.address.is_loopback or not scheduler.is_everywhere():
            return False
        loop.forget(transfer.fileno())
        transfer.close()
        self._transfer = None
        loop.watch(self._listen(security, self._everywhere(scheduler.host), scheduler.host).fileno(), self)
        return True

    def move(self, scheduler: Address, host: str | None) -> bool:
        """The scheduler is at this address now, and is reached from this `host`, if that is known.

        Others find the store there from now on, if it listens there; whether that is new. To be called for each new
        connection: a host may have no address yet when an agent starts, and get another one at any time.
        """
        transfer = self._transfer
        if transfer is None or self._scheduler_host is None:
            return False
        self._scheduler_host = scheduler.host
        bound = transfer.address
        if host is None or bound.is_loopback or (":" in host and ":" not in bound.host):
            return False
        before, self._address = self._address, Address(host, bound.port).url
        if self._address == before:
            return False
        transfer.advertise(self._address)
        return True

    def watch(self, loop: Loop) -> None:
        """Have the loop wake up for what other threads have done."""
        loop.watch(self._spiller.fileno(), self)
        if self._transfer is not None:
            loop.watch(self._transfer.fileno(), self)

    def gather(self) -> list[Event]:
        """What other threads have done since the last time."""
        events: list[Event] = []
        for what, key, _, error in self._spiller.take():
            if what != "drop":
                events += self._moved(what, key, error)
        if self._transfer is not None:
            for happened, key, size, error in self._transfer.take():
                if happened == "wanted":
                    events += self._wanted(key)
                elif happened == "put":
                    events.append(Put(key, size))
                else:
                    events += self._fetched(key, error, happened == "full")
        return events

    def lacks(self, key: Key) -> bool:
        """Say whether there is no file of an object, in memory or on disk, or none that can be read."""
        return not segments.can_be_read(self.path, key)

    def _wanted(self, key: Key) -> list[Event]:
        """Somebody elsewhere asks for an object; if it has become a file meanwhile the core need not be asked."""
        if self._transfer is None or self.lacks(key):
            return [Requested(key)]
        self._transfer.available(key)
        return []

    def _moved(self, what: str, key: Key, error: str | None) -> list[Event]:
        _decrease(self._moves, key)
        if not self._stale_moves[key]:
            return [Spilled(key, error) if what == "spill" else Restored(key, error, what == "lost", what == "full")]
        _decrease(self._stale_moves, key)
        if what == "restore" and error is None:
            segments.free(self.path, key)
        return []

    def _fetched(self, key: Key, error: str | None, lacks_room: bool) -> list[Event]:
        if not self._stale_fetches[key]:
            self._fetches.discard(key)
            return [Fetched(key, error, lacks_room)]
        _decrease(self._stale_fetches, key)
        if error is None and key not in self._fetches:
            segments.free(self.path, key)
        return []

    def carry_out(self, effect: Effect, now: float) -> bool:
        """Do what the core wants; False if it isn't the store's to do."""
        if isinstance(effect, DropObject):
            self._drop(effect.key, now)
        elif isinstance(effect, Spill):
            self._moves[effect.key] += 1
            self._on_disk.add(effect.key)
            self._spiller.spill(effect.key)
        elif isinstance(effect, Restore):
            self._moves[effect.key] += 1
            self._spiller.restore(effect.key)
        elif isinstance(effect, Fetch):
            self._fetch(effect)
        elif isinstance(effect, Serve):
            if self._transfer is None:
                pass
            elif effect.error is None:
                self._transfer.available(effect.key)
            else:
                self._transfer.unavailable(effect.key, effect.error)
        elif isinstance(effect, DropClient):
            with contextlib.suppress(OSError):
                if effect.client:
                    segments.remove_client(self.path, effect.client)
                else:
                    self._drop_all()
        else:
            return False
        return True

    def _drop(self, key: Key, now: float) -> None:
        self._drop_incomplete(key)
        with contextlib.suppress(OSError):
            self._freed.note_freed(segments.free(self.path, key), now)
            self._plan()

    def _drop_incomplete(self, key: Key) -> None:
        """Give up what is to bring an object here, and what is of it on disk."""
        if key in self._fetches:
            self._fetches.remove(key)
            self._stale_fetches[key] += 1
            if self._transfer is not None:
                self._transfer.cancel(key)
        if key in self._on_disk:
            self._on_disk.remove(key)
            self._spiller.drop(key)
            if key in self._moves:
                self._stale_moves[key] = self._moves[key]

    def introduced(self) -> None:
        """From now on the scheduler may tell clients of this store."""
        token = os.path.join(self.path, TOKEN)
        with contextlib.suppress(OSError):  # others have removed it: then nothing in it is older
            os.utime(token)
            self._introduced = os.stat(token).st_ctime_ns  # the clock that files have lags behind `time.time`

    def mend(self, known: StoreIndex) -> list[Event]:
        """Make the directory again if others have removed it; what was in it is gone. To be called now and then."""
        try:
            if not self.directory.mend():
                return []
        except OSError as error:
            if not self._is_broken:
                self._is_broken = True
                logger.error("the store %s is gone, and cannot be made again: %s; tried again", self.path, error)
            return []
        self._is_broken = False
        self._spiller.link()
        logger.error(
            "somebody has removed the store %s, with the %d objects that are here: it is made again (systemd-logind "
            "does that when a user logs out, unless RemoveIPC=no or `loginctl enable-linger` says otherwise)",
            self.path, len(known),
        )  # fmt: skip
        return [FileMissing(key) for key in list(known.keys())]

    def _drop_all(self) -> None:
        """Remove all objects that the scheduler can't know of."""
        for key in {*self._fetches, *self._on_disk}:
            self._drop_incomplete(key)
        remove_older(self.path, self._introduced)

    def _fetch(self, effect: Fetch) -> None:
        self._fetches.add(effect.key)
        if self._transfer is not None:
            self._transfer.fetch(effect.key, effect.size, [self._reachable(address) for address in effect.addresses])

    def _reachable(self, address: str) -> str:
        """An address that only means something on the scheduler's host, as it is seen from here.

        What makes no sense stays as it is: nobody is reached there.
        """
        try:
            other = Address.parse(address)
        except AddressError:
            return address
        if self._scheduler_host is not None and other.is_loopback:
            return Address(self._scheduler_host, other.port).url
        return address

    def worker_ended(self, pid: int) -> None:
        """Remove what a worker was writing when it died."""
        with contextlib.suppress(OSError):
            segments.remove_drafts(self.path, pid)

    def _plan(self) -> None:
        self.wake = self._freed.wake
        self.tidy_at = self._sweeper.due if self.wake is None else min(self._sweeper.due, self.wake)

    def tidy(self, known: StoreIndex, now: float) -> None:
        """Give back memory that no new object took; remove files that are not in the index and that nobody told of."""
        if self._freed.wake is not None and now >= self._freed.wake:
            self._freed.give_back(now)
        if now >= self._sweeper.due:
            self._sweeper.sweep(known, now)
        self._plan()

    def close(self) -> None:
        """End the threads, and remove everything. Blocks for a second or so at most."""
        if self._transfer is not None:
            self._transfer.close()
        self._spiller.close()
        self.directory.remove()
        self._remove_made()

    def _remove_made(self) -> None:
        with contextlib.suppress(OSError):  # it is in use
            for path in self._made:
                os.rmdir(path)


def _missing(path: str) -> list[str]:
    """Which directories of a path are not there, the innermost first."""
    path, missing = os.path.abspath(path), list[str]()
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _decrease(counts: Counter[Key], key: Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def store_context(store: HostStore, limits: AgentLimits, workers: int) -> dict[str, Any]:
    """What workers are told of the store."""
    return {"store": store.path, "inline": INLINE_LIMIT, "live": live_limit(limits, workers)}
