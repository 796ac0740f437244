"""The figures that decide how many hosts there are. All times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from scaler import defaults


@dataclass(frozen=True)
class Limits:
    """What one kind of host is provided by."""

    #: hosts that are there whatever there is to do, and at most
    minimum: int = defaults.MINIMUM_HOSTS
    maximum: int = defaults.MAXIMUM_HOSTS
    #: workers of each host
    workers: int = 1
    #: what these hosts can do
    capabilities: frozenset[str] = frozenset()
    #: they are for tasks alone that ask for one of `capabilities`
    exclusive: bool = False
    #: in which a queue should be worked off
    drain_time: float = defaults.DRAIN_TIME
    #: what a task counts as whose duration is not known
    guess: float = defaults.DURATION_GUESS
    #: for which a host has had nothing to do before it goes; fewer hosts are wanted after as long
    idle_time: float = defaults.HOST_IDLE_TIME
    #: hosts that are asked for and not there, at most
    max_pending: int = defaults.MAX_PENDING_HOSTS
    #: after which a job that has not begun is given up
    pending_timeout: float = defaults.PENDING_TIMEOUT
    #: after which a job that has begun, and whose agent is not there, is given up
    start_timeout: float = defaults.START_TIMEOUT
    #: before the end of a host's walltime at which another is asked for in its place
    lead: float = defaults.WALLTIME_LEAD
    #: for which a request that has failed may have been taken all the same, so that nothing else is asked for
    settle_time: float = defaults.SETTLE_TIME

    #: seconds of waiting after the first failure of a row of them; each further one doubles it, up to the other
    BACK_OFF, LONGEST_BACK_OFF = 1.0, 60.0
    #: seconds after which what was refused for good is asked for again: somebody may have changed the system
    WRONG_BACK_OFF = 900.0
    #: seconds after its end in which a job may be in lists that are late
    LATE = 5.0
    #: a job that is in none of so many lists, over so many seconds, is over
    MISSED_LISTS, MISSED_SECONDS = 3, 10.0
    #: seconds after which something that has had no effect is said again
    SAY_AGAIN = 5.0
