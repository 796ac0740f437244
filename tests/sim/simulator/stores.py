"""The store of a simulated host: what `scaler.agent.host_store` does with files and other hosts, in virtual time."""

from typing import TYPE_CHECKING, Any

from scaler.agent.core import events as ev

if TYPE_CHECKING:
    from simulator.hosts import Host

Key = tuple[int, int]

#: seconds after which a store that does not answer counts as gone
PATIENCE = 5.0
#: seconds after which a file that nobody knows is removed
SWEEP_SECONDS = 20.0


class SimStore:
    """See the module's text. A file is a value and its size."""

    def __init__(self, host: "Host") -> None:
        self.host = host
        self.world = host.world
        self.files: dict[Key, tuple[int, int]] = {}
        self.disk: dict[Key, tuple[int, int]] = {}
        #: when clients and workers wrote files of which the agent may not have been told
        self.written: dict[Key, float] = {}
        #: moves and fetches under way
        self._under_way: dict[Key, int] = {}
        #: other hosts that could not be reached when they were asked last
        self._in_vain: set[SimStore] = set()
        #: other hosts that wait for a file of this one
        self._wanted: dict[Key, list[tuple[SimStore, int]]] = {}

    @property
    def tables(self) -> tuple[dict[Key, tuple[int, int]], ...]:
        """Where files are: in memory, on disk."""
        return self.files, self.disk

    def find(self, key: Key) -> tuple[int, int] | None:
        """The file of an object, wherever it is."""
        return self.files.get(key) or self.disk.get(key)

    def sweep(self) -> None:
        """Remove what was written and nobody was told of for a while, as the sweeper of the real store does."""
        for key, when in list(self.written.items()):
            if when < self.world.now - SWEEP_SECONDS:
                del self.written[key]
                if key not in self.host.core.state.objects.index:
                    self.files.pop(key, None)

    def carry_out(self, effect: Any) -> None:
        """Do what the core wants."""
        if isinstance(effect, ev.DropObject):
            for table in (*self.tables, self._under_way):
                table.pop(effect.key, None)
        elif isinstance(effect, ev.DropClient):
            if not effect.client:
                self.disk.clear()
                self._under_way.clear()
            line = self.host.line
            since = line.introduced if line is not None and not effect.client else float("inf")
            for key in [key for key in self.files if effect.client in (0, key[0])]:
                if self.written.get(key, 0.0) < since:
                    del self.files[key]
        elif isinstance(effect, (ev.Spill, ev.Restore)):
            number = self._begin(effect.key)
            self.world.after(self.world.random.uniform(1e-4, 2e-2), self._move, effect, number)
        elif isinstance(effect, ev.Fetch):
            self._fetch(effect)
        elif isinstance(effect, ev.Serve):
            for store, number in self._wanted.pop(effect.key, ()):
                self._answer(store, effect.key, number, effect.error)

    def _begin(self, key: Key) -> int:
        number = self._under_way[key] = self.world.next_id()
        return number

    def _ends(self, key: Key, number: int) -> bool:
        """A move or a fetch is over; False if nobody waits for it any more."""
        if not self.host.alive or self._under_way.get(key) != number:
            return False
        del self._under_way[key]
        return True

    def _move(self, effect: Any, number: int) -> None:
        key, is_spill = effect.key, isinstance(effect, ev.Spill)
        if not self._ends(key, number):
            return
        source, target = (self.files, self.disk) if is_spill else (self.disk, self.files)
        is_lost, is_full = key not in source, self.world.random.random() < self.host.cluster.mix.full
        lacks_room = is_full and self.world.random.random() < 0.5
        error = (
            "it is not there" if is_lost else "there is no room" if lacks_room else "it is broken" if is_full else None
        )
        if error is None:
            target[key] = source.pop(key)
        told = ev.Spilled(key, error) if is_spill else ev.Restored(key, error, is_lost, lacks_room and not is_lost)
        self.host.tell(told)

    # ---- other hosts -----------------------------------------------------------------------------------------------
    def _fetch(self, effect: ev.Fetch) -> None:
        key, number = effect.key, self._begin(effect.key)
        others = [host.store for host in self.host.cluster.hosts if f"tcp://{host.name}:1" in effect.addresses]
        self._ask(key, number, others, "nobody is there")

    def _ask(self, key: Key, number: int, others: list["SimStore"], reason: str) -> None:
        if self._under_way.get(key) != number or not self.host.alive:
            return
        if not others:
            if self._ends(key, number):
                self.host.tell(ev.Fetched(key, reason))
            return
        other = others.pop(0)
        if self._has_no_way_to(other):  # nobody answers, or it says so at once; who knows of that waits all the same
            wait = PATIENCE if other in self._in_vain else self.world.random.choice((1e-3, 1e-2, PATIENCE))
            self._in_vain.add(other)
            self.world.after(wait, self._ask, key, number, others, f"{other.host.name} is beyond reach")
            return
        if not other.host.alive or other.host.stopped or self._is_cut_off(other):
            self.world.after(PATIENCE, self._ask, key, number, others, f"{other.host.name} does not answer")
            return
        self._in_vain.discard(other)
        self.world.after(self.world.random.uniform(1e-4, 3e-2), self._arrive, key, number, other, others)

    def _is_cut_off(self, other: "SimStore") -> bool:
        healed = self.host.cluster.network.partitioned
        return any(healed.get(host.name, 0.0) > self.world.now for host in (self.host, other.host))

    def _has_no_way_to(self, other: "SimStore") -> bool:
        ways = self.host.cluster.network.ways
        return bool(ways) and ways.get((self.host.name, other.host.name), 0.0) > self.world.now

    def _arrive(self, key: Key, number: int, other: "SimStore", others: list["SimStore"]) -> None:
        if self._under_way.get(key) != number or not self.host.alive:
            return
        found = other.find(key)
        full = self.host.cluster.mix.full
        if not other.host.alive or self._is_cut_off(other) or self._has_no_way_to(other):
            self._ask(key, number, others, f"{other.host.name} broke off")
        elif found is not None and full and self.world.random.random() < full:
            del self._under_way[key]
            self.host.tell(ev.Fetched(key, "there is no room", lacks_room=True))
        elif found is not None:
            del self._under_way[key]
            self.files[key] = found
            self.host.tell(ev.Fetched(key))
        else:
            other._wanted.setdefault(key, []).append((self, number))
            other.host.tell(ev.Requested(key))
            self.world.after(PATIENCE, self._give_up, key, number)

    def _give_up(self, key: Key, number: int) -> None:
        if self._ends(key, number):
            self.host.tell(ev.Fetched(key, "it takes too long"))

    def _answer(self, asker: "SimStore", key: Key, number: int, error: str | None) -> None:
        if error is not None:
            self.world.after(1e-4, asker._ask, key, number, [], error)
        else:
            self.world.after(1e-3, asker._arrive, key, number, self, [])

    def die(self) -> None:
        """With the process goes everything."""
        self.files.clear()
        self.disk.clear()
