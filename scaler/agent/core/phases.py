"""What an agent does at the end of each step, after it has taken what happened: a list of phases, run in order.

A phase says when it has something to do, does it, and may say when it has to look again though nothing happens. Events
and earlier phases leave work for later ones in the state's tables and follow-ups; no phase leaves work for an earlier
one but by asking to be woken.

Most phases have nothing to do in most steps: what they look at is said as fields, so that one look is enough for many.
A phase is run if one of its fields has something, or its time has come.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from scaler.agent.core import (
    bringing,
    dispatching,
    heartbeat,
    leaving,
    preloads,
    repairing,
    spilling,
    staging,
    supervising,
    worker_lifecycle,
    yielding,
)
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState


class Phase(NamedTuple):
    """One thing that is done at the end of a step, if it is due."""

    name: str
    #: fields of the state: it may have something to do if there is something in one of them
    fields: tuple[str, ...]
    run: Callable[[HostState, Outgoing], None]
    #: the field that says when it has something to do in any case, seconds; "" if there is no such time
    time: str = ""


def _make_room(state: HostState, out: Outgoing) -> None:
    if spilling.make_room(state, out):
        supervising.recall_crowded(state, out)


def _hand_out(state: HostState, out: Outgoing) -> None:
    if state.workers.ending:
        return
    dispatching.feed(state, out)
    while state.follow_ups.arrived:  # rows that were about to go need what is on disk, and can read it there
        staging.settle(state, out)
        dispatching.feed(state, out)


def _replace_worn(state: HostState, out: Outgoing) -> None:
    """Workers were worn out as rows were handed out; those that waited for one of them may go to others now."""
    while state.follow_ups.workers:  # each turn wears out workers that were not
        worker_lifecycle.settle(state, out)
        if _is_ready(state, state.now):
            _hand_out(state, out)


#: where rows are that could be handed out
_READY = "ready.general.rows", "ready.local", "ready.wide.rows"
PHASES = (
    Phase("repair what is in disorder", ("follow_ups.disorder",), repairing.repair),
    Phase("start workers", ("workers.start_at",), worker_lifecycle.start_due),
    Phase("keep the number of workers", ("follow_ups.workers",), worker_lifecycle.settle),
    Phase("try objects again", ("objects.backing_off",), bringing.retry),
    Phase("make room", ("objects.records", "memory.is_full"), _make_room),
    Phase("stage waiting rows", ("waiting.rows", "follow_ups.arrived", "follow_ups.lost"), staging.settle),
    Phase("refuse rows", ("workers.is_unfit",), preloads.attend),
    Phase("leave", ("departure.reason",), leaving.attend, "departure.drain_at"),
    Phase("hand out rows", _READY, _hand_out),
    Phase("replace worn workers", ("follow_ups.workers",), _replace_worn),
    Phase("have trees of tasks yield", ("workers.nesting",), yielding.attend),
    Phase("tell the scheduler", ("memory.is_full", "pulse.said_full"), heartbeat.attend, "pulse.next"),
    Phase("attend to workers", ("workers",), supervising.attend),  # in every step
)
IsDue = Callable[[HostState, float], Any]


def _due(phases: tuple[Phase, ...]) -> IsDue:
    """What tells whether one of these is due at a time: their fields and times in one expression.

    It is made as source: code reads so many fields in a quarter of the time that an `attrgetter` takes.
    """
    looks = [f"state.{name}" for phase in phases for name in phase.fields]
    looks += [f"now >= state.{phase.time}" for phase in phases if phase.time]
    made: IsDue = eval(f"lambda state, now: {' or '.join(dict.fromkeys(looks))}")
    return made


_ALL = tuple((_due((phase,)), phase.run) for phase in PHASES)
#: in many steps none is due but the last, and in most none of those before rows are handed out: one look tells
_SELDOM = next(i for i, phase in enumerate(PHASES) if phase.run is _hand_out)
_LAST = _ALL[_SELDOM:]
_is_seldom_due, _is_ready = _due(PHASES[:_SELDOM]), _ALL[_SELDOM][0]
_is_any_due = _due((*PHASES[_SELDOM:-1], *PHASES[:_SELDOM]))


def run(state: HostState, out: Outgoing) -> None:
    """Run those that are due."""
    now = state.now
    if not _is_any_due(state, now):
        supervising.attend(state, out)
        return
    for is_due, act in _ALL if _is_seldom_due(state, now) else _LAST:
        if is_due(state, now):
            act(state, out)


def next_wake(state: HostState) -> float:
    """When phases have to run though nothing happens, seconds; infinite for never."""
    wake = state.attend_at
    if state.pulse.next < wake:
        wake = state.pulse.next
    if state.departure.until < wake or state.departure.drain_at < wake:
        wake = min(wake, leaving.next_wake(state))
    if state.workers.nesting:
        wake = min(wake, state.workers.yield_at)
    if state.workers.start_at:
        wake = min(wake, worker_lifecycle.next_start(state))
    if state.objects.records:
        wake = min(wake, bringing.next_retry(state), spilling.next_look(state))
    return wake
