"""Which agent gets which rows. Amortised O(1) a span: nothing here looks at all agents or all rows.

Agents of the same capabilities form a flavour, and each flavour keeps its agents in three sets: *idle* (fewer rows than
workers), *shallow* (fewer than two rows a worker) and *open* (half of its window is free). Idle agents are always
served. Rows beyond what the workers run now are prefetched by a window of about `PREFETCH_US` of work; while a
function's duration is not known, by one row a worker.
"""

from collections.abc import Sequence
from heapq import nlargest
from itertools import islice
from operator import itemgetter

from scaler.common.spans import SpanQueue
from scaler.scheduler.core.queues import ReadyQueues
from scaler.scheduler.core.state import AGENT, QUEUED, Agent, Batch

#: work that an agent should have in hand, microseconds a worker
PREFETCH_US = 100_000
#: rows that an agent may have outstanding, whatever they take
MAX_WINDOW = 40_000
#: what a row is taken to last while nothing is known, microseconds
UNKNOWN_US = 10_000.0
#: rows a worker that a row which takes stored values waits for, at most: it goes before those that don't
MAX_AHEAD = 4
#: what moving an object takes besides its bytes, microseconds
MOVING_US = 1_000.0
#: what moving objects between hosts is taken to manage before any was moved, bytes a second
BANDWIDTH = 500e6


class Estimates:
    """What a row of a function takes, learnt from results: an exponential average per client and function name."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[tuple[int, str], float] = {}

    def get(self, batch: Batch) -> float | None:
        """Microseconds a row, None while unknown."""
        return self._of.get((batch.client, batch.task.name))

    def learn(self, batch: Batch, rows: int, duration_us: int) -> float:
        """Take note of finished rows; what they took each."""
        each = max(duration_us / rows, 0.05)
        key = (batch.client, batch.task.name)
        known = self._of.get(key)
        self._of[key] = each if known is None else known + 0.3 * (each - known)
        return each

    def longest(self, count: int) -> list[tuple[str, float]]:
        """Names of the functions whose rows take longest, and microseconds a row."""
        return [(name, each) for (_, name), each in nlargest(count, self._of.items(), key=itemgetter(1))]

    def forget_client(self, client: int) -> None:
        """Drop what was learnt of a client's functions."""
        for key in [key for key in self._of if key[0] == client]:
            del self._of[key]


def window(workers: int, each_us: float | None) -> int:
    """How many rows an agent may have outstanding."""
    if each_us is None:
        return 2 * workers
    return max(2 * workers, min(MAX_WINDOW, int(workers * PREFETCH_US / each_us)))


class Flavour:
    """The agents with the same capabilities; dicts serve as ordered sets."""

    __slots__ = ("capabilities", "idle", "open", "shallow", "surplus")

    def __init__(self, capabilities: frozenset[str]) -> None:
        self.capabilities = capabilities
        self.idle: dict[Agent, None] = {}
        self.shallow: dict[Agent, None] = {}
        self.open: dict[Agent, None] = {}
        #: agents with rows that none of their workers runs yet
        self.surplus: dict[Agent, None] = {}

    def sort(self, agent: Agent) -> None:
        """Put an agent into the sets where it belongs now."""
        outstanding, workers = agent.outstanding, agent.workers
        if agent.full:
            self.remove(agent)
            return
        if outstanding < workers:
            self.idle.setdefault(agent)
        else:
            self.idle.pop(agent, None)
        if outstanding < 2 * workers:
            self.shallow.setdefault(agent)
        else:
            self.shallow.pop(agent, None)
        if outstanding <= agent.window // 2:
            self.open.setdefault(agent)
        else:
            self.open.pop(agent, None)
        if outstanding > workers:
            self.surplus.setdefault(agent)
        else:
            self.surplus.pop(agent, None)

    def remove(self, agent: Agent) -> None:
        """Forget an agent."""
        for members in (self.idle, self.shallow, self.open, self.surplus):
            members.pop(agent, None)


def _assign(batch: Batch, lo: int, hi: int, agent: Agent) -> None:
    """Put rows into an agent's outbox."""
    batch.move(lo, hi, AGENT + agent.number)
    batch.at[agent.number] = batch.at.get(agent.number, 0) + hi - lo
    agent.outstanding += hi - lo
    agent.batches.setdefault(batch)
    agent.barren = False
    agent.outbox.setdefault(batch, []).append((lo, hi))


class Placement:
    """Gives ready rows to agents, and asks for rows back when some idle while others have more than they run."""

    def __init__(
        self, queues: ReadyQueues, estimates: Estimates, touched: dict[Agent, None], agents: dict[int, Agent]
    ) -> None:
        self.agents = agents
        #: between hosts, bytes a second, as learnt: an average that follows what agents say
        self.bandwidth = BANDWIDTH
        self._queues = queues
        self._estimates = estimates
        #: agents that were given something, for whoever sends it
        self._touched = touched
        self._flavours: dict[frozenset[str], Flavour] = {}
        #: of all agents; a sum would cost a look at each of them for each message
        self.workers = 0
        #: required capabilities -> the flavours that have them
        self._matching: dict[tuple[str, ...], list[Flavour]] = {}

    def add(self, agent: Agent) -> None:
        """An agent joined."""
        self.workers += agent.workers
        agent.window = window(agent.workers, None)
        flavour = self._flavours.get(agent.capabilities)
        if flavour is None:
            flavour = self._flavours[agent.capabilities] = Flavour(agent.capabilities)
            self._matching.clear()
        flavour.sort(agent)

    def remove(self, agent: Agent) -> None:
        """An agent is gone."""
        self.workers -= agent.workers
        self._flavours[agent.capabilities].remove(agent)

    def changed(self, agent: Agent) -> None:
        """An agent's outstanding rows changed."""
        self._flavours[agent.capabilities].sort(agent)

    def resized(self, agent: Agent, workers: int) -> None:
        """An agent's number of workers changed."""
        self.workers += workers - agent.workers
        agent.workers = workers
        agent.window = window(workers, agent.recent)
        self.changed(agent)

    def learnt(self, agent: Agent, each_us: float) -> None:
        """Results came from an agent: its window follows."""
        agent.recent = each_us if agent.recent is None else agent.recent + 0.3 * (each_us - agent.recent)
        agent.window = window(agent.workers, agent.recent)

    def moves(self, agent: Agent, bandwidth: float) -> None:
        """Objects came to an agent from other hosts by so many bytes a second."""
        if bandwidth > 0 and bandwidth != agent.bandwidth:
            agent.bandwidth = bandwidth
            self.bandwidth += 0.3 * (bandwidth - self.bandwidth)

    def can_ever_run(self, capabilities: tuple[str, ...]) -> bool:
        """Some agent has these capabilities."""
        return any(f.idle or f.shallow or f.open or f.surplus for f in self._flavours_for(capabilities))

    def _flavours_for(self, capabilities: tuple[str, ...]) -> list[Flavour]:
        flavours = self._matching.get(capabilities)
        if flavours is None:
            needed = frozenset(capabilities)
            flavours = self._matching[capabilities] = [f for f in self._flavours.values() if needed <= f.capabilities]
        return flavours

    def place(self) -> None:
        """Move ready rows to the outboxes of agents until either runs out."""
        for (_, capabilities), queue in self._queues.in_order():
            flavours = self._flavours_for(capabilities)
            for flavour in flavours:
                self._serve_idle(queue, flavour)
            for flavour in flavours:
                self._prefetch(queue, flavour)

    def place_at_once(self, batch: Batch) -> bool:
        """Give a new batch to an agent that has nothing else to do for so many workers, if no rows wait for a place."""
        if self._queues.rows:
            return False
        for flavour in self._flavours_for(batch.task.capabilities):
            for agent in flavour.idle:
                if agent.workers - agent.outstanding < batch.rows:
                    return False
                self._touched.setdefault(agent)
                batch.move(0, batch.rows, QUEUED)
                _assign(batch, 0, batch.rows, agent)
                flavour.remove(agent)
                flavour.sort(agent)
                return True
        return False

    def may_run(self, batch: Batch, number: int) -> bool:
        """An agent has workers, and what the rows of a batch ask for."""
        agent = self.agents.get(number)
        return agent is not None and agent.workers > 0 and agent.capabilities.issuperset(batch.task.capabilities)

    def place_at(
        self, batch: Batch, row: int, numbers: Sequence[int], moved: int = 0, nowhere_else: bool = False
    ) -> bool:
        """Give a row that is in no queue to one of these agents, however busy it is; False if none may run it.

        With `moved` only if waiting there costs less than moving so many bytes elsewhere; with `nowhere_else` even if
        there is no room for more objects.
        """
        for number in numbers:
            agent = self.agents.get(number)
            if agent is None or (agent.full and not nowhere_else) or not self.may_run(batch, number):
                continue
            if moved:
                each = agent.recent or self._estimates.get(batch) or UNKNOWN_US
                ahead = min(agent.outstanding - agent.workers + 1, MAX_AHEAD * agent.workers)
                if ahead > 0 and ahead * each / agent.workers > MOVING_US + moved / self.bandwidth * 1e6:
                    continue
            self._touched.setdefault(agent)
            if batch.place[row] != QUEUED:
                batch.move(row, row + 1, QUEUED)
            _assign(batch, row, row + 1, agent)
            self.changed(agent)
            return True
        return False

    def _serve_idle(self, queue: SpanQueue[Batch], flavour: Flavour) -> None:
        while queue.rows and flavour.idle:
            agent = next(iter(flavour.idle))
            share = -(-queue.rows // len(flavour.idle))
            need = agent.workers - agent.outstanding
            self._give(
                queue,
                flavour,
                agent,
                share if share < need else max(need, min(share, agent.window - agent.outstanding)),
            )

    def _prefetch(self, queue: SpanQueue[Batch], flavour: Flavour) -> None:
        while queue.rows:
            head = queue.head
            each = self._estimates.get(head)
            members = flavour.shallow if each is None else flavour.open
            if not members:
                return
            agent = next(iter(members))
            credit = min(agent.window, window(agent.workers, each)) - agent.outstanding
            if credit <= 0:
                return
            self._give(queue, flavour, agent, min(credit, max(agent.workers, -(-queue.rows // len(members)))))

    def _give(self, queue: SpanQueue[Batch], flavour: Flavour, agent: Agent, rows: int) -> None:
        self._touched.setdefault(agent)
        while rows > 0 and queue.rows:
            each_known = self._estimates.get(queue.head) is not None
            limit = rows if each_known else min(rows, max(1, 2 * agent.workers - agent.outstanding))
            batch, lo, hi = queue.take(limit)
            _assign(batch, lo, hi, agent)
            rows -= hi - lo
            if not each_known and agent.outstanding >= agent.workers:
                break
        flavour.remove(agent)
        flavour.sort(agent)

    def recalls(self) -> list[tuple[Agent, int]]:
        """Agents to ask for rows back, and how many, because others of their flavour have nothing to do."""
        asks: list[tuple[Agent, int]] = []
        for flavour in self._flavours.values():
            if not flavour.idle or not flavour.surplus:
                continue
            wanted = len(flavour.idle)
            for agent in list(islice(flavour.surplus, wanted + 8)):
                spare = agent.outstanding - agent.workers
                if agent.recalling or agent.barren or spare * (agent.recent or 1e6) < 2_000 * agent.workers:
                    flavour.surplus[agent] = flavour.surplus.pop(agent)  # others have their turn next time
                    continue
                agent.recalling = True
                asks.append((agent, -(-spare // 2)))
                wanted -= 1
                if wanted <= 0:
                    break
        return asks
