"""A virtual clock, processes that can be stopped and killed, and the story of what happened."""

import re
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

from simulator.moves import Moves

TICK = ("tick",)
#: seconds until a process that something came for looks at it: at least, and how many more at most
_SOONEST, _SPREAD = 1e-6, 60e-6 - 1e-6


class Killed(Exception):
    """The process that was at work is dead: nothing of what it was about to do is done."""


class Fuse:
    """Counts the boundaries between the effects of all processes of a role, and kills the one that is at the last."""

    def __init__(self, role: str, at: int | None = None) -> None:
        self.role = role
        self._at = at
        #: when each boundary was passed
        self.passed: list[float] = []
        #: the process that was killed
        self.killed: Any = None

    def burn(self, process: Any, now: float) -> bool:
        """A process is between two effects; True if it dies there."""
        self.passed.append(now)
        if len(self.passed) - 1 != self._at:
            return False
        self.killed = process
        return True


class World:
    """Time and chance. Nothing in a run depends on anything else than the seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        #: its next number: what happens for each message makes of it, by one call, what `uniform` and others would
        self.lot = self.random.random
        #: chooses when to look at everything; apart, so that a thorough run goes the same way
        self.look = Random(seed)
        self._lot_to_look = self.look.random
        #: chooses which journals take long to be opened; apart, so that the others are as they would be
        self.slow = Random(seed)
        #: what users take their time for; apart, too
        self.habits = Random(seed)
        #: chooses which words on control sockets are heard late; apart, too
        self.hearing = Random(seed)
        self.now = 1000.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        #: (time, who, what): everything that was said, formatted only if it is told
        self.events: list[tuple[float, str, Any]] = []
        self.steps = 0
        self._ids = 0
        #: agents that the scheduler gave up
        self.losses = 0
        #: agents whose processes have ended, whether or not the scheduler has noticed
        self.deaths = 0
        #: workers that were ended, and hosts that were while rows ran there
        self.kills = 0
        #: rows that were held back, and that their clients have ended by themselves
        self.ended_here = 0
        #: clients that came again when their scheduler had forgotten them, and what their rows had been through
        self.forgotten_clients = 0
        #: agents that did not come to another scheduler, and were found to have ended
        self.vanished = 0
        #: of the tables
        self.moves = Moves()
        #: for how long workers are to be stopped that keep results back, seconds
        self.stops: list[float] = []
        #: how often workers were told to begin nothing more, by the progress page, and what came of it
        self.revoked: Counter[str] = Counter()
        #: how often agents were asked for any rows, or for some that others can run, and gave back such
        self.recalls: Counter[str] = Counter()
        #: share of the steps in which a process heard nothing but heartbeats that are checked and go through the codec
        self.quiet_share = 1.0
        #: kills a process between two of its effects
        self.fuse: Fuse | None = None
        #: how processes of a role are killed there; `die` if it is not said here
        self.killers: dict[str, Callable[[Any], None]] = {}

    @property
    def lost_agents(self) -> int:
        """Agents with which something may have been lost."""
        return max(self.losses, self.deaths)

    def next_id(self) -> int:
        """Numbers for sessions, processes, rows."""
        self._ids += 1
        return self._ids

    def after(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Call something later."""
        self._count += 1
        heappush(self._queue, (self.now + delay if delay > 0.0 else self.now, self._count, call, args))

    def note(self, who: str, what: Any) -> None:
        """Add to the story."""
        self.events.append((self.now, who, what))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Let time go by; True if `done()` came true."""
        queue, steps = self._queue, self.steps
        try:
            while queue and queue[0][0] <= until:
                self.now, _, call, args = heappop(queue)
                try:
                    call(*args)
                except Killed:
                    pass
                steps += 1
                if steps % 64 == 0 and done():
                    return True
        finally:
            self.steps = steps
        self.now = max(self.now, until)
        return done()

    def skips(self, is_quiet: bool) -> bool:
        """A step that tells nothing need not be looked at."""
        return is_quiet and self.quiet_share < 1.0 and self._lot_to_look() >= self.quiet_share

    def boundary(self, role: str, process: Any) -> None:
        """A process is about to carry out an effect, or has carried out the last of a step. Raises Killed."""
        fuse = self.fuse
        if fuse is not None and fuse.role == role and fuse.burn(process, self.now):
            self.note(process.name, f"is killed at its boundary {len(fuse.passed) - 1}")
            self.killers[role](process)
            raise Killed

    def story(self, words: tuple[str, ...] = (), last: int = 60) -> str:
        """The last events that mention one of these words."""
        lines = []
        for when, who, what in self.events:
            line = f"{when - 1000:10.6f} {who:12} {what}"
            if not words or any(word in line for word in words):
                lines.append(brief(line))
        return "\n".join(lines[-last:])


def brief(line: str) -> str:
    """What a person wants to see of a message."""
    line = re.sub(r"array\('.'(?:, )?(.*?)\)", r"\1", line)
    line = re.sub(r", bodies=.*|, \w+=(?:0|0\.0|\(\)|False)?(?=[,)])", "", line)
    return line[:300]


class Process:
    """Has an inbox that it takes whole, like a shell that drains its sockets before it calls its core once."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.stopped = False
        self._inbox: list[Any] = []
        self._planned = False
        self._timer: float | None = None

    def post(self, item: Any) -> None:
        """Something came for this process."""
        if self.alive:
            self._inbox.append(item)
            if not (self._planned or self.stopped):
                self._plan()

    def _plan(self) -> None:
        self._planned = True
        world = self.world
        world.after(_SOONEST + _SPREAD * world.lot(), self._wake)

    def _wake(self) -> None:
        self._planned = False
        if self.alive and not self.stopped and self._inbox:
            items, self._inbox = self._inbox, []
            self.step(items)

    def wake_at(self, when: float) -> None:
        """Post a TICK at this time; replaces an earlier wish."""
        self._timer = when
        self.world.after(when - self.world.now, self._ring, when)

    def _ring(self, when: float) -> None:
        if self._timer == when:
            self._timer = None
            self.post(TICK)

    def step(self, items: list[Any]) -> None:
        """Deal with what came."""
        raise NotImplementedError

    def stop(self) -> None:
        """SIGSTOP."""
        self.world.note(self.name, "stopped")
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.stopped:
            self.world.note(self.name, "goes on")
            self.stopped = False
            if self._inbox and not self._planned:
                self._plan()

    def die(self) -> None:
        """SIGKILL."""
        self.world.note(self.name, "dies")
        self.alive = False
        self._inbox.clear()
