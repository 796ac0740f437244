"""What the cores of scheduler and agent have in common: an event and three effects that concern their shells alone."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tick:
    """An event: the time asked for by `WakeAt` has come."""


@dataclass(slots=True)
class WakeAt:
    """Hand in a `Tick` at this time; replaces an earlier one."""

    when: float


@dataclass(slots=True)
class Log:
    """A line for the log."""

    level: str
    text: str


@dataclass(slots=True)
class Stop:
    """End this process: the cluster is shut down."""
