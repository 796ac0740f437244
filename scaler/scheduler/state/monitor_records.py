"""Who watches the cluster at the scheduler, and what agents were asked to tell because of that."""

from __future__ import annotations

from dataclasses import field

from scaler.common.records import entity, record


@entity
class MonitorRecord:
    """A monitor: it looks, and has no part in anything."""

    number: int
    name: str
    #: time of its last message, seconds
    seen: float
    #: seconds between two snapshots, at least; 0: it wants none
    interval: float = 0.0
    #: number of the last snapshot that it was sent; 0 before the first
    sent: int = 0
    #: it has taken that one: another may be sent
    is_ready: bool = False
    #: when the next one may be sent, seconds
    due: float = 0.0


@record
class Asked:
    """A question that an agent was asked for a monitor."""

    monitor: int
    agent: int
    #: of the monitor's question
    number: int


@record
class Watching:
    """What follows from that somebody watches."""

    #: milliseconds between two reports that agents were asked for; 0: nobody watches
    interval: int = 0
    #: snapshots that were made
    made: int = 0
    #: numbers of the agents that were there when somebody began to watch, or to watch more closely, and have not
    #: reported since: the first snapshot waits for them
    awaited: set[int] = field(default_factory=set)
    #: but not for longer than this, seconds
    waits_until: float = 0.0
    #: questions that agents have not answered, by the numbers that these were given
    asked: dict[int, Asked] = field(default_factory=dict)
    #: the last of these numbers
    asked_last: int = 0
