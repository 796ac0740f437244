"""Disks that can be written and nothing else for a while: what is to be copied, said, answered or removed waits."""

from typing import Any

from scaler.journal.directory import JournalError
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.keeper import JobKeeper
from scaler.scheduler.residents import ResidentWish
from simulator.world import World

#: chance that it can't be read from then on, when it is opened or written, and for how many seconds at most
UNREADABLE, LONGEST = 0.05, 10.0


class BadReads:
    """Of one journal that is open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._until = 0.0
        #: what is read now can be
        self.is_spared = False
        self.strike()

    def strike(self) -> None:
        """Something is written."""
        if self._world.slow.random() < UNREADABLE:
            self._until = self._world.now + self._world.slow.uniform(0.0, LONGEST)

    def check(self) -> None:
        """Something is read, or a segment removed. Raises `JournalError`."""
        if self._world.now < self._until and not self.is_spared:
            raise JournalError("the journal can't be read: Input/output error")


class StrictKeeper(JobKeeper):
    """A real one that raises what it would contain."""

    def _contain(self, error: Exception) -> list[ResidentWish]:
        raise error


class SparedKeeper(StrictKeeper):
    """A real one. What the core needs of values can be read: the rows that need them would end with an error."""

    def __init__(self, bad_reads: BadReads, *arguments: Any) -> None:
        self._bad_reads = bad_reads
        super().__init__(*arguments)

    def _value(self, effect: ev.Fetch) -> tuple[int, bytes]:
        self._bad_reads.is_spared = True
        value = super()._value(effect)
        self._bad_reads.is_spared = False
        return value
