"""What an agent knows of its workers and of the rows they have.

A row at an agent is in exactly one place: in a queue, waiting for objects, or in `left` of one handout of one worker.
"""

import math
from dataclasses import dataclass, field

from scaler.agent.core.part import Part
from scaler.protocol.messages import Frame
from scaler.store.layout import Key
from scaler.worker_protocol.messages import Need, Run

#: seconds after which a worker that has told nothing is looked at: it sends results with those of the next rows if
#: these begin within 4 ms, and one of them may take long
HELD = 0.02

#: which moves a worker makes, with what causes them; anything else is a defect
WORKER_TRANSITIONS: dict[tuple[str, str], str] = {
    ("starting", "idle"): "it said that it is ready",
    ("idle", "busy"): "rows were handed to it",
    ("busy", "idle"): "all its rows are reported",
    ("idle", "parked"): "a blocked worker goes on, and there is one too many",
    ("parked", "idle"): "another worker blocked",
    ("starting", "gone"): "its process ended",
    ("idle", "gone"): "its process ended",
    ("busy", "gone"): "its process ended",
    ("parked", "gone"): "its process ended",
}


@dataclass(slots=True, eq=False)
class Handout:
    """Rows handed to a worker."""

    part: Part
    #: spans that have not been reported, ascending
    left: list[tuple[int, int]]
    #: what all of it should take, microseconds; None while the function is unknown
    expected: float | None
    #: when it was handed out, seconds
    at: float
    #: its client is gone: nobody wants what comes of it
    unwanted: bool = False
    #: stored objects that it uses, pinned in the index
    pins: list[Key] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows that have not been reported."""
        return sum(hi - lo for lo, hi in self.left)

    def take(self, lo: int, hi: int) -> bool:
        """Rows [lo, hi) are reported; False if they are not here."""
        left = self.left
        for i, (a, b) in enumerate(left):
            if a <= lo and hi <= b:
                left[i : i + 1] = [span for span in ((a, lo), (hi, b)) if span[0] < span[1]]
                return True
        return False


@dataclass(slots=True, eq=False)
class Worker:
    """A worker process."""

    slot: int
    #: one of the states in WORKER_TRANSITIONS
    state: str = "starting"
    #: handout number -> handout, in order of number; empty unless busy
    handouts: dict[int, Handout] = field(default_factory=dict)
    #: objects it has
    objects: set[Key] = field(default_factory=set)
    #: objects it has and need not keep, to be told with the next rows
    stale: list[Key] = field(default_factory=list)
    #: its task waits for other tasks: its slot is free for another worker
    blocked: bool = False
    #: a recall is under way
    recalling: bool = False
    #: when to see whether it keeps results back; infinite: that has been done since it last said something
    look_at: float = math.inf
    #: why it is being killed: (outcome kind, words), for the row it runs
    sentence: tuple[str, str] | None = None
    #: bytes of memory that are its alone, as last sampled, and the most since it was started
    memory: int = 0
    peak: int = 0

    def move(self, state: str) -> None:
        """Change the state; an illegal move is a defect."""
        if state != self.state:
            assert (self.state, state) in WORKER_TRANSITIONS, f"worker {self.slot}: {self.state} -> {state}"
            self.state = state

    def hear(self, now: float) -> None:
        """It has told all that it has finished, or begins with nothing to tell."""
        self.look_at = now + HELD

    @property
    def is_rejected(self) -> bool:
        """It said what can't be."""
        return self.sentence is not None and self.sentence[0] == "rejected"

    @property
    def takes_rows(self) -> bool:
        """It will take rows now or when it has done those it has."""
        return self.sentence is None and not self.blocked and self.state in ("idle", "busy")

    @property
    def expected(self) -> float | None:
        """Microseconds of work handed to it; None if any of it is unknown."""
        total = 0.0
        for handout in self.handouts.values():
            if handout.expected is None:
                return None
            total += handout.expected
        return total

    @property
    def is_crowded(self) -> bool:
        """It has more rows than the one it runs."""
        if len(self.handouts) != 1:
            return len(self.handouts) > 1
        (handout,) = self.handouts.values()
        left = handout.left
        return len(left) > 1 or (len(left) == 1 and left[0][1] - left[0][0] > 1)

    @property
    def rows(self) -> int:
        """Rows handed to it and not reported."""
        return sum(handout.rows for handout in self.handouts.values())


def run_message(number: int, handout: Handout, objects: dict[Key, Frame], worker: Worker) -> Run:
    """What a worker is told to run; objects that it doesn't have go along and count as known from now on."""
    known = worker.objects
    stale, worker.stale = worker.stale, []
    part = handout.part
    task = part.task
    (lo, hi) = handout.left[0]
    client = part.client
    needed: dict[Key, None] = {(client, task.function): None}
    if task.arguments:
        needed[client, task.arguments] = None
    needs: list[list[Need]] | None = None
    if part.needs is not None:
        needs = []
        for row in part.needs[lo - part.lo : hi - part.lo]:
            for object_id, _ in row:
                needed[client, object_id] = None
            needs.append([((client, object_id), index) for object_id, index in row])
    sizes = body = None
    if part.offsets is not None and part.sizes is not None:
        a, b = lo - part.lo, hi - part.lo
        sizes = part.sizes[a:b].tobytes()
        body = bytes(memoryview(part.body)[part.offsets[a] : part.offsets[b]])
    stored = part.stored
    news = [(key, objects[key]) for key in needed if key not in known and key[1] not in stored]
    known.update(needed)
    arguments = (client, task.arguments) if task.arguments else None
    return Run(
        number, client, task.batch, lo, hi, task.form, (client, task.function), arguments, task.flags, task.priority,
        task.name, sizes, body, needs, news, stale, part.wanted(lo, hi),
    )  # fmt: skip
