"""What the programs can be told, as one dataclass per program.

Each option is written once, as a field here: its name is the key in a configuration file, `--its-name` the flag and
`SCALER_ITS_NAME` the environment variable; its `Option` holds the help text and the limits. `scaler.cli` derives the
command lines from these classes, and Python code makes them directly, so both are checked by the same lines. Defaults
that others show too stand in `scaler.defaults`.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from dataclasses import KW_ONLY, MISSING, Field, fields
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from scaler import defaults
from scaler.common.call_text import CallText
from scaler.common.processors import granted_cores
from scaler.common.records import frozen

#: seconds between two snapshots or heartbeats, at most: a day
LONGEST_LOOK = 86_400.0
#: seconds of any other time, at most: 31 years. A protocol's message has milliseconds of it
LONGEST = 1e9
#: bytes of a message, at most: the sizes in its columns are of 32 bits
MOST_MESSAGE_BYTES = (1 << 32) - 1
#: bytes of memory or of a disk, at most: an exbibyte
MOST_BYTES = 1 << 60
#: workers of a host, and threads of a worker, at most; the protocol has the same
MOST_WORKERS = 100_000
#: hosts that are provided, at most
MOST_HOSTS = 1_000_000
#: of anything else that is counted, at most
MOST_COUNTED = (1 << 32) - 1
#: the last port that there is
LAST_PORT = 65535


class OptionError(ValueError):
    """A value that an option does not take; `option` is the name of the option."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"{option} {message}")
        self.option = option

    def __reduce__(self) -> tuple[Any, ...]:
        return OptionError, (self.option, str(self).removeprefix(f"{self.option} "))


@frozen
class Option:
    """What a field of a configuration class says about itself."""

    #: one sentence for `-h`; ends without a full stop
    help: str
    #: least value, inclusive; None for no limit
    minimum: float | None = None
    #: other flags for the same, with their dashes: of one letter, or the original's
    others: tuple[str, ...] = ()
    #: greatest value, inclusive; None for no limit
    maximum: float | None = None
    #: it is a number of bytes
    is_size: bool = False


@frozen
class Setting:
    """A field of a configuration class as others see it."""

    name: str
    #: the bare type: str, int, float, bool or tuple (of strings)
    kind: type
    #: the values it takes, if they are few
    choices: tuple[str, ...]
    #: MISSING when it has to be given
    default: Any
    option: Option

    @property
    def is_amount(self) -> bool:
        """It is a number of bytes, or of seconds as all with fractions are; it may have a unit: `"2GB"`, `"30s"`."""
        return self.option.is_size or self.kind is float

    @property
    def env_name(self) -> str:
        """The environment variable that sets it.

        >>> next(settings(AgentConfig)).env_name
        'SCALER_ADDRESS'
        """
        return f"SCALER_{self.name.upper()}"


def seconds(help: str, minimum: float, others: tuple[str, ...] = ()) -> Option:
    """What an option says about itself that is a time."""
    return Option(help, minimum, others, LONGEST)


def size(help: str, minimum: int) -> Option:
    """The same of a number of bytes in memory or on a disk."""
    return Option(help, minimum, (), MOST_BYTES, is_size=True)


EventLoop = Annotated[
    Literal["auto", "builtin", "uvloop"],
    Option("event loop to run on; auto is builtin, the faster one", others=("-e", "-el")),
]
HeartbeatInterval = Annotated[
    float, Option("seconds between two heartbeats", 0.01, ("-hi", "--heartbeat-interval-seconds"), LONGEST_LOOK)
]
MaxMessageBytes = Annotated[
    int,
    Option("largest message accepted from a peer, in bytes", minimum=1 << 16, maximum=MOST_MESSAGE_BYTES, is_size=True),
]
KeyFile = Annotated[
    str | None, Option("file with the key pair that lets programs talk to each other; the user's own by default")
]
Validate = Annotated[
    bool, Option("look after each step whether the state adds up, and end if it does not; slow, for finding defects")
]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR"],
    Option("least important kind of line to log", others=("-ll", "--logging-level")),
]
LogPath = Annotated[str, Option("file to append the log to", others=("-lp", "--logging-paths"))]


class Config(Protocol):
    """Any configuration class of this module."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


#: characters of a job's id, at most, and of all capabilities together; the protocol has the same
MAX_JOB, MOST_CAPABILITIES = 200, 10_000

C = TypeVar("C", bound=Config)


@frozen
class SchedulerConfig:
    """How a scheduler runs. Raises `OptionError`, a ValueError, for a bad value."""

    address: Annotated[str, Option("where to listen, as tcp://host:port; port 0 takes a free one")]
    _: KW_ONLY
    protected: Annotated[bool, Option("refuse to be shut down by a client", others=("-p",))] = defaults.PROTECTED
    event_loop: EventLoop = defaults.EVENT_LOOP
    heartbeat_interval: HeartbeatInterval = defaults.HEARTBEAT_INTERVAL
    client_timeout: Annotated[
        float,
        seconds("seconds of silence after which a client counts as gone", 0.05, ("-ct", "--client-timeout-seconds")),
    ] = defaults.CLIENT_TIMEOUT
    agent_timeout: Annotated[
        float,
        seconds(
            "seconds of silence after which a host counts as gone and its tasks run elsewhere",
            0.05,
            ("-wt", "--worker-timeout-seconds"),
        ),
    ] = defaults.AGENT_TIMEOUT
    retries_on_loss: Annotated[
        int,
        Option(
            "how often a task runs again after its worker or host died; with 0 no lost result is computed again",
            minimum=0,
            maximum=MOST_COUNTED,
        ),
    ] = defaults.RETRIES_ON_LOSS
    max_message_bytes: MaxMessageBytes = defaults.MAX_MESSAGE_BYTES
    monitor_address: Annotated[
        str | None,
        Option("where monitors of this machine connect; ipc:///tmp/HOST_PORT_monitor by default", others=("-ma",)),
    ] = None
    journal: Annotated[
        str | None,
        Option("directory for durable jobs, which outlive their clients and this scheduler; without it there are none"),
    ] = None
    results: Annotated[
        str | None,
        Option(
            "directory for large results of durable jobs, which this host, all hosts of the cluster and maybe clients "
            "share; without it they are in the journal"
        ),
    ] = None
    standby_of: Annotated[
        str | None,
        Option(
            "address of another scheduler: this one stands by, and leads when that is gone and more than half of its "
            "hosts want it; clients and hosts are given both addresses, with a comma between"
        ),
    ] = None
    journal_quota: Annotated[
        int | None, size("bytes that durable jobs may take before no more are accepted; by default as many as fit", 1)
    ] = None
    results_quota: Annotated[
        int | None,
        size("bytes that large results may take before no more jobs are accepted; by default as many as fit", 1),
    ] = None
    job_age: Annotated[
        float | None, seconds("seconds after its end when a durable job is deleted; by default somebody has to", 0)
    ] = None
    standalone_store_port: Annotated[
        int,
        Option(
            "port at which large values are fetched from the scheduler's host; 0 takes a free one",
            minimum=0,
            maximum=LAST_PORT,
        ),
    ] = 0
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("accept anybody, without keys and in the clear")] = False
    supervise: Annotated[
        bool, Option("watch over the scheduler from a process of its own, which starts another if it dies")
    ] = False
    validate: Validate = False
    log_level: LogLevel = defaults.LOG_LEVEL
    log_path: LogPath = defaults.LOG_PATH

    def __post_init__(self) -> None:
        check(self)
        if self.standby_of is not None and "," in self.standby_of:
            raise OptionError("standby_of", f"names one scheduler, the other of a pair, not {self.standby_of}")
        for name in ("journal", "results"):
            if getattr(self, name) == "":
                raise OptionError(name, "names no directory: it is empty")
        for name in ("results", "journal_quota", "results_quota", "job_age"):
            if getattr(self, name) is not None and self.journal is None:
                raise OptionError(name, "is for durable jobs: give a journal, too")
        if self.results_quota is not None and self.results is None:
            raise OptionError("results_quota", "is for results in files: give a directory for results, too")
        if self.supervise and self.address.endswith(":0"):
            raise OptionError(
                "supervise", f"needs an address that stays the same: give a port instead of 0 in {self.address}"
            )
        for name in ("client_timeout", "agent_timeout"):
            if getattr(self, name) < 2 * self.heartbeat_interval:
                raise OptionError(
                    name,
                    f"must be at least twice heartbeat_interval ({self.heartbeat_interval:g}), "
                    f"not {getattr(self, name):g}",
                )


@frozen
class AgentConfig:
    """How the agent of a host and its workers run. Raises `OptionError`, a ValueError, for a bad value."""

    address: Annotated[str, Option("the scheduler's address, as tcp://host:port")]
    _: KW_ONLY
    workers: Annotated[
        int | None,
        Option(
            "number of workers; by default one for each core this process may use, no more than its CPU quota comes to",
            1,
            ("-n", "--num-of-workers"),
            MOST_WORKERS,
        ),
    ] = None
    worker_threads: Annotated[
        int | None,
        Option(
            "threads that libraries may use in each worker (BLAS, OpenMP, Numba, Arrow, Polars, ...); "
            "by default the cores divided by the number of workers, or what variables like OMP_NUM_THREADS say",
            minimum=1,
            maximum=MOST_WORKERS,
        ),
    ] = None
    warm_modules: Annotated[
        tuple[str, ...], Option("modules to load once, in a process that workers are forked from, separated by commas")
    ] = ()
    name: Annotated[str | None, Option("what this host is called in logs and monitors; its host name by default")] = (
        None
    )
    capabilities: Annotated[
        tuple[str, ...],
        Option(
            "what tasks may ask for that this host has, separated by commas",
            others=("-pwc", "--per-worker-capabilities"),
        ),
    ] = ()
    memory_limit: Annotated[
        int | None,
        size(
            f"bytes of memory for workers and objects; by default {defaults.MEMORY_PERCENT} % "
            "of what the host has or its container allows",
            1 << 24,
        ),
    ] = None
    worker_memory_limit: Annotated[
        int | None,
        size(
            "bytes of memory that a worker may take before its task is ended, 0 for no limit; memory_limit by default",
            0,
        ),
    ] = None
    max_tasks_per_worker: Annotated[
        int | None,
        Option(
            "tasks that a worker runs at most before a fresh one takes its place; by default it stays",
            minimum=1,
            maximum=MOST_COUNTED,
        ),
    ] = None
    preload: Annotated[
        str | None,
        Option(
            "what each worker calls once before it takes tasks, as module:function or module:function(1, x='y'); "
            "a host on which it fails ends"
        ),
    ] = None
    death_timeout: Annotated[
        float | None,
        seconds(
            "seconds without a scheduler after which this host gives up and ends; by default it waits for one",
            0.1,
            ("-ds", "--death-timeout-seconds"),
        ),
    ] = None
    job: Annotated[str | None, Option("what the batch system calls the job that this host runs in")] = None
    walltime: Annotated[
        float | None,
        seconds(
            "seconds until the batch system ends this host: it gets no task that takes longer, and leaves in time", 0.1
        ),
    ] = None
    drain_grace: Annotated[
        float,
        seconds(
            "seconds it may take to leave in order after SIGTERM or before its walltime is over; 0: it ends at once",
            0.0,
        ),
    ] = defaults.DRAIN_GRACE
    preemption_signal: Annotated[
        Literal["SIGTERM", "SIGUSR2", "SIGHUP", "SIGXCPU"],
        Option("another signal by which the end of this host is announced; SIGTERM always is one"),
    ] = "SIGTERM"
    preemption_url: Annotated[
        str | None,
        Option("where a cloud announces the end of this host: asked every few seconds, it answers 404 until then"),
    ] = None
    spill_directory: Annotated[
        str | None, Option("where objects go that memory has no room for; the directory for temporary files by default")
    ] = None
    store_port: Annotated[
        int,
        Option(
            "port at which others fetch large values from this host; 0 takes a free one", minimum=0, maximum=LAST_PORT
        ),
    ] = 0
    alive_file: Annotated[
        str | None,
        Option(
            "file that is written every few seconds while this host lives: `connected`, or `waiting` for a scheduler"
        ),
    ] = None
    event_loop: EventLoop = defaults.EVENT_LOOP
    heartbeat_interval: HeartbeatInterval = defaults.HEARTBEAT_INTERVAL
    max_message_bytes: MaxMessageBytes = defaults.MAX_MESSAGE_BYTES
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("connect without keys and in the clear")] = False
    validate: Validate = False
    log_level: LogLevel = defaults.LOG_LEVEL
    log_path: LogPath = defaults.LOG_PATH

    def __post_init__(self) -> None:
        check(self)
        if self.preemption_url is not None and not self.preemption_url.startswith(("http://", "https://")):
            raise OptionError("preemption_url", f"must begin with http:// or https://, not {self.preemption_url!r}")
        if sum(map(len, self.capabilities)) > MOST_CAPABILITIES:
            raise OptionError("capabilities", f"must have at most {MOST_CAPABILITIES:,} characters together")
        if self.job is not None and len(self.job) > MAX_JOB:
            raise OptionError("job", f"must have at most {MAX_JOB} characters, not {len(self.job)}")
        if self.preload is not None:
            try:
                CallText.parse(self.preload)
            except ValueError as error:
                raise OptionError("preload", str(error)) from None

    @property
    def worker_count(self) -> int:
        """The number of workers to run: `workers`, or one for each core that this process may keep busy."""
        return self.workers if self.workers is not None else granted_cores()

    @property
    def native_threads(self) -> int:
        """The number of threads for libraries in a worker: `worker_threads`, or its share of the cores, at least 1."""
        if self.worker_threads is not None:
            return self.worker_threads
        cores = granted_cores()
        return max(1, cores // (self.workers or cores))


@frozen
class SymphonyConfig:
    """How tasks run in a service of IBM Spectrum Symphony. Raises `OptionError`, a ValueError, for a bad value."""

    address: Annotated[str, Option("the scheduler's address, as tcp://host:port")]
    service: Annotated[str, Option("the application's name in Symphony, whose service runs the tasks")]
    _: KW_ONLY
    base_concurrency: Annotated[
        int | None,
        Option(
            "tasks that run at the same time at most, besides those that wait for tasks of their own; "
            "one for each core of this host by default",
            minimum=1,
            others=("-n",),
            maximum=MOST_WORKERS,
        ),
    ] = None
    name: Annotated[
        str | None,
        Option("what it is called in logs and monitors; by default host and service", others=("-w", "--worker-name")),
    ] = None
    capabilities: Annotated[
        tuple[str, ...], Option("what tasks may ask for that the service has, separated by commas")
    ] = ()
    user: Annotated[str, Option("who the session belongs to, as Symphony knows them")] = "Guest"
    password: Annotated[str, Option("their password; better said by the environment than as a flag")] = "Guest"
    session_type: Annotated[str, Option("one of the types that the application's profile has")] = (
        "RecoverableAllHistoricalData"
    )
    death_timeout: Annotated[
        float | None,
        seconds(
            "seconds without a scheduler after which it gives up and ends; by default it waits for one",
            0.1,
            ("-ds", "--death-timeout-seconds"),
        ),
    ] = None
    job: Annotated[str | None, Option("what the batch system calls the job that this runs in")] = None
    event_loop: EventLoop = defaults.EVENT_LOOP
    heartbeat_interval: HeartbeatInterval = defaults.HEARTBEAT_INTERVAL
    max_message_bytes: MaxMessageBytes = defaults.MAX_MESSAGE_BYTES
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("connect without keys and in the clear")] = False
    validate: Validate = False
    log_level: LogLevel = defaults.LOG_LEVEL
    log_path: LogPath = defaults.LOG_PATH

    def __post_init__(self) -> None:
        check(self)


@frozen
class TopConfig:
    """How `scaler_top` shows a cluster. Raises `OptionError`, a ValueError, for a bad value."""

    address: Annotated[
        str,
        Option("the monitor address that the scheduler's log names (ipc:///...), or the scheduler's (tcp://host:port)"),
    ]
    _: KW_ONLY
    interval: Annotated[float, Option("seconds between two snapshots", 0.1, ("-i",), LONGEST_LOOK)] = (
        defaults.MONITOR_INTERVAL
    )
    view: Annotated[
        Literal["workers", "agents", "functions", "clients", "objects", "messages"],
        Option("the table to begin with", others=("-v",)),
    ] = "workers"
    filter: Annotated[str, Option("show only rows whose names hold this text", others=("-f",))] = ""
    once: Annotated[
        bool, Option("print one screen, or one line of JSON, and end; a screen also where there is no terminal")
    ] = False
    json: Annotated[bool, Option("print each snapshot as a line of JSON")] = False
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("connect without keys and in the clear")] = False

    def __post_init__(self) -> None:
        check(self)


Monitor = Annotated[
    str, Option("what to watch: the monitor address that the scheduler's log names, or the scheduler's own address")
]
Interval = Annotated[float, Option("seconds between two looks at the cluster", minimum=0.1, maximum=LONGEST_LOOK)]
WatchInsecurely = Annotated[
    bool,
    Option("connect without keys if the cluster has none, and listen at any address without TLS, all in the clear"),
]
TokenFile = Annotated[
    str | None,
    Option("file with the token that opens it, made if it is not there; by default a new token at each start"),
]


@frozen
class DashboardConfig:
    """How the dashboard runs. Raises `OptionError`, a ValueError, for a bad value."""

    monitor: Monitor
    _: KW_ONLY
    port: Annotated[int, Option("port of the web pages; 0 takes a free one", 0, ("-p",), LAST_PORT)] = (
        defaults.DASHBOARD_PORT
    )
    host: Annotated[str, Option("address to listen at; another than loopback needs --certificate")] = "127.0.0.1"
    prefix: Annotated[str, Option("what stands before all paths, behind a proxy that leaves it there")] = ""
    allow_origin: Annotated[
        tuple[str, ...], Option("origins of proxies in front of it, as https://host[:port], separated by commas")
    ] = ()
    token_file: TokenFile = None
    certificate: Annotated[str | None, Option("file with the certificate chain for TLS, in PEM")] = None
    certificate_key: Annotated[
        str | None, Option("file with the private key of the certificate, in PEM", others=("--key",))
    ] = None
    interval: Interval = defaults.MONITOR_INTERVAL
    wait: Annotated[bool, Option("begin without a scheduler as well, and wait for one")] = False
    key_file: KeyFile = None
    insecure: WatchInsecurely = False

    def __post_init__(self) -> None:
        check(self)
        if not re.fullmatch(r"[A-Za-z0-9._~@%/-]*", self.prefix):
            raise OptionError("prefix", f"must be a path of letters, digits and . _ ~ @ % / -, not {self.prefix!r}")
        _check_exposure(self)


@frozen
class MetricsConfig:
    """How the metrics of a cluster are shown. Raises `OptionError`, a ValueError, for a bad value."""

    monitor: Monitor
    _: KW_ONLY
    port: Annotated[
        int | None,
        Option(
            "port to serve /metrics at; 0 takes a free one, and without it they are printed once", 0, ("-p",), LAST_PORT
        ),
    ] = None
    host: Annotated[str, Option("address to listen at; another than loopback needs --certificate")] = "127.0.0.1"
    token_file: TokenFile = None
    certificate: Annotated[str | None, Option("file with the certificate chain for TLS, in PEM")] = None
    certificate_key: Annotated[
        str | None, Option("file with the private key of the certificate, in PEM", others=("--key",))
    ] = None
    interval: Interval = 5.0
    wait: Annotated[bool, Option("with --port: begin without a scheduler as well, and wait for one")] = False
    key_file: KeyFile = None
    insecure: WatchInsecurely = False

    def __post_init__(self) -> None:
        check(self)
        _check_exposure(self)


@frozen
class AskingConfig:
    """How a command reaches the scheduler that it asks or tells something. Raises `OptionError` for a bad value."""

    address: Annotated[str, Option("the scheduler's, or the monitor address that its log names")]
    _: KW_ONLY
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("connect without keys and in the clear")] = False

    def __post_init__(self) -> None:
        check(self)


@frozen
class ProvisionConfig:
    """How hosts are provided for a cluster. Raises `OptionError`, a ValueError, for a bad value."""

    address: Annotated[str, Option("the scheduler's address as hosts reach it, as tcp://host:port")]
    provider: Annotated[str, Option("where hosts come from, like local or slurm")]
    _: KW_ONLY
    tag: Annotated[
        str,
        Option("what the names of this cluster's jobs begin with: by it they are found again, so no other may have it"),
    ] = "scaler"
    minimum: Annotated[int, Option("hosts that are there whatever there is to do", 0, (), MOST_HOSTS)] = (
        defaults.MINIMUM_HOSTS
    )
    maximum: Annotated[int, Option("hosts that are there or asked for, at most", 0, (), MOST_HOSTS)] = (
        defaults.MAXIMUM_HOSTS
    )
    workers: Annotated[
        int, Option("workers of each host, which is asked for as many processors", 1, (), MOST_WORKERS)
    ] = 1
    walltime: Annotated[float | None, seconds("seconds after which the batch system ends a host", 1.0)] = None
    capabilities: Annotated[tuple[str, ...], Option("what tasks may ask for that these hosts have")] = ()
    exclusive: Annotated[bool, Option("only for tasks that ask for one of the capabilities")] = False
    drain_time: Annotated[float, seconds("seconds in which a queue should be worked off", 0.1)] = defaults.DRAIN_TIME
    guess: Annotated[
        float, seconds("seconds that a task counts as while the duration of its function is not known", 0.001)
    ] = defaults.DURATION_GUESS
    idle_time: Annotated[float, seconds("seconds without anything to do after which a host goes", 0.1)] = (
        defaults.HOST_IDLE_TIME
    )
    max_pending: Annotated[int, Option("hosts that are asked for and not there, at most", 1, (), MOST_HOSTS)] = (
        defaults.MAX_PENDING_HOSTS
    )
    pending_timeout: Annotated[float, seconds("seconds after which a job that has not begun is cancelled", 1.0)] = (
        defaults.PENDING_TIMEOUT
    )
    start_timeout: Annotated[
        float, seconds("seconds after which a job that runs is cancelled, if its host is not in the cluster", 1.0)
    ] = defaults.START_TIMEOUT
    lead: Annotated[
        float, seconds("seconds before the end of a host's walltime at which another is asked for in its place", 0.0)
    ] = defaults.WALLTIME_LEAD
    settle_time: Annotated[
        float, seconds("seconds after a failed request in which its jobs may turn up all the same", 0.0)
    ] = defaults.SETTLE_TIME
    orphan_timeout: Annotated[
        float, seconds("seconds without a scheduler after which hosts, and who provides them, end", 1.0)
    ] = defaults.ORPHAN_TIMEOUT
    interval: Interval = defaults.PROVISION_INTERVAL
    list_interval: Annotated[
        float, Option("seconds between two questions for the state of the jobs", 0.1, (), LONGEST_LOOK)
    ] = defaults.LIST_INTERVAL
    command: Annotated[
        str | None, Option("the program scaler_cluster as hosts find it; by default where it is on this one")
    ] = None
    agent_options: Annotated[tuple[str, ...], Option("further options of scaler_cluster")] = ()
    keep: Annotated[bool, Option("leave the jobs as they are when this ends")] = False
    key_file: KeyFile = None
    insecure: Annotated[bool, Option("connect without keys and in the clear")] = False
    log_level: LogLevel = defaults.LOG_LEVEL
    log_path: LogPath = defaults.LOG_PATH

    def __post_init__(self) -> None:
        check(self)
        if self.minimum > self.maximum:
            raise OptionError("minimum", f"must not be more than maximum ({self.maximum}), not {self.minimum}")
        for each in self.address.split(","):
            host = each.rpartition(":")[0].partition("://")[2]
            if host in ("0.0.0.0", "*", "[::]"):
                raise OptionError(
                    "address",
                    f"is what hosts connect to, and {each.strip()} says only that a scheduler listens everywhere: "
                    "write the name or address of the scheduler's host, as others reach it",
                )
        if self.exclusive and not self.capabilities:
            raise OptionError("exclusive", "is for hosts with capabilities, and none are named: no task would get one")
        check_tag(self.tag)
        if self.walltime is not None and self.lead > self.walltime / 2:
            object.__setattr__(self, "lead", self.walltime / 2)


def check_tag(tag: str) -> None:
    """Raises `OptionError` for what can't be in the names of jobs and hosts everywhere."""
    if not re.fullmatch(r"[a-z0-9-]{1,40}", tag):
        raise OptionError("tag", f"must be 1 to 40 of the characters a-z, 0-9 and -, not {tag!r}")


def is_loopback(host: str) -> bool:
    """Nobody on another host reaches this address.

    >>> is_loopback("127.0.0.3"), is_loopback("localhost"), is_loopback("localhost.evil.com"), is_loopback("0.0.0.0")
    (True, True, False, False)
    """
    parts = host.split(".")
    is_v4 = len(parts) == 4 and all(part.isascii() and part.isdigit() for part in parts) and parts[0] == "127"
    return host in ("localhost", "::1") or is_v4


def _check_exposure(config: DashboardConfig | MetricsConfig) -> None:
    """Raises `OptionError` when what is shown would pass a network in the clear, and that was not asked for."""
    if config.certificate_key is not None and config.certificate is None:
        raise OptionError("certificate_key", "belongs to a certificate: name it with --certificate")
    if config.certificate is None and not config.insecure and not is_loopback(config.host):
        raise OptionError(
            "host", f"{config.host} {_reach(config.host)}: give --certificate and --key for TLS, or say --insecure"
        )


def _reach(host: str) -> str:
    """What is known of an address that is not loopback; of a name the resolver is asked."""
    import socket

    try:
        socket.getaddrinfo(host, None)
    except UnicodeError:
        return "can be no host's name, and what is no loopback address is for others"
    except OSError as error:
        return f"can't be resolved ({error.strerror or error}), and what is no loopback address is for others"
    return "is reached from other hosts"


def plain_values(config: Config) -> dict[str, Any]:
    """The options of a configuration as values that JSON knows, by name.

    >>> plain_values(AgentConfig("tcp://head:2345", capabilities=("gpu",)))["capabilities"]
    ['gpu']
    """
    values = {setting.name: getattr(config, setting.name) for setting in settings(type(config))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def from_plain_values(config: type[C], values: dict[str, Any]) -> C:
    """The configuration that `plain_values` was made from. Raises `OptionError`."""
    return config(**_fitting(values))


def from_checked_values(config: type[C], values: dict[str, Any]) -> C:
    """The same of all the values of a configuration that the other process has checked: in a hundredth of the time.

    >>> agent = AgentConfig("tcp://head:2345", capabilities=("gpu",))
    >>> from_checked_values(AgentConfig, plain_values(agent)) == agent
    True
    """
    made = object.__new__(config)
    vars(made).update(_fitting(values))
    return made


def _fitting(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def settings(config: type[Config]) -> Iterator[Setting]:
    """The options of a configuration class, in the order of its fields."""
    annotations = get_type_hints(config, include_extras=True)
    for field in fields(config):
        bare, option = get_args(annotations[field.name])
        if get_origin(bare) in (Union, types.UnionType):
            bare = next(part for part in get_args(bare) if part is not type(None))
        choices = get_args(bare) if get_origin(bare) is Literal else ()
        kind = str if choices else get_origin(bare) or bare
        yield Setting(field.name, kind, choices, field.default, option)


def check(config: Config) -> None:
    """Raises `OptionError` for the first value that is of the wrong type, not a choice, too small or too large.

    Bytes and seconds that were given with their units become numbers.
    """
    for setting in settings(type(config)):
        value = getattr(config, setting.name)
        if value is None and setting.default is None:
            continue
        if setting.is_amount and isinstance(value, str | float):
            value = _number(setting, value)
            object.__setattr__(config, setting.name, value)
        expected = (int, float) if setting.kind is float else setting.kind
        if not isinstance(value, expected) or (isinstance(value, bool) and setting.kind is not bool):
            raise OptionError(setting.name, f"must be {kind_of(setting.kind, value)}, not {value!r}")
        if isinstance(value, tuple) and not all(isinstance(each, str) for each in value):
            raise OptionError(setting.name, f"must be a list of texts, not {list(value)!r}")
        if setting.choices and value not in setting.choices:
            raise OptionError(setting.name, f"must be one of {', '.join(setting.choices)}, not {value!r}")
        if isinstance(value, int | float):
            option = setting.option
            check_number(setting.name, value, option.minimum, option.maximum, option.is_size)
        if setting.default is MISSING and not value:
            raise OptionError(setting.name, "must not be empty")


def _number(setting: Setting, value: str | float) -> float:
    """What is meant by a size or a time. Raises `OptionError`.

    >>> memory = next(setting for setting in settings(AgentConfig) if setting.name == "memory_limit")
    >>> _number(memory, "2GB"), _number(memory, 4e9)
    (2000000000, 4000000000)
    """
    is_size = setting.option.is_size
    if isinstance(value, float) and not is_size:
        return value
    from scaler.common.amounts import bytes_of, seconds_of  # here, as most programs give numbers

    try:
        return bytes_of(str(value)) if is_size else seconds_of(str(value))
    except (ValueError, OverflowError):
        what = "a number of bytes, like 2GB or 512MiB" if is_size else "a number of seconds, or a time like 30s or 5min"
        raise OptionError(setting.name, f"must be {what}, not {value!r}") from None


def kind_of(kind: type, value: object) -> str:
    """What kind of value is meant: of a list an example, with the words that were given as one text.

    >>> kind_of(int, "a"), kind_of(tuple, "--slots 5")
    ('of type int', 'a list of texts, like ["--slots", "5"]')
    """
    if kind not in (tuple, list):
        return f"of type {kind.__name__}"
    words = value.split() if isinstance(value, str) else []
    return f"a list of texts, like {json.dumps(words or ['one', 'another'], ensure_ascii=False)}"


def check_number(name: str, value: float, minimum: float | None, maximum: float | None, is_size: bool = False) -> None:
    """Raises `OptionError` for a value that is too small or too large; None for no limit."""
    if minimum is not None and not value >= minimum:
        raise OptionError(name, f"must be at least {_amount(minimum, is_size)}, not {_amount(value, is_size)}")
    if maximum is not None and not value <= maximum:
        raise OptionError(name, f"must be at most {_amount(maximum, is_size)}, not {_amount(value, is_size)}")


#: from here on the digits of a number are in groups
_GROUPED = 100_000
_UNITS = {1024: ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), 1000: ("kB", "MB", "GB", "TB", "PB", "EB")}


def _amount(number: float, is_size: bool) -> str:
    """A number as people read it.

    >>> _amount(1 << 24, True), _amount(5 * 10**12, True), _amount(1, True), _amount(100_001, True)
    ('16 MiB', '5 TB', '1 byte', '100,001 bytes')
    >>> _amount(65535, False), _amount(1e9, False)
    ('65535', '1,000,000,000')
    """
    if not isinstance(number, int) and (number % 1 or abs(number) >= 1e15):
        return f"{number:g}"
    whole, unit = int(number), "byte" if number == 1 else "bytes"
    if is_size and whole:
        whole, unit = min((_in_units(whole, unit, factor) for factor in _UNITS), key=lambda said: abs(said[0]))
    text = f"{whole:,}" if abs(whole) >= _GROUPED else f"{whole}"
    return f"{text} {unit}" if is_size else text


def _in_units(whole: int, unit: str, factor: int) -> tuple[int, str]:
    """A number of bytes in the largest unit of which it is a whole number."""
    for larger in _UNITS[factor]:
        if whole % factor:
            break
        whole, unit = whole // factor, larger
    return whole, unit
