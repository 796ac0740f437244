"""What a monitor sees of a cluster at one moment, in columns: the first frame of a `Snapshot`; workers are the second.

Its size grows with agents, workers, clients and functions, never with rows. Columns of one part have one length.
"""

from array import array
from dataclasses import field, fields

from scaler.common.records import record
from scaler.protocol.codes import NEVER
from scaler.protocol.messages.columns import column, u8, u32, u64
from scaler.protocol.messages.message import Part, require


@record
class SchedulerView(Part):
    """The scheduler's process, and what it has sent and received since it began."""

    #: of this scheduler; another one at the same address has another
    epoch: int = 0
    #: its process, where it listens, and which it is
    pid: int = 0
    address: str = ""
    version: str = ""
    #: when this was seen, seconds since 1970; and seconds since the scheduler began
    time: float = 0.0
    uptime: float = 0.0
    #: thousandths of a processor, and resident memory, bytes
    cpu: int = 0
    memory: int = 0
    #: monitors that watch, of all kinds
    monitors: int = 0
    #: between hosts, bytes a second, as learnt
    bandwidth: int = 0
    #: messages by type: names, and how many
    sent_types: tuple[str, ...] = ()
    sent_counts: "array[int]" = column(u64)
    received_types: tuple[str, ...] = ()
    received_counts: "array[int]" = column(u64)
    #: where the other one of a pair of schedulers is, and how many agents count; empty and 0 if there is none
    partner: str = ""
    roster: int = 0
    #: why nothing is handed out, in words; empty if it is, or if this one stands by for one that is heard
    trouble: str = ""
    #: whose work waits for which agents after the last scheduler, in words; empty if none does
    awaited: str = ""
    #: it has no keys (`--insecure`): it takes in whoever reaches it
    insecure: bool = False
    #: it stands by for the other one of a pair
    stands_by: bool = False
    #: seconds for which the other one was not heard, or since this one began; 0 if it is heard, or there is none
    silence: float = 0.0

    def validate(self) -> None:
        require(len(self.sent_types) == len(self.sent_counts), "a count for each type of message sent")
        require(len(self.received_types) == len(self.received_counts), "a count for each type of message received")
        times = (self.time, self.uptime, self.silence)
        require(all(0 <= each < NEVER for each in times), "times that a calendar has")


@record
class RowCounts(Part):
    """Rows by where they are now, and by how they ended since the scheduler began."""

    #: that need values which are not there yet; that could run and have no agent
    waiting: int = 0
    queued: int = 0
    #: that agents have; of them those that workers have, as far as agents have told
    at_agents: int = 0
    running: int = 0
    #: that ended with a value, with an error, cancelled
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    #: run by their client itself inside of the task that waited for them
    claimed: int = 0
    #: named in a cancellation though they had ended, or never were
    not_found: int = 0
    #: that had to run again, each as often as that was so: lost with their worker or host, or retried after an error
    lost: int = 0
    retried: int = 0


@record
class Columns(Part):
    """Things of one kind, a column for each of their figures: all fields are columns."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def validate(self) -> None:
        lengths = {len(getattr(self, item.name)) for item in fields(self)}
        require(len(lengths) == 1, f"columns of one length in {type(self).__name__}")


@record
class AgentColumns(Columns):
    """Agents, in the order of workers in `WorkerColumns`."""

    #: at this scheduler
    numbers: "array[int]" = column(u32)
    #: what the host is called, and what it can do, joined by commas
    names: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    #: of the agent's process
    pids: "array[int]" = column(u32)
    #: `AgentFlag`
    flags: "array[int]" = column(u8)
    #: workers at work, including those for tasks that wait for other tasks
    workers: "array[int]" = column(u32)
    #: as in `HostReport`; 0 until it has reported
    cpus: "array[int]" = column(u32)
    memory: "array[int]" = column(u64)
    host_cpus: "array[int]" = column(u32)
    free: "array[int]" = column(u32)
    queued: "array[int]" = column(u32)
    lags: "array[int]" = column(u32)
    spilled: "array[int]" = column(u64)
    fetched: "array[int]" = column(u64)
    #: bytes of objects in its store
    stored: "array[int]" = column(u64)
    #: rows that were sent to it and have not come back
    rows: "array[int]" = column(u32)
    #: milliseconds since its last message, and since its last report
    silent: "array[int]" = column(u32)
    report_ages: "array[int]" = column(u32)
    #: how many workers of the other frame, and of `worker_names`, are its
    worker_counts: "array[int]" = column(u32)
    name_counts: "array[int]" = column(u32)
    #: the batch system's id of the job that it runs in; empty for none
    jobs: tuple[str, ...] = ()
    #: milliseconds until its batch system ends it; 2**32 - 1: it does not
    walltimes: "array[int]" = column(u32)
    #: milliseconds since it has had no rows; 0: it has some
    idle: "array[int]" = column(u32)


@record
class ClientColumns(Columns):
    """Clients."""

    #: at this scheduler, and what they call themselves
    numbers: "array[int]" = column(u32)
    names: tuple[str, ...] = ()
    #: rows that no agent has, that agents have, and that ended since it came, however they did
    queued: "array[int]" = column(u64)
    running: "array[int]" = column(u64)
    done: "array[int]" = column(u64)
    #: batches with rows that have not ended, and objects
    batches: "array[int]" = column(u32)
    objects: "array[int]" = column(u32)
    #: milliseconds since its last message
    silent: "array[int]" = column(u32)


@record
class FunctionColumns(Columns):
    """The functions of each client that are most at work; the last one may be all others, of client 0."""

    #: whose they are, and their names
    clients: "array[int]" = column(u32)
    names: tuple[str, ...] = ()
    #: rows that no agent has, that agents have, and that ended with a value, with an error, or without being run
    waiting: "array[int]" = column(u64)
    running: "array[int]" = column(u64)
    done: "array[int]" = column(u64)
    failed: "array[int]" = column(u64)
    cancelled: "array[int]" = column(u64)
    #: microseconds that all its rows took together; that half, and 95 of 100, took at most: 0 while unknown
    total_us: "array[int]" = column(u64)
    p50_us: "array[int]" = column(u64)
    p95_us: "array[int]" = column(u64)


@record
class ObjectColumns(Part):
    """The largest objects of those that were looked at, and all together."""

    #: all objects that the scheduler knows, and how many were looked at for the largest: the newest ones
    count: int = 0
    looked_at: int = 0
    #: bytes in stores, those of them on disk, and all that ever came from one host to another
    stored: int = 0
    spilled: int = 0
    fetched: int = 0
    #: whose each is, its id, its bytes
    clients: "array[int]" = column(u32)
    ids: "array[int]" = column(u64)
    sizes: "array[int]" = column(u64)
    #: who needs it: batches, rows, its client; and stores that have it
    references: "array[int]" = column(u32)
    copies: "array[int]" = column(u32)

    def __len__(self) -> int:
        return len(self.ids)

    def validate(self) -> None:
        require(
            len(self.clients) == len(self.ids) == len(self.sizes) == len(self.references) == len(self.copies),
            "columns of objects of one length",
        )


@record
class DemandColumns(Columns):
    """What there is to do, by what rows ask of their host: also where only agents are that have just that."""

    #: what the rows ask for, joined by commas
    capabilities: tuple[str, ...] = ()
    #: rows that could run and have no agent; without those of clients that do not read their results
    queued: "array[int]" = column(u64)
    #: microseconds that they will take, those whose function's duration is known; and how many the others are
    work_us: "array[int]" = column(u64)
    unknown: "array[int]" = column(u64)
    #: rows that agents have
    at_agents: "array[int]" = column(u64)
    #: slots without a row at agents that have all of this and are not about to go
    free: "array[int]" = column(u64)
    #: of the rows in `work_us`, those whose duration was measured of a few only
    hardly_known: "array[int]" = column(u64)


@record
class FleetColumns(Part):
    """Hosts that were asked for, as those tell who ask for them."""

    #: what they come from
    providers: tuple[str, ...] = ()
    #: how many are wanted, asked for and not there, there, and about to go
    desired: "array[int]" = column(u32)
    pending: "array[int]" = column(u32)
    running: "array[int]" = column(u32)
    draining: "array[int]" = column(u32)
    #: milliseconds that the oldest of those asked for has waited
    waited: "array[int]" = column(u32)
    #: how many of `lines` are of each: the batch system's own words
    line_counts: "array[int]" = column(u32)
    lines: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.providers)

    def validate(self) -> None:
        columns = (self.desired, self.pending, self.running, self.draining, self.waited, self.line_counts)
        require({len(column) for column in columns} == {len(self.providers)}, "columns of fleets of one length")
        require(sum(self.line_counts) == len(self.lines), "the counts of lines add up")


@record
class ClusterView(Part):
    """The cluster at one moment."""

    scheduler: SchedulerView
    rows: RowCounts
    agents: AgentColumns
    clients: ClientColumns
    functions: FunctionColumns
    objects: ObjectColumns
    #: functions that workers run, those of the first agent first
    worker_names: tuple[str, ...] = ()
    demand: DemandColumns = field(default_factory=DemandColumns)
    fleets: FleetColumns = field(default_factory=FleetColumns)

    def validate(self) -> None:
        parts = (self.scheduler, self.agents, self.clients, self.functions, self.objects, self.demand, self.fleets)
        for part in parts:
            part.validate()
        require(sum(self.agents.name_counts) == len(self.worker_names), "the counts of names add up")
