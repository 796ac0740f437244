"""What the process that workers are forked from is to report, and what is done about it when nothing comes.

It may be slow, where the machine is busy or a new worker waits for modules; then it is left alone. It may have been
stopped, or the warm process below it, by a task that took it for its own parent, or by whoever stops all that belongs
to a program: then it is made to go on. It is replaced, and all workers with it, if it is stopped again before it has
reported anything, or has not said a word for long though workers have ended. Looks are counted, not seconds, since the
agent may have been stopped meanwhile as well.
"""

from __future__ import annotations

from enum import Enum, auto

#: seconds for which a report is waited for, and between looks at who owes it
PATIENCE = 2.0
#: looks without any report, after which it is replaced though it is not stopped: a new worker may wait for 10 s
LOOKS = 15


class Verdict(Enum):
    """What is to be done."""

    WAIT = auto()
    #: make it go on
    CONTINUE = auto()
    #: kill it, so that another one is started
    REPLACE = auto()


class Overdue:
    """Decides; looks at nothing itself."""

    def __init__(self) -> None:
        #: slots of workers whose start or end is to be reported, and since when; seconds
        self._since: dict[int, float] = {}
        #: those of them whose end it is
        self._ends: set[int] = set()
        #: when it was looked at last, seconds
        self._looked = 0.0
        #: looks since it has reported anything
        self._looks = 0
        #: it was stopped then, and has reported nothing since
        self._was_stopped = False

    @property
    def due(self) -> float | None:
        """When the next look is due, seconds; None: never."""
        return max(min(self._since.values()), self._looked) + PATIENCE if self._since else None

    def await_start(self, slot: int, now: float) -> None:
        """A worker was asked for."""
        self._since[slot] = now

    def await_end(self, slot: int, now: float) -> None:
        """A worker was killed, or has closed its connection."""
        if slot not in self._ends:
            self._ends.add(slot)
            self._since[slot] = now

    def note(self, slot: int, has_ended: bool) -> None:
        """A worker was reported to have started, or ended."""
        self._looks, self._was_stopped = 0, False
        if has_ended:
            self._ends.discard(slot)
        if slot not in self._ends:
            self._since.pop(slot, None)

    def slots(self, now: float) -> list[int]:
        """Of which workers something is overdue."""
        return [slot for slot, since in self._since.items() if now >= since + PATIENCE]

    def judge(self, now: float, is_stopped: bool, is_owed: bool) -> Verdict:
        """A look was taken: it is stopped, or not; `is_owed`: it has something to report that no worker holds up."""
        self._looked = now
        was_stopped, self._was_stopped = self._was_stopped, is_stopped
        if is_stopped:
            return Verdict.REPLACE if was_stopped else Verdict.CONTINUE
        self._looks += is_owed
        return Verdict.REPLACE if self._looks >= LOOKS else Verdict.WAIT
