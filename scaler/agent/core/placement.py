"""Where a row goes that no worker has: to the queue of any worker, or of one, or to those that wait for objects.

A row is ready when every stored object that it needs is a file in the store, or live in one and the same worker, which
then is the one to run it: the one that has most of its input. Everything else is brought first. Rows that take stored
values go before older ones of their priority, so that values are used up before new ones are made.
"""

from scaler.agent.core.crew import Crew
from scaler.agent.core.data import Data
from scaler.agent.core.memory import Memory
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.part import Part
from scaler.agent.core.queue import Queues
from scaler.agent.core.waiting import Wait, Waiting
from scaler.store.layout import Key

#: bytes that are brought for waiting rows at once; more only for a single wait
BRING_AHEAD = 128 << 20

#: rows [lo, hi) with the slot of the worker they are for; or the wait that they are
Choice = tuple[int, int, int | None, bool, Wait | None]


class Placement:
    """See the module's text."""

    def __init__(self, out: Outbox, crew: Crew, data: Data, memory: Memory) -> None:
        self._out = out
        self._crew = crew
        self._data = data
        self._memory = memory
        self.queues = Queues()
        self.waiting = Waiting()
        #: bytes that are brought for the waits that have begun
        self._coming = 0
        #: waits of rows that were taken from one worker for another
        self.stolen = 0

    @property
    def rows(self) -> int:
        """Rows that no worker has."""
        return self.queues.rows + self.waiting.rows

    # ---- rows come -------------------------------------------------------------------------------------------------
    def admit(self, part: Part, lo: int, hi: int, front: bool = False) -> None:
        """Rows came, or came back (then to the `front`)."""
        if not part.stored:
            self.queues.put(part, lo, hi, None, front)
            return
        choices = self._choices(part, lo, hi)
        for first, end, slot, follows, wait in reversed(choices):
            if wait is None and (front or follows):
                self.queues.put(part, first, end, slot, True)
        for first, end, slot, follows, wait in choices:
            if wait is not None:
                self.waiting.add(wait)
            elif not (front or follows):
                self.queues.put(part, first, end, slot, False)

    def _choices(self, part: Part, lo: int, hi: int) -> list[Choice]:
        choices: list[Choice] = []
        if part.needs is None:
            self._choose(part, lo, hi, False, choices)
            return choices
        common = len(part.stored_common)
        for row in range(lo, hi):
            keys = part.stored_for(row)
            self._choose(part, row, row + 1, len(keys) > common, choices, keys)
        return choices

    def _choose(
        self, part: Part, lo: int, hi: int, follows: bool, choices: list[Choice], keys: list[Key] | None = None
    ) -> None:
        keys = part.stored_for(lo) if keys is None else keys
        slot, missing = self._look(keys, False)
        if not missing:
            if choices:
                first, end, last_slot, last_follows, wait = choices[-1]
                if wait is None and end == lo and (last_slot, last_follows) == (slot, follows):
                    choices[-1] = first, hi, slot, follows, None
                    return
            choices.append((lo, hi, slot, follows, None))
            return
        lost = [key for key in missing if not self._data.can_bring(key)]
        if lost:
            self._out.missing(lost, *part.key, lo, hi)
        else:
            choices.append((lo, hi, None, follows, Wait(part, lo, hi, keys)))

    def _look(self, keys: list[Key], anywhere: bool) -> tuple[int | None, list[Key]]:
        """The worker that a row has to run in, None for any; and the objects that have to be brought for it."""
        index, workers = self._data.index, self._crew.workers
        live: dict[int, int] = {}
        missing = []
        for key in keys:
            entry = index.get(key)
            if entry is None or entry.place in ("disk", "moving"):
                missing.append(key)
            elif entry.slot is not None:
                worker = workers.get(entry.slot)
                if anywhere or worker is None or not worker.takes_rows:
                    missing.append(key)
                else:
                    live[entry.slot] = live.get(entry.slot, 0) + entry.size
        if not live:
            return None, missing
        slot = max(live, key=live.__getitem__)
        if len(live) > 1:
            missing += [key for key in keys if key in index and index[key].slot in live and index[key].slot != slot]
        return slot, missing

    # ---- rows go ---------------------------------------------------------------------------------------------------
    def usable(self, part: Part, lo: int, hi: int, slot: int) -> int:
        """The rows [lo, end) can run now in the worker of a slot: the end."""
        index = self._data.index
        for row in range(lo, hi):
            for key in part.stored_for(row):
                entry = index.get(key)
                if entry is None or not (entry.place == "shm" or entry.slot == slot):
                    return row
            if part.needs is None:
                return hi
        return hi

    def evict(self, slot: int) -> None:
        """The worker of this slot won't take rows: those that were for it find another way."""
        for part, lo, hi in reversed(self.queues.release(slot)):
            self.admit(part, lo, hi, front=True)

    def steal(self, slot: int, worth: float) -> bool:
        """Have the last row that is for this worker run anywhere, if moving its objects takes less time; seconds."""
        part, lo, hi = self.queues.local[slot].take_last(1)
        index = self._data.index
        keys = part.stored_for(lo)
        moved = sum(index[key].size for key in keys if key in index and index[key].slot == slot)
        if moving_seconds(moved) >= worth:
            self.queues.local[slot].append(part, lo, hi)
            return False
        self.queues.settle(slot)
        wait = Wait(part, lo, hi, keys, anywhere=True)
        self.waiting.add(wait)
        self._begin(wait)
        return True

    def remove_rows(self, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows of a batch; the spans that were here."""
        found = self.queues.remove_rows(client, batch, lo, hi)
        if self.waiting.rows:
            for wait in self.waiting.in_rows(client, batch, lo, hi):
                self._end(wait)
                found.append((max(lo, wait.lo), min(hi, wait.hi)))
                for a, b in ((wait.lo, lo), (hi, wait.hi)):
                    if a < b:
                        self.admit(wait.part, a, b, front=True)
        return found

    def take_last(self, rows: int) -> tuple[Part, int, int] | None:
        """Take at most `rows` rows that no worker has, those that would run last; None if there are none."""
        if self.queues.general.rows:
            return self.queues.take_last(rows)
        wait = self.waiting.last
        if wait is None:
            return self.queues.take_last(rows) if self.queues.local else None
        self._end(wait)
        lo = max(wait.lo, wait.hi - rows)
        if lo > wait.lo:
            self.admit(wait.part, wait.lo, lo, front=True)
        return wait.part, lo, wait.hi

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        self.queues.drop_client(client)
        for wait in self.waiting.of_client(client):
            self._end(wait)

    def drop_everything(self) -> None:
        """Forget all rows, and what is pinned for them."""
        self.queues = Queues()
        self.waiting = Waiting()
        self._coming = self.stolen = 0

    # ---- objects come ----------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Queue the rows whose objects have come, give back those whose objects can't be had, begin to bring others."""
        data, waiting = self._data, self.waiting
        while True:
            arrived, data.arrived = data.arrived, []
            lost, data.lost = data.lost, {}
            for key in arrived:
                for wait in waiting.of_key(key):
                    if waiting.has(wait, key):
                        self._end(wait)
                        self.admit(wait.part, wait.lo, wait.hi, front=True)
            for key in lost:
                for wait in waiting.of_key(key):
                    self._give_back(wait, [other for other in wait.missing if other in lost])
            self._begin_some()
            if not (data.arrived or data.lost):
                return

    def _begin_some(self) -> None:
        while (wait := self.waiting.next) is not None:
            ahead = min(BRING_AHEAD, self._data.index.limit // 4)
            if (self._coming and self._coming + self._cost(wait) > ahead) or self._memory.holds:
                return
            self._begin(wait)

    def _cost(self, wait: Wait) -> int:
        return sum(self._data.size(key) for key in self._look(wait.keys, wait.anywhere)[1])

    def _begin(self, wait: Wait) -> None:
        _, missing = self._look(wait.keys, wait.anywhere)
        if not missing:
            self.waiting.remove(wait)
            self.admit(wait.part, wait.lo, wait.hi, front=True)
            return
        lost = [key for key in missing if not self._data.can_bring(key)]
        if lost:
            self._give_back(wait, lost)
            return
        wait.missing = set(missing)
        wait.cost = sum(map(self._data.size, missing))
        self._coming += wait.cost
        self.stolen += wait.anywhere
        self.waiting.begin(wait)
        for key in missing:
            self._data.bring(key)
        index = self._data.index
        for key in wait.keys:
            if key in index:
                index.pin(key)
                wait.pins.append(key)

    def _give_back(self, wait: Wait, lost: list[Key]) -> None:
        self._end(wait)
        self._out.missing(lost, *wait.part.key, wait.lo, wait.hi)

    def _end(self, wait: Wait) -> None:
        """A wait is over, however."""
        if wait.begun:
            self._coming -= wait.cost
            self.stolen -= wait.anywhere
            unpin(self._data, wait.pins)
        self.waiting.remove(wait)


def unpin(data: Data, keys: list[Key]) -> None:
    """Objects are not used any more; those that are gone do not matter."""
    for key in keys:
        entry = data.index.get(key)
        if entry is not None and entry.pins:
            data.index.unpin(key)


def moving_seconds(size: int) -> float:
    """What it takes to move a live value of so many bytes to another worker."""
    return 0.0003 + size / 2.5e9
