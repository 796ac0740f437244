"""What a provider of hosts is: four functions, and the records that they speak in.

A provider starts agents somewhere (by ssh, by a batch system, as processes of this machine) and knows nothing of tasks.
Each host that is asked for is a **job**. All jobs of a cluster carry its *tag* in their names, and the number of the
request that they belong to: `list` finds them again by that, so a provisioner that was killed goes on where it was, and
none is orphaned or asked for twice.

Functions may block for as long as the system behind them takes; they are called by one thread at a time, of a process
in which nothing else waits for them. What fails raises `ProviderError` with one line in the system's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from scaler.errors import ScalerError


class ProviderError(ScalerError):
    """A system that hosts come from refused or did not answer; the text is its own, and what to do about it."""


class WrongSetup(ProviderError):
    """A system that cannot be used from here as this host and the options are: asking again later does not help."""


class WrongRequest(ProviderError):
    """A system that refuses what hosts are asked for with, and will again: an option has to be another one."""


class JobState(StrEnum):
    """What a provider says of a job."""

    #: asked for, not begun
    PENDING = "pending"
    #: its command runs, as far as the system knows
    RUNNING = "running"
    #: over; `Job.reason` says why if it was not in order
    ENDED = "ended"


@dataclass(frozen=True)
class Job:
    """One host that was asked for, as the provider's system knows it."""

    #: what the system calls it; what `cancel` takes
    id: str
    #: its name, which begins with the tag of its cluster: `TAG-REQUEST` (see `job_name`)
    name: str
    state: JobState
    #: where it runs; empty while that is not known
    host: str = ""
    #: the system's own words: why it waits, or why it ended
    reason: str = ""
    #: the provider has logged them itself
    is_logged: bool = False


@dataclass(frozen=True)
class HostTemplate:
    """What a host is asked for with."""

    #: names the cluster; `[a-z0-9-]`, at most 40 characters, part of each job's name
    tag: str
    #: counts the requests of this cluster; the same number again means the same request
    request: int
    #: the agent's command line without the option `--job`, which the provider adds: `scaler_cluster ADDRESS ...`
    command: tuple[str, ...]
    #: seconds after which the system ends the job; None for no limit
    walltime: float | None = None
    #: what the host has to have, by name: "gpu"
    capabilities: tuple[str, ...] = ()
    #: variables that the agent needs
    environment: Mapping[str, str] = field(default_factory=dict)
    #: of each host: as many processors are asked for
    workers: int = 1

    @property
    def job_name(self) -> str:
        """The name that each job of this request gets.

        >>> HostTemplate("work-3f2a", 7, ("scaler_cluster", "tcp://head:2345")).job_name
        'work-3f2a-7'
        """
        return f"{self.tag}-{self.request}"


#: that the number of a request has at most
_DIGITS = 18


def request_of(name: str, tag: str) -> int | None:
    """The number of the request that a job of this name belongs to; None if it is of another cluster.

    >>> request_of("work-3f2a-7", "work-3f2a"), request_of("work-3f2a-7", "work"), request_of("w-" + 9999 * "9", "w")
    (7, None, None)
    """
    mine, _, number = name.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    return int(number) if mine == tag and is_number else None


class Provider(Protocol):
    """Where hosts come from. See the four functions; nothing else of a provider is used.

    One that has `preview(n, template) -> str` as well says by it what it would run: `scaler provision --print`; one
    that has `close()` is told by it when its process ends in order.
    """

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """Ask for `n` hosts as one request; returns the ids of their jobs. Raises `ProviderError` if none was taken,
        `WrongRequest` if none will be: then the next request is made after a long pause.

        Each agent is started with `--job ID` (a variable of the batch system that holds the id will do).
        """
        ...

    def list(self, tag: str) -> list[Job]:
        """The jobs of a cluster that have not ended, and those that ended a while ago if the system knows them."""
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; ids of jobs that have ended already are no error."""
        ...

    def describe(self) -> str:
        """One line for people: "Slurm 22.05.8, partition debug"; raises `ProviderError` if the system is not there.

        `scaler_provision` waits for one that is not there, and ends with any other error and with `WrongSetup`.
        """
        ...
