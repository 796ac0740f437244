"""What an agent does at the end of each step, after it has taken what happened: a list of phases, run in order.

A phase says when it has something to do, does it, and may say when it has to look again though nothing happens. Events
and earlier phases leave work for later ones in the state's tables and follow-ups; no phase leaves work for an earlier
one but by asking to be woken.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from scaler.agent.core import (
    bringing,
    dispatching,
    heartbeat,
    leaving,
    mending,
    spilling,
    staging,
    supervising,
    worker_lifecycle,
)
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState


class Phase(NamedTuple):
    """One thing that is done at the end of a step, if it is due."""

    name: str
    #: None: it is due in every step. Most are not due in most steps: asking for a field calls no function of Python's
    is_due: Callable[[HostState], object] | None
    run: Callable[[HostState, Outgoing], None]


def _make_room(state: HostState, out: Outgoing) -> None:
    if spilling.make_room(state, out):
        supervising.recall_crowded(state, out)


PHASES = (
    Phase("mend what is in disorder", attrgetter("follow_ups.disorder"), mending.mend),
    Phase("start workers", attrgetter("workers.start_at"), worker_lifecycle.start_due),
    Phase("keep the number of workers", attrgetter("follow_ups.workers"), worker_lifecycle.settle),
    Phase("try objects again", attrgetter("objects.backing_off"), bringing.retry),
    Phase("make room", lambda state: state.objects.records or state.memory.is_full, _make_room),
    Phase(
        "stage waiting rows",
        lambda state: state.waiting.rows or state.follow_ups.arrived or state.follow_ups.lost,
        staging.settle,
    ),
    Phase(
        "leave",
        lambda state: state.departure.is_under_way or state.now >= state.departure.drain_at,
        leaving.attend,
    ),
    Phase(
        "hand out rows",
        lambda state: (
            (state.ready.general.rows or state.ready.local or state.ready.wide.rows) and not state.workers.ending
        ),
        dispatching.feed,
    ),
    Phase("tell the scheduler", heartbeat.is_due, heartbeat.beat),
    Phase("attend to workers", None, supervising.attend),
)


def next_wake(state: HostState) -> float:
    """When phases have to run though nothing happens, seconds; infinite for never."""
    wake = state.attend_at
    if state.pulse.next < wake:
        wake = state.pulse.next
    if state.departure.until < wake or state.departure.drain_at < wake:
        wake = min(wake, leaving.next_wake(state))
    if state.workers.start_at:
        wake = min(wake, worker_lifecycle.next_start(state))
    if state.objects.records:
        wake = min(wake, bringing.next_retry(state), spilling.next_look(state))
    return wake
