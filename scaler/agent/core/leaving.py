"""This host is about to go: nothing new begins, what has not begun goes back, what only it has waits for others.

It goes because somebody told the scheduler, because its end was announced (a signal), or because its walltime is nearly
over. The scheduler says when nothing is left to do. Whoever was told by others than the scheduler ends at the latest
when its time is over, with what runs: such losses are no strike against rows, since the scheduler knew.

With its scheduler gone it waits for the next one, which has to hear of all that is here; with nothing that anybody
may want (`may_be_missed`) it need not. Whoever knows whether there is a connection decides that. A scheduler that ends
in order says so: then the whole cluster ends, most likely, and it waits for a moment only.

A task that waits for other rows may wait for such as no other agent can run: while there is one, as many rows are kept
as could run.
"""

from __future__ import annotations

import math

from scaler.agent.core import heartbeat, staging, worker_commands
from scaler.agent.core.events import Leave, Limited, Stop
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.protocol.codes import Leaving, Wish
from scaler.protocol.messages import BalanceResponse, Drain

WORDS = {
    Leaving.TOLD: "somebody told the scheduler",
    Leaving.ANNOUNCED: "its end was announced",
    Leaving.WALLTIME: "its walltime is nearly over",
}


def take_notice(state: HostState, out: Outgoing, event: Leave) -> None:
    """The end of this host was announced."""
    _begin(state, out, Leaving.ANNOUNCED, state.now + event.grace)


def take_drain(state: HostState, out: Outgoing, message: Drain) -> None:
    """The scheduler says what somebody wants, or that nothing is left to do, or that it ends."""
    departure = state.departure
    if message.wish == Wish.DRAIN:
        _begin(state, out, Leaving.TOLD, math.inf)
    elif message.wish == Wish.STAY:
        if departure.reason is Leaving.TOLD:
            departure.reason = Leaving.NOT
            out.log("INFO", "this host stays")
            state.pulse.hurry(state.now)
    elif message.wish == Wish.FAREWELL:
        departure.deserted = state.now
        departure.reckon()
    elif departure.reason is not Leaving.NOT:
        out.log("INFO", "this host has nothing left to do, and ends")
        out.add(Stop())


def _begin(state: HostState, out: Outgoing, reason: Leaving, until: float) -> None:
    departure = state.departure
    was = departure.reason
    departure.granted = min(departure.granted, until)
    departure.reckon()
    if was is not Leaving.NOT and reason is Leaving.TOLD:
        return
    departure.reason = reason
    if state.pulse.interval is not None:
        heartbeat.beat(state, out)  # at once: what is said of workers that end with this host comes behind it
    if was is Leaving.NOT:
        limit = "" if departure.until == math.inf else f", in {departure.until - state.now:.0f} s at the latest"
        out.log(
            "INFO",
            f"this host drains, {WORDS[reason]}: {state.running} rows are with its workers, {state.queued} go back; it "
            f"ends when others have what it has{limit}",
        )


# ---- while it goes ---------------------------------------------------------------------------------------------------
def attend(state: HostState, out: Outgoing) -> None:
    """Give back what has not begun, and end when the time is over."""
    departure = state.departure
    if state.now >= departure.drain_at and departure.reason in (Leaving.NOT, Leaving.TOLD):
        _begin(state, out, Leaving.WALLTIME, departure.ends)
    if departure.reason is Leaving.NOT:
        return
    if state.now >= departure.until:
        if not departure.is_over:
            departure.is_over = True
            level = "WARNING" if state.running or state.queued else "INFO"
            why = "the time to drain is over" if state.now >= departure.granted else "its scheduler has ended, too"
            left = f"{state.running} rows that run, {state.queued} that wait, and {len(state.objects.index)} values"
            out.log(level, f"{why}: this host ends, with {left}")
            out.add(Stop())
        return
    blocked = 0
    for worker in state.workers.records.values():
        if worker.blocked:
            blocked += state.workers.slots_of(worker)
        elif worker.is_crowded and worker.kill_reason is None:
            worker_commands.recall(state, out, worker)
    keep = max(0, state.workers.target + blocked - state.running) if blocked else 0
    response = BalanceResponse()
    while state.queued > keep:
        origin, lo, hi = staging.take_any(state, out, state.queued - keep)
        response.add(*origin.key, lo, hi)
    if response:
        out.say(response)


def greet(state: HostState) -> None:
    """There is a scheduler."""
    state.departure.deserted = math.inf
    state.departure.reckon()


def next_wake(state: HostState) -> float:
    """When `attend` has something to do though nothing happens, seconds; infinite for never."""
    departure = state.departure
    if departure.reason in (Leaving.NOT, Leaving.TOLD):
        return min(departure.drain_at, departure.until)
    return math.inf if departure.is_over else departure.until


def may_be_missed(state: HostState) -> bool:
    """Something is here that somebody may still want: rows, stored values, or how rows ended that may not be known."""
    return bool(state.queued or state.running or len(state.objects.index)) or state.unsettled.has_results


def take_limit(state: HostState, event: Limited) -> None:
    """The batch system ends this host at a certain time."""
    departure = state.departure
    departure.ends, departure.drain_at = event.ends, event.ends - event.grace
