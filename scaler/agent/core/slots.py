"""Workers come and go: as many at work as the host should have, besides those whose tasks wait for other tasks.

A worker whose task waits is *blocked*: another one takes its place until it goes on. One that dies is replaced; what
becomes of the row that it ran depends on why.
"""

from scaler.agent.core.crew import Crew
from scaler.agent.core.data import Data
from scaler.agent.core.events import DropObject, Sampled, StartWorker, WorkerExited
from scaler.agent.core.handouts import Handouts
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.part import Part
from scaler.agent.core.placement import Placement
from scaler.agent.core.state import Worker
from scaler.agent.core.withdraw import Withdrawals
from scaler.common.exits import describe_exit
from scaler.protocol import failures
from scaler.protocol.messages import ERROR, LOST, u32
from scaler.protocol.results import SpanResult
from scaler.worker_protocol.messages import Quit

#: workers kept for the next time a worker blocks
PARKED = 4
#: workers for blocked ones, at most
MAX_EXTRA = 512


class Slots:
    """See the module's text."""

    def __init__(
        self, out: Outbox, crew: Crew, data: Data, placement: Placement, withdrawals: Withdrawals, handouts: Handouts
    ) -> None:
        self._out = out
        self._crew = crew
        self._data = data
        self._placement = placement
        self._withdrawals = withdrawals
        self._handouts = handouts
        #: workers the host should have at work
        self.target = 0
        #: slots to start at a time, after workers died while starting
        self.restart_at: dict[int, float] = {}
        self._failed_starts = 0
        #: the number of workers at work may not be what it should be
        self.unsettled = True
        #: workers that ran rows when the agent began anew, and have not ended: until then nothing is handed out, so
        #: that what they write is never taken for something else
        self.ending: set[int] = set()

    def start(self, slot: int) -> None:
        """Start a worker."""
        self._crew.workers[slot] = Worker(slot)
        self._out.add(StartWorker(slot))

    def restart_due(self) -> None:
        """Start the workers whose time has come."""
        for slot in [slot for slot, at in self.restart_at.items() if at <= self._crew.now]:
            del self.restart_at[slot]
            self.start(slot)

    def settle(self) -> None:
        """Keep as many workers at work as the host should have, not counting blocked ones."""
        self.unsettled = False
        workers = self._crew.workers
        active = [w for w in workers.values() if not w.blocked and w.state != "parked"]
        missing = self.target - len(active) - len(self.restart_at)
        if missing > 0:
            for worker in [w for w in workers.values() if w.state == "parked" and w.sentence is None][:missing]:
                worker.move("idle")
                missing -= 1
            while missing > 0 and len(workers) < self.target + MAX_EXTRA:
                self.start(self._free_slot())
                missing -= 1
        elif missing < 0:
            for worker in [w for w in active if w.state == "idle"][:-missing]:
                worker.move("parked")
                self._placement.evict(worker.slot)
        parked = [w for w in workers.values() if w.state == "parked"]
        for worker in parked[PARKED:]:
            if worker.sentence is None:
                if self._data.index.live_bytes(worker.slot):
                    self._data.publish_all(worker)  # and then again, when it has
                else:
                    worker.sentence = "surplus", ""
                    self._crew.tell(worker, Quit())

    def _free_slot(self) -> int:
        slot = 0
        while slot in self._crew.workers or slot in self.restart_at:
            slot += 1
        return slot

    def ready(self, worker: Worker) -> None:
        """A worker can be given rows."""
        if worker.state != "starting":
            self._crew.reject(worker, "says for the second time that it is ready")
            return
        self._failed_starts = 0
        self.unsettled = True
        worker.move("idle")

    def blocked(self, worker: Worker) -> None:
        """The task of a worker waits for other tasks."""
        worker.blocked = self.unsettled = True
        if worker.is_crowded:  # handed out when it was about to wait
            self._crew.recall(worker, keep=0)
        self._placement.evict(worker.slot)

    def unblocked(self, worker: Worker) -> None:
        """The task of a worker goes on."""
        worker.blocked = False
        self.unsettled = True

    def idled(self, worker: Worker) -> None:
        """A worker has no rows any more."""
        worker.move("idle")
        self.unsettled |= len(self._crew.workers) > self.target

    def sampled(self, event: Sampled, limit: int) -> None:
        """Workers take so much memory: end those above the limit, bytes, unless it is 0."""
        for slot, memory in event.workers.items():
            worker = self._crew.workers.get(slot)
            if worker is None:
                continue
            worker.memory = memory
            worker.peak = max(worker.peak, memory)
            if limit and memory > limit and worker.sentence is None:
                self._over(worker, limit)

    def _over(self, worker: Worker, limit: int) -> None:
        much = failures.memory_taken(worker.memory, limit)
        if worker.state == "busy":
            self._crew.kill(worker, "memory", much)
        elif self._data.index.live_bytes(worker.slot):
            self._data.publish_all(worker)
        elif worker.state in ("idle", "parked"):
            self._out.log("WARNING", f"worker {worker.slot} has no task and takes {much}: it is started anew")
            self._crew.kill(worker, "memory", "")

    # ---- the end of a worker ---------------------------------------------------------------------------------------
    def exited(self, event: WorkerExited) -> None:
        """A worker's process ended: its rows wait for another one, but for the one that it ran."""
        worker = self._crew.workers.pop(event.slot, None)
        if worker is None:
            return
        self.unsettled = True
        self.ending.discard(event.slot)
        was = worker.state
        worker.move("gone")
        self._data.worker_gone(event.slot)
        number, begun = event.begun
        if number not in worker.handouts and worker.handouts:
            # It died between rows, or while it loaded the next function: that row is the one to suspect.
            number = next(iter(worker.handouts))
            begun = worker.handouts[number].left[0][0] if worker.handouts[number].left else -1
        handouts = dict(worker.handouts)
        self._handouts.close_all(worker)
        for handout_number, handout in handouts.items():
            part = handout.part
            running = begun if handout_number == number else -1
            self._forget_files(part, handout.left, running)
            if handout.unwanted:
                continue
            for lo, hi in reversed(handout.left):
                if lo <= running < hi:
                    self._withdrawals.came_back(part, running + 1, hi)
                    self._row_died(worker, part, running, event.pid, event.status)
                    self._withdrawals.came_back(part, lo, running)
                else:
                    self._withdrawals.came_back(part, lo, hi)
        self._placement.evict(event.slot)
        worker.handouts = handouts
        self._withdrawals.refuse_running(worker)
        if worker.recalling:
            self._withdrawals.pay_debt()
        if was == "starting":
            self._failed_starts += 1
            delay = min(0.05 * 2**self._failed_starts, 5.0)
            self.restart_at[event.slot] = self._crew.now + delay
            how = describe_exit(event.status)
            self._out.log("ERROR", f"worker {event.slot} ended while starting: {how}; another try in {delay:.1f} s")

    def _forget_files(self, part: Part, left: list[tuple[int, int]], running: int) -> None:
        """Rows that had begun may have written a result that nobody was told of."""
        plain = (part.client, part.task.name) in self._handouts.durations and not self._handouts.sizes.get(
            (part.client, part.task.name)
        )
        for lo, hi in left:
            for row in range(max(lo, running) if plain else lo, min(hi, running + 1)):
                key = part.client, part.task.batch + row
                if key not in self._data.index:
                    self._out.add(DropObject(key))

    def _row_died(self, worker: Worker, part: Part, row: int, pid: int, status: int) -> None:
        task = part.task
        kind, much = worker.sentence or ("lost", "")
        if self._withdrawals.is_cancelled(*part.key, row):
            self._withdrawals.came_back(part, row, row + 1)
        elif kind in ("lost", "rejected"):
            words = failures.worker_ended(pid, status) if kind == "lost" else failures.worker_rejected(pid, much)
            body = words.encode()
            self._out.result(part.client, SpanResult(task.batch, row, row + 1, LOST, 0, 0, u32([len(body)]), body))
        elif kind in ("timeout", "memory"):
            told = (
                failures.task_timeout(task.name, task.batch + row, task.timeout)
                if kind == "timeout"
                else failures.worker_memory_exceeded(task.name, task.batch + row, much)
            )
            record = told.encode()
            self._out.result(
                part.client, SpanResult(task.batch, row, row + 1, ERROR, 0, worker.peak, u32([len(record)]), record)
            )
        else:  # its worker had to end for another row's sake
            self._withdrawals.came_back(part, row, row + 1)
