"""Snapshots of clusters that are not there, of any size: for what shows snapshots, without a cluster, from one seed.

    cluster = SyntheticCluster(agents=1000, workers=64)
    first, second = cluster.snapshot(), cluster.snapshot()      # a second later: counters have grown, loads have moved

`reports` gives what agents would have told, for a scheduler's state in a measurement.
"""

from __future__ import annotations

from random import Random

from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import AgentFlag, WorkerFlag
from scaler.protocol.messages import HostReport, WorkerColumns, u8, u32, u64, unpack
from scaler.protocol.messages.cluster_view import (
    AgentColumns,
    ClientColumns,
    ClusterView,
    DemandColumns,
    FleetColumns,
    FunctionColumns,
    ObjectColumns,
    RowCounts,
    SchedulerView,
)
from scaler.version import __version__

_BUSY = WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.HOLDS_LOCK
_NAMES = ("pricing.value_at_risk", "pandas.core.frame.DataFrame.groupby", "__main__.simulate", "<lambda>", "load_chunk")
_SENT = ("HeartbeatEcho", "Task", "TaskResult", "ObjectAnnounce", "TaskCancel", "BalanceRequest", "Snapshot")
_RECEIVED = ("Heartbeat", "Task", "TaskResult", "ObjectAnnounce", "TaskCancel", "BalanceResponse", "HostReport")


class SyntheticCluster:
    """A cluster of so many agents with so many workers each; each snapshot is a second after the one before."""

    def __init__(
        self,
        agents: int = 1000,
        workers: int = 64,
        clients: int = 4,
        functions: int = 20,
        seed: int = 0,
        fleet: bool = False,
    ) -> None:
        """`fleet`: somebody asks a batch system for more hosts."""
        self._has_fleet = fleet
        self._random = Random(seed)
        self._agents, self._workers, self._clients = agents, workers, clients
        names = [_NAMES[i] if i < len(_NAMES) else f"module_{i}.function_{i}" for i in range(functions)]
        self._functions = names
        self._number = 0
        self._handed = [self._random.randrange(1000) for _ in range(agents * workers)]

    def reports(self) -> list[HostReport]:
        """What each agent tells."""
        return [self._report(agent) for agent in range(self._agents)]

    def snapshot(self) -> Snapshot:
        """The next one."""
        self._number += 1
        reports = self.reports()
        columns = unpack(b"".join(report.bodies[0] for report in reports), [report.workers for report in reports])
        running = sum(report.running for report in reports)
        view = ClusterView(
            self._scheduler(), self._rows(running, len(columns)), self._agents_of(reports),
            self._clients_of(running), self._functions_of(running), self._objects_of(reports),
            tuple(name for report in reports for name in report.names), self._demand(), self._fleets(),
        )  # fmt: skip
        view.validate()
        snapshot = Snapshot(self._number, view, columns)
        snapshot.validate()
        return snapshot

    def _report(self, agent: int) -> HostReport:
        random, count = self._random, self._workers
        names = tuple(random.sample(self._functions, min(3, count, len(self._functions))))
        busy = [bool(names) and random.random() < 0.8 for _ in range(count)]
        first = agent * count
        for worker in range(count):
            self._handed[first + worker] += 3 if busy[worker] else 0
        queued = [random.randrange(20) if at_work else 0 for at_work in busy]
        workers = WorkerColumns(
            u64([random.randrange(40 << 20, 900 << 20) for _ in range(count)]),
            u64(self._handed[first : first + count]),
            u64([random.randrange(1, 1 << 40) if at_work else 0 for at_work in busy]),
            u32([1 + random.randrange(self._clients) if at_work else 0 for at_work in busy]),
            u32([1 + random.randrange(len(names)) if at_work else 0 for at_work in busy]),
            u32([random.randrange(60_000) if at_work else 0 for at_work in busy]),
            u32(range(10_000 + first, 10_000 + first + count)), u32(range(count)),
            u32([random.randrange(800, 1000) if at_work else random.randrange(5) for at_work in busy]),
            u32([rows + at_work for rows, at_work in zip(queued, busy, strict=True)]), u32(queued),
            u8([_BUSY if at_work else WorkerFlag.INITIALISED for at_work in busy]),
        )  # fmt: skip
        stored = random.randrange(8 << 30)
        return HostReport(
            random.randrange(50), random.randrange(50 << 20, 120 << 20), random.randrange(1000),
            busy.count(False), random.randrange(200), busy.count(True), random.randrange(200, 3000),
            stored, random.randrange(stored + 1), random.randrange(1 << 34), count, names, [workers.pack()],
        )  # fmt: skip

    def _scheduler(self) -> SchedulerView:
        random, n = self._random, self._number
        return SchedulerView(
            12345, 4321, "tcp://127.0.0.1:2345", __version__, 1_700_000_000.0 + n, 60.0 + n, random.randrange(900),
            180 << 20, 1, 800_000_000,
            _SENT, u64([n * (1000 + 100 * i) for i in range(len(_SENT))]),
            _RECEIVED, u64([n * (1100 + 90 * i) for i in range(len(_RECEIVED))]),
        )  # fmt: skip

    def _rows(self, running: int, workers: int) -> RowCounts:
        n = self._number
        return RowCounts(
            250, 40_000, running + 5 * workers, running, 9_000 * n, 12 * n, 3 * n, 2 * n, n // 7, n // 9, n
        )

    def _agents_of(self, reports: list[HostReport]) -> AgentColumns:
        count, numbers = len(reports), range(2, 2 + len(reports))
        return AgentColumns(
            u32(numbers), tuple(f"host-{number:04}" for number in numbers),
            tuple("gpu" if number % 8 == 0 else "" for number in numbers),
            u32(range(5000, 5000 + count)), u8([AgentFlag.REPORTED] * count), u32([self._workers] * count),
            u32([each.cpu for each in reports]), u64([each.memory for each in reports]),
            u32([each.host_cpu for each in reports]), u32([each.free for each in reports]),
            u32([each.queued for each in reports]), u32([each.lag for each in reports]),
            u64([each.spilled for each in reports]), u64([each.fetched for each in reports]),
            u64([each.stored for each in reports]), u32([each.running + each.queued for each in reports]),
            u32([self._random.randrange(1000) for _ in reports]), u32([self._random.randrange(1000) for _ in reports]),
            u32([each.workers for each in reports]), u32([len(each.names) for each in reports]),
            tuple("" if number % 3 else f"{4700 + number}" for number in numbers),
            u32([2**32 - 1 if number % 3 else 3_600_000 + number for number in numbers]), u32([0] * count),
        )  # fmt: skip

    def _demand(self) -> DemandColumns:
        return DemandColumns(
            ("", "gpu"), u64([38_000, 2_000]), u64([90_000_000, 0]), u64([0, 2_000]), u64([50_000, 400]), u64([12, 0]),
            u64([1_000, 0]),
        )  # fmt: skip

    def _fleets(self) -> FleetColumns:
        if not self._has_fleet:
            return FleetColumns()
        return FleetColumns(
            ("slurm",), u32([self._agents + 4]), u32([4]), u32([self._agents]), u32([1]), u32([180_000]), u32([1]),
            ("4 jobs: Priority",),
        )  # fmt: skip

    def _clients_of(self, running: int) -> ClientColumns:
        count, n = self._clients, self._number
        return ClientColumns(
            u32(range(1, 1 + count)), tuple(f"client-{number}" for number in range(1, 1 + count)),
            u64([10_000] * count), u64([running // max(1, count)] * count), u64([2_000 * n] * count),
            u32([12] * count), u32([300] * count), u32([100] * count),
        )  # fmt: skip

    def _functions_of(self, running: int) -> FunctionColumns:
        count, n = len(self._functions), self._number
        middles = [10 * 4 ** (i % 9) for i in range(count)]
        return FunctionColumns(
            u32([1 + i % max(1, self._clients) for i in range(count)]), tuple(self._functions),
            u64([2_000 - i for i in range(count)]), u64([running // max(1, count)] * count),
            u64([(400 - i) * n for i in range(count)]), u64([n if i == 3 else 0 for i in range(count)]),
            u64([0] * count), u64([400 * n * middle for middle in middles]),
            u64(middles), u64([3 * middle for middle in middles]),
        )  # fmt: skip

    def _objects_of(self, reports: list[HostReport]) -> ObjectColumns:
        sizes = [(50 - i) << 24 for i in range(50)]
        return ObjectColumns(
            1_200, 1_200, sum(each.stored for each in reports), sum(each.spilled for each in reports),
            sum(each.fetched for each in reports),
            u32([1 + i % max(1, self._clients) for i in range(50)]), u64(range(100, 150)), u64(sizes),
            u32([3] * 50), u32([1 + i % 3 for i in range(50)]),
        )  # fmt: skip
