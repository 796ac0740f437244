"""What the core is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.provisioning.provider import Job


# ---- events ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Agent:
    """An agent that is connected to the scheduler."""

    #: the job that it runs in; empty for none
    job: str
    workers: int
    #: rows that it has
    rows: int
    #: seconds since it has had none; 0 while it has some
    idle: float = 0.0
    is_draining: bool = False
    #: seconds that its batch system leaves it; None for no end
    left: float | None = None
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asked:
    """What there is to do that asks for the same capabilities."""

    capabilities: frozenset[str]
    #: rows that no agent has
    queued: int
    #: seconds of those whose duration is known
    work: float
    #: how many of them have an unknown one
    unknown: int
    #: rows that agents have
    at_agents: int
    #: how many of those in `work` have a duration that was measured of a few rows only
    hardly_known: int = 0


@dataclass(frozen=True)
class Observed:
    """The cluster as of now."""

    agents: tuple[Agent, ...]
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Unseen:
    """There is no scheduler: what is known of the cluster is old."""


@dataclass(frozen=True)
class Listed:
    """What the provider's system knows of this cluster's jobs, asked for at `began`."""

    jobs: tuple[Job, ...]
    began: float


@dataclass(frozen=True)
class ListFailed:
    """The provider's system did not say."""

    reason: str


@dataclass(frozen=True)
class Submitted:
    """A request was taken: these are its jobs."""

    request: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class SubmitFailed:
    """A request was refused, or nobody knows."""

    request: int
    reason: str
    #: it will be refused again, unless somebody changes something
    is_final: bool = False


@dataclass(frozen=True)
class Adapt:
    """Other limits from now on: so many hosts at least and at most; the same number twice is a fixed number."""

    minimum: int
    maximum: int


@dataclass(frozen=True)
class End:
    """Nothing more is wanted: all jobs are to go."""


Event = Observed | Unseen | Listed | ListFailed | Submitted | SubmitFailed | Adapt | End


# ---- effects ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Submit:
    """Ask for hosts. Answered by `Submitted` or `SubmitFailed`."""

    request: int
    n: int


@dataclass(frozen=True)
class Cancel:
    """End these jobs. That it worked is seen in lists."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Drain:
    """Have the agents of these jobs go in order. That it worked is seen of the cluster."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Log:
    """A line of the log."""

    level: str
    text: str


Effect = Submit | Cancel | Drain | Log


@dataclass(frozen=True)
class Status:
    """How things stand."""

    desired: int
    #: asked for and not there
    pending: int
    #: their agents are connected
    running: int
    #: about to go
    draining: int
    #: seconds that the oldest of the pending has waited
    waited: float = 0.0
    #: the provider's own words: why hosts wait, why some failed
    lines: tuple[str, ...] = ()
