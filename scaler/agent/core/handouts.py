"""Handing rows to workers, and what workers say about them.

Rows go to workers by what they should take: one while a function is unknown, about `HANDOUT_US` worth once it is known,
and a second handout before the first is done, so that a worker never waits for its agent. Rows handed out and not begun
are taken back when another worker idles. A worker takes those rows first that use what only it has; one with nothing to
do gets rows that are for a busy one, when moving what they use takes less time than waiting there.
"""

from scaler.agent.core.crew import Crew
from scaler.agent.core.data import Data
from scaler.agent.core.events import Looked, ToWorker
from scaler.agent.core.memory import Memory
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.part import Part
from scaler.agent.core.placement import Placement, unpin
from scaler.agent.core.state import Handout, Worker, run_message
from scaler.agent.core.withdraw import Withdrawals
from scaler.protocol.messages import LIVE, SIZE, STORED
from scaler.protocol.results import SpanResult
from scaler.worker_protocol.messages import Flush, Published, Results, Returned

#: work handed to a worker at once, microseconds
HANDOUT_US = 8_000.0
#: rows handed to a worker at once, at most
HANDOUT_ROWS = 16_384
#: bytes that the results of one handout should take, at most
HANDOUT_BYTES = 64 << 20
#: rows behind a running one are taken back when that would save an idle worker this much, microseconds
WORTH_RECALLING_US = 1_000.0


class Handouts:
    """See the module's text."""

    def __init__(
        self, out: Outbox, crew: Crew, data: Data, memory: Memory, placement: Placement, withdrawals: Withdrawals
    ) -> None:
        self._out = out
        self._crew = crew
        self._data = data
        self._memory = memory
        self._placement = placement
        self._withdrawals = withdrawals
        self._next = 1
        #: what a row of a function takes, by client and name: microseconds, and bytes of a stored result
        self.durations: dict[tuple[int, str], float] = {}
        self.sizes: dict[tuple[int, str], float] = {}

    # ---- handing out -----------------------------------------------------------------------------------------------
    def feed(self) -> None:
        """Hand rows to workers that have none, then to those that will run out soon."""
        queues, now = self._placement.queues, self._crew.now
        fed = [w for w in self._crew.workers.values() if not (w.blocked or w.recalling) and w.sentence is None]
        if self._memory.full:
            if not self._memory.holds:
                self._feed_one(fed)
            return
        idle = 0
        for worker in fed:
            if worker.state == "idle":
                idle += not self._hand_out(worker, len(fed))
                if not (queues.general.rows or queues.local):
                    return
        if idle and queues.local:
            self._steal(idle - self._placement.stolen)
        for worker in fed:
            if worker.state == "busy" and len(worker.handouts) == 1 and now < due(worker):
                found = queues.of(worker.slot)
                first = next(iter(worker.handouts.values()))
                if found is not None and not found[0].head.task.timeout and not first.part.task.timeout:
                    self._hand_out(worker, len(fed))
                    if not (queues.general.rows or queues.local):
                        return
        if idle and queues.general.rows:  # that were to be for one worker
            self._feed_idle(fed)

    def _feed_idle(self, fed: list[Worker]) -> None:
        """Hand rows for any worker to those that have none."""
        general, given = self._placement.queues.general, True
        while given and general.rows:
            given = False
            for worker in fed:
                given |= worker.state == "idle" and self._hand_out(worker, len(fed))

    def _feed_one(self, fed: list[Worker]) -> None:
        """There is no room, and nothing that runs or leaves will make some: a single row goes on."""
        for worker in fed:
            if worker.state == "idle" and self._hand_out(worker, len(fed), 1):
                return

    def _hand_out(self, worker: Worker, sharers: int, limit: int = HANDOUT_ROWS) -> bool:
        """Hand rows to a worker; False if there are none for it."""
        placement, queues = self._placement, self._placement.queues
        while (found := queues.of(worker.slot)) is not None:
            queue, whose = found
            part = queue.head
            name = part.client, part.task.name
            each = self.durations.get(name)
            if each is None or part.task.timeout:
                rows = 1
            else:
                share = queue.rows if whose is not None else -(-queue.rows // sharers)
                rows = max(1, min(int(HANDOUT_US / each), share, limit))
            if name in self.sizes:
                rows = self._fitting(rows, self.sizes[name])
                if not rows:
                    return False
            part, lo, hi = queue.take(rows)
            if whose is not None:
                queues.settle(whose)
            if part.stored:
                end = placement.usable(part, lo, hi, worker.slot)
                if end == lo:  # what it needs was moved to disk meanwhile, or is gone
                    placement.admit(part, lo, hi, front=True)
                    continue
                if end < hi:
                    queues.put(part, end, hi, whose, front=True)
                    hi = end
            self._give(worker, part, lo, hi, each)
            return True
        return False

    def _fitting(self, rows: int, size: float) -> int:
        """As many of these rows as there is room for results of such a size, bytes; 0 if there will be more room."""
        promised = 0.0
        for worker in self._crew.workers.values():
            for handout in worker.handouts.values():
                promised += handout.rows * self.sizes.get((handout.part.client, handout.part.task.name), 0.0)
        room = self._memory.room() - promised
        if room < size:
            return 0 if promised else 1
        return max(1, min(rows, int(min(HANDOUT_BYTES, room / 2) / max(size, 1.0))))

    def _give(self, worker: Worker, part: Part, lo: int, hi: int, each: float | None) -> None:
        number = self._next
        self._next += 1
        handout = Handout(part, [(lo, hi)], None if each is None else each * (hi - lo), self._crew.now)
        if part.stored:
            last = hi if part.needs is not None else lo + 1
            handout.pins = list(dict.fromkeys(key for row in range(lo, last) for key in part.stored_for(row)))
            for key in handout.pins:
                self._data.index.pin(key)
        worker.handouts[number] = handout
        if worker.state == "idle":
            worker.hear(self._crew.now)
        worker.move("busy")
        self._out.add(ToWorker(worker.slot, run_message(number, handout, self._data.inline, worker)))

    def _steal(self, wanted: int) -> None:
        """Have rows that are for busy workers run in idle ones, if that is faster."""
        local, workers = self._placement.queues.local, self._crew.workers
        waits = {slot: self.waiting_seconds(workers[slot]) for slot in local if workers[slot].state == "busy"}
        for slot in sorted(waits, key=waits.__getitem__, reverse=True):
            while wanted > 0 and slot in local and self._placement.steal(slot, self.waiting_seconds(workers[slot])):
                wanted -= 1

    def waiting_seconds(self, worker: Worker) -> float:
        """How long a row that is for a worker waits there behind all others, as far as known."""
        total = 0.0
        for i, handout in enumerate(worker.handouts.values()):
            elapsed = 1e6 * (self._crew.now - handout.at) if i == 0 else 0.0
            if handout.expected is None:
                total += max(elapsed, 1_000.0)  # what has taken long will take long
            else:
                total += max(handout.expected - elapsed, 0.0)
        queue = self._placement.queues.local.get(worker.slot)
        if queue is not None:
            for part, lo, hi in queue:
                if total > 1e6:
                    break  # long enough for every decision
                total += (hi - lo) * self.durations.get((part.client, part.task.name), 1_000.0)
        return total / 1e6

    def recall_for_idle(self, crowded: list[Worker]) -> None:
        """Take back what waits behind long rows: other workers have nothing to do."""
        for worker in crowded:
            expected = worker.expected
            first = next(iter(worker.handouts.values()))
            if expected is not None and expected - 1e6 * (self._crew.now - first.at) > 2 * WORTH_RECALLING_US:
                self._crew.recall(worker)

    def looked(self, event: Looked) -> None:
        """A worker that runs another row than the first it has not told of keeps results: it is asked for them."""
        worker = self._crew.workers.get(event.slot)
        number, row = event.begun
        if worker is None or number not in worker.handouts or worker.sentence is not None:
            return
        first, handout = next(iter(worker.handouts.items()))
        if number != first or not handout.left or handout.left[0][0] != row:
            self._crew.tell(worker, Flush(), control=True)

    # ---- what workers say ------------------------------------------------------------------------------------------
    def results(self, worker: Worker, message: Results) -> None:
        """Rows have ended, and hand-outs are done with."""
        ended, done = message
        for number, client, batch, lo, hi, outcome, duration, peak, sizes, body in ended:
            handout = worker.handouts.get(number)
            if handout is not None and handout.part.key != (client, batch):
                self._crew.reject(worker, "tells of rows that it was not given")
                return
            taken = handout is not None and handout.take(lo, hi)
            if not taken:
                self._crew.reject(worker, "tells of rows that it was not given")
            if handout is None or not taken or handout.unwanted:
                if outcome >= STORED:
                    for row in range(lo, hi):
                        self._data.unwanted(worker, (client, batch + row), outcome == LIVE)
                continue
            if self._withdrawals.doomed:
                self._withdrawals.ended(client, batch, lo, hi)
            name = client, handout.part.task.name
            if outcome >= STORED:
                self._note_stored(worker, client, batch + lo, outcome, body)
                _average(self.sizes, name, sum(size for (size,) in SIZE.iter_unpack(body)) / (hi - lo))
                outcome = STORED
            elif name in self.sizes:
                _average(self.sizes, name, 0.0)
            self._out.result(client, SpanResult(batch, lo, hi, outcome, min(duration, 0xFFFFFFFF), peak, sizes, body))
            _average(self.durations, name, max(duration / (hi - lo), 0.05))
        for number in done:
            if number in worker.handouts and worker.handouts[number].left:
                self._crew.reject(worker, "has done with rows of which it has told nothing")
                return
            self.close(worker, number)
        for handout in worker.handouts.values():
            handout.at = self._crew.now
            if handout.expected is not None:
                handout.expected = self.durations.get((handout.part.client, handout.part.task.name), 0.0) * handout.rows
            break

    def _note_stored(self, worker: Worker, client: int, first: int, outcome: int, body: bytes) -> None:
        for row, (size,) in enumerate(SIZE.iter_unpack(body), first):
            if outcome == LIVE:
                self._data.live((client, row), size, worker)
            else:
                self._data.stored((client, row), size)

    def returned(self, worker: Worker, message: Returned) -> None:
        """A worker gave back rows that had not begun."""
        for number, _, _, lo, hi in reversed(message.rows):
            handout = worker.handouts.get(number)
            if handout is None or not handout.take(lo, hi):
                self._crew.reject(worker, "gives back rows that it was not given")
            elif not handout.unwanted:
                self._withdrawals.came_back(handout.part, lo, hi)
        for number in [number for number, handout in worker.handouts.items() if not handout.left]:
            self.close(worker, number)

    def published(self, worker: Worker, message: Published) -> None:
        """A worker wrote live values into files, asked or not."""
        for key, size, error in message.values:
            if key not in self._data.index and self._is_running(worker, key):
                self._data.stored(key, size)  # of a row whose result is yet to be heard of
            else:
                self._data.published(worker, key, size, error)

    @staticmethod
    def _is_running(worker: Worker, key: tuple[int, ...]) -> bool:
        client, number = key
        for handout in worker.handouts.values():
            if handout.part.client == client and not handout.unwanted:
                row = number - handout.part.task.batch
                if any(lo <= row < hi for lo, hi in handout.left):
                    return True
        return False

    def close(self, worker: Worker, number: int) -> None:
        """A hand-out is over, however."""
        handout = worker.handouts.pop(number, None)
        if handout is not None and handout.pins:
            unpin(self._data, handout.pins)

    def close_all(self, worker: Worker) -> None:
        """All its hand-outs are over."""
        for number in list(worker.handouts):
            self.close(worker, number)

    def drop_client(self, client: int) -> None:
        """A client is gone: nobody wants what comes of its rows."""
        for worker in self._crew.workers.values():
            for i, handout in enumerate(worker.handouts.values()):
                if handout.part.client == client:
                    handout.unwanted = True
                    if i == 0:
                        self._crew.kill(worker, "unwanted", "its client is gone")
                    else:
                        self._crew.recall(worker)
        for table in (self.durations, self.sizes):
            for name in [name for name in table if name[0] == client]:
                del table[name]


def due(worker: Worker) -> float:
    """When what a busy worker has should be done, generously; what is behind it is taken back then."""
    first = next(iter(worker.handouts.values()))
    expected = worker.expected
    return first.at + (0.005 if expected is None else 0.005 + 2e-6 * expected)


def _average(table: dict[tuple[int, str], float], name: tuple[int, str], value: float) -> None:
    """Note what was seen; old values count less and less."""
    known = table.get(name)
    table[name] = value if known is None else known + 0.3 * (value - known)
