"""What the cores of scheduler and agent have in common: an event and three effects that concern their shells alone."""

from scaler.common.records import record


@record
class Tick:
    """An event: the time asked for by `WakeAt` has come."""


@record
class WakeAt:
    """Hand in a `Tick` at this time; replaces an earlier one."""

    when: float


@record
class Log:
    """A line for the log."""

    level: str
    text: str


@record
class Stop:
    """End this process: the cluster is shut down."""
