"""Memory for objects: when to move some to disk, and when to take no new work; `store/index.py` says which go first.

What is pinned stays. If nothing runs and nothing can leave, work goes on all the same, a row at a time: rather too much
memory than none of the work.
"""

import math

from scaler.agent.core.events import Spill
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state import object_moves
from scaler.agent.state.host import HostState
from scaler.agent.state.object_records import ObjectState

#: bytes on their way to disk at once, at most
SPILL_AHEAD = 64 << 20
#: seconds without spilling after it failed
PAUSE = 5.0


def defers_work(state: HostState) -> bool:
    """New work has to wait: there is no room, and there is hope for some."""
    return state.memory.is_full and (state.objects.leaving > 0 or state.workers.is_working)


def room(state: HostState) -> int:
    """Bytes that new objects may take."""
    index = state.objects.index
    return max(0, index.hard_limit - index.in_memory)


def is_short(state: HostState) -> bool:
    """Memory is wanted that objects have."""
    return state.memory.short > 0 or state.objects.index.over > 0


def next_look(state: HostState) -> float:
    """When `make_room` should be called again though nothing happened; infinite for never."""
    paused_until = state.memory.paused_until
    return paused_until if paused_until > state.now and state.objects.index.over else math.inf


def make_room(state: HostState, out: Outgoing) -> bool:
    """Move to disk what has to go; True if there is no room, and was some before."""
    memory, objects, index = state.memory, state.objects, state.objects.index
    over = max(index.over, memory.short, state.follow_ups.lacking)
    state.follow_ups.lacking = 0
    if over and objects.leaving < SPILL_AHEAD and state.now >= memory.paused_until:
        for key in index.victims(min(over, SPILL_AHEAD - objects.leaving)):
            memory.short = max(0, memory.short - index[key].size)
            object_moves.move(state, key, objects.records[key], ObjectState.SPILLING)
            out.add(Spill(key))
    was_full, memory.is_full = memory.is_full, index.is_full
    return memory.is_full and not was_full


def note_short(state: HostState, short: int) -> None:
    """The store's file system has so many bytes too little; what is on its way to disk will be free."""
    state.memory.short = max(0, short - state.objects.leaving)


def note_no_room(state: HostState, size: int) -> None:
    """An object of this size could not be written: others have to go, whatever the index says."""
    state.memory.short = max(state.memory.short, size)


def note_crowded(state: HostState, size: int) -> None:
    """A worker says, again and again, that so many bytes have no room; what is on its way to disk will be free."""
    note_no_room(state, size - state.objects.leaving)


def note_end(state: HostState, out: Outgoing, error: str | None) -> None:
    """An object was moved to disk, or could not be."""
    memory = state.memory
    if error is None and memory.is_stuck:
        memory.is_stuck = False
        out.log("INFO", "objects are moved to disk again")
    elif error is not None and state.now >= memory.paused_until:
        memory.paused_until = state.now + PAUSE
        if not memory.is_stuck:
            memory.is_stuck = True
            out.log("WARNING", f"objects can't be moved to disk: {error}; tried again until it works")
