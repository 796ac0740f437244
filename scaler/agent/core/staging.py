"""Where a row goes that no worker has: ready for any worker, or for one, or waiting for objects.

A row is ready when every stored object that it needs is a file in the store, or live in one and the same worker, which
then is the one to run it: the one that has most of its input. Everything else is brought first. Rows that take stored
values go before older ones of their client and priority, so that values are used up before new ones are made. A row
that takes several slots is for any worker: what is live is written to files for it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from scaler.agent.core import bringing, spilling
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.ready_rows import ReadyRows, RowQueue
from scaler.agent.state.rows import RowRange
from scaler.agent.state.waiting_rows import WaitingRows, WaitingSpan
from scaler.protocol import failures
from scaler.store.index import ON_DISK, READABLE
from scaler.store.layout import Key

#: bytes that are brought for waiting rows at once; more only for a single wait
BRING_AHEAD = 128 << 20


class _Choice(NamedTuple):
    """Where the rows [lo, hi) go."""

    lo: int
    hi: int
    #: of the worker they are for; None: any, or they wait
    slot: int | None
    #: they take stored values of their own
    takes_values: bool
    wait: WaitingSpan | None


# ---- rows come -------------------------------------------------------------------------------------------------------
def admit(state: HostState, out: Outgoing, origin: RowRange, lo: int, hi: int, front: bool = False) -> None:
    """Rows came, or came back (then to the `front`)."""
    if not origin.stored:
        state.ready.put(origin, lo, hi, None, front)
        return
    choices = _choices(state, out, origin, lo, hi)
    for choice in reversed(choices):
        if choice.wait is None and (front or choice.takes_values):
            state.ready.put(origin, choice.lo, choice.hi, choice.slot, True)
    for choice in choices:
        if choice.wait is not None:
            state.waiting.add(choice.wait)
        elif not (front or choice.takes_values):
            state.ready.put(origin, choice.lo, choice.hi, choice.slot, False)


def _choices(state: HostState, out: Outgoing, origin: RowRange, lo: int, hi: int) -> list[_Choice]:
    choices: list[_Choice] = []
    if origin.needs is None:
        _choose(state, out, origin, lo, hi, origin.stored_for(lo), choices)
        return choices
    for row in range(lo, hi):
        _choose(state, out, origin, row, row + 1, origin.stored_for(row), choices)
    return choices


def _choose(
    state: HostState, out: Outgoing, origin: RowRange, lo: int, hi: int, keys: list[Key], choices: list[_Choice]
) -> None:
    takes_values = len(keys) > len(origin.stored_common)
    slot, missing = _look(state, keys, origin.slots > 1)
    if not missing:
        last = choices[-1] if choices else None
        if last is not None and last.wait is None and last[1:4] == (lo, slot, takes_values):
            choices[-1] = last._replace(hi=hi)
        else:
            choices.append(_Choice(lo, hi, slot, takes_values, None))
        return
    lost = [key for key in missing if not state.objects.can_be_brought(key)]
    filed = _bytes_of_files(state, keys, slot)
    if lost:
        out.missing(lost, *origin.key, lo, hi)
    elif filed > state.limits.store:
        out.refuse(failures.too_much_input(filed, state.limits.store), *origin.key, lo, hi)
    else:
        choices.append(_Choice(lo, hi, None, takes_values, WaitingSpan(origin, lo, hi, keys)))


def _look(state: HostState, keys: list[Key], anywhere: bool) -> tuple[int | None, list[Key]]:
    """The worker that a row has to run in, None for any; and the objects that have to be brought for it."""
    index, workers = state.objects.index, state.workers.records
    live: dict[int, int] = {}
    slots: dict[Key, int] = {}
    missing = []
    for key in keys:
        entry = index.get(key)
        if entry is None or entry.place in ("disk", "moving"):
            missing.append(key)
        elif entry.slot is not None:
            worker = workers.get(entry.slot)
            if anywhere or worker is None or not worker.takes_rows:
                missing.append(key)
            else:
                live[entry.slot] = live.get(entry.slot, 0) + entry.size
                slots[key] = entry.slot
    if not live:
        return None, missing
    slot = max(live, key=live.__getitem__)
    if len(live) > 1:
        # of those with as much the one with the oldest value: rows that need the same two run there, and one moves
        slot = slots[min(key for key in slots if live[slots[key]] == live[slot])]
        missing += [key for key in slots if slots[key] != slot]
    return slot, missing


def _bytes_of_files(state: HostState, keys: list[Key], slot: int | None) -> int:
    """What takes memory of the store while a row with these inputs runs: all but what its worker has, or the disk."""
    index = state.objects.index
    return sum(
        state.objects.size(key)
        for key in set(keys)
        if (entry := index.get(key)) is None or (entry.place not in ON_DISK and (slot is None or entry.slot != slot))
    )


def _for_any(wait: WaitingSpan) -> bool:
    return wait.anywhere or wait.origin.slots > 1


# ---- rows go ---------------------------------------------------------------------------------------------------------
def usable(state: HostState, origin: RowRange, lo: int, hi: int, slot: int) -> int:
    """The rows [lo, end) can run now in the worker of a slot: the end."""
    index = state.objects.index
    for row in range(lo, hi):
        for key in origin.stored_for(row):
            entry = index.get(key)
            if entry is None or not (entry.place in READABLE or entry.slot == slot):
                return row
        if origin.needs is None:
            return hi
    return hi


def evict(state: HostState, out: Outgoing, slot: int) -> None:
    """The worker of this slot won't take rows: those that were for it find another way."""
    for origin, lo, hi in reversed(state.ready.release(slot)):
        admit(state, out, origin, lo, hi, front=True)


def steal(state: HostState, out: Outgoing, slot: int, worth: float) -> bool:
    """Have the last row that is for this worker run anywhere, if moving its objects takes less time; seconds."""
    local = state.ready.local[slot]
    origin, lo, hi = local.take_last(1)
    if not pays(state, origin, lo, slot, worth):
        local.put(origin, lo, hi)
        return False
    state.ready.settle(slot)
    wait = WaitingSpan(origin, lo, hi, origin.stored_for(lo), anywhere=True)
    state.waiting.add(wait)
    _begin(state, out, wait)
    return True


def pays(state: HostState, origin: RowRange, row: int, slot: int, worth: float) -> bool:
    """To move what a row needs of the worker of this slot takes less time than it waits there, seconds; and it fits."""
    index, keys = state.objects.index, origin.stored_for(row)
    moved = sum(index[key].size for key in keys if key in index and index[key].slot == slot)
    return moving_seconds(moved) < worth and _bytes_of_files(state, keys, None) <= state.limits.store


def remove_rows(state: HostState, out: Outgoing, client: int, batch: int, lo: int, hi: int) -> list[tuple[int, int]]:
    """Take out rows of a batch; the spans that were here."""
    found = state.ready.remove_rows(client, batch, lo, hi)
    if state.waiting.rows:
        for wait in state.waiting.in_rows(client, batch, lo, hi):
            _end(state, wait)
            found.append((max(lo, wait.lo), min(hi, wait.hi)))
            for a, b in ((wait.lo, lo), (hi, wait.hi)):
                if a < b:
                    admit(state, out, wait.origin, a, b, front=True)
    return found


def take_last(state: HostState, out: Outgoing, rows: int, slots: int = 1) -> tuple[RowRange, int, int] | None:
    """Take at most `rows` rows that no worker has, those that would run last of those that take so many slots each.

    None if there are none.
    """
    ready = state.ready
    if slots > 1:
        if (taken := ready.take_last_wide(rows, slots)) is not None:
            return taken
    elif ready.general.rows:
        return ready.take_last(rows)
    wait = state.waiting.last
    if wait is None or wait.origin.slots != slots:
        return ready.take_last(rows) if ready.local and slots == 1 else None
    return _take_waiting(state, out, wait, rows)


def _take_waiting(state: HostState, out: Outgoing, wait: WaitingSpan, rows: int) -> tuple[RowRange, int, int]:
    """Take the last rows of a wait, at most so many; the others wait on."""
    _end(state, wait)
    lo = max(wait.lo, wait.hi - rows)
    if lo > wait.lo:
        admit(state, out, wait.origin, wait.lo, lo, front=True)
    return wait.origin, lo, wait.hi


def take_last_of(
    state: HostState, out: Outgoing, rows: int, slots: int, batches: frozenset[Key]
) -> Iterator[tuple[RowRange, int, int]]:
    """As `take_last`, of these batches (client, batch) alone, until there are so many. Costs a look at all spans."""
    ready = state.ready
    for taken in _take_ready_of(state, [ready.wide if slots > 1 else ready.general], rows, slots, batches):
        rows -= taken[2] - taken[1]
        yield taken
    for wait in sorted(state.waiting, key=lambda wait: wait.begun):
        if rows > 0 and wait.origin.key in batches and wait.origin.slots == slots:
            taken = _take_waiting(state, out, wait, rows)
            rows -= taken[2] - taken[1]
            yield taken
    if slots == 1:
        yield from _take_ready_of(state, [*ready.local.values()], rows, slots, batches)


def _take_ready_of(
    state: HostState, queues: list[RowQueue], rows: int, slots: int, batches: frozenset[Key]
) -> Iterator[tuple[RowRange, int, int]]:
    """Take rows of these batches that are in these queues, at most so many, those that would run last."""
    for origin, lo, hi in [span for queue in queues for span in [*queue][::-1]]:
        if rows > 0 and origin.key in batches and origin.slots == slots:
            client, batch = origin.key
            for first, end in state.ready.remove_rows(client, batch, max(lo, hi - rows), hi):
                rows -= end - first
                yield origin, first, end


def take_any(state: HostState, out: Outgoing, rows: int) -> tuple[RowRange, int, int]:
    """Take at most `rows` rows that no worker has, whatever they take. IndexError if there are none."""
    ready = state.ready
    if ready.wide.rows:
        return ready.wide.take_last(rows)
    if ready.rows:
        return ready.take_last(rows)
    wait = state.waiting.last
    taken = None if wait is None else take_last(state, out, rows, wait.origin.slots)
    if taken is None:
        raise IndexError("no rows are here that no worker has")
    return taken


def drop_client(state: HostState, client: int) -> None:
    """Forget all rows of a client."""
    state.ready.drop_client(client)
    for wait in state.waiting.of_client(client):
        _end(state, wait)


def drop_everything(state: HostState) -> None:
    """Forget all rows, before all objects are forgotten with their pins."""
    state.ready.let_go()
    state.ready = ReadyRows()
    state.waiting = WaitingRows()


# ---- objects come ----------------------------------------------------------------------------------------------------
def settle(state: HostState, out: Outgoing) -> None:
    """Queue the rows whose objects have come, give back those whose objects can't be had, begin to bring others."""
    waiting, follow_ups = state.waiting, state.follow_ups
    while True:
        arrived, follow_ups.arrived = follow_ups.arrived, []
        lost, follow_ups.lost = follow_ups.lost, {}
        no_room, follow_ups.no_room = follow_ups.no_room, {}
        for key in arrived:
            for wait in waiting.of_key(key):
                waiting.note_arrival(wait, key)
        for key in lost:
            for wait in waiting.of_key(key):
                if key in no_room:
                    _end(state, wait)
                    out.refuse(no_room[key], *wait.origin.key, wait.lo, wait.hi)
                    continue
                _give_back(state, out, wait, [other for other in wait.missing if other in lost])
        _queue_complete(state, out)
        _begin_some(state, out)
        if not (follow_ups.arrived or follow_ups.lost):
            return


def _queue_complete(state: HostState, out: Outgoing) -> None:
    """Queue the rows that miss nothing; they keep what they need until workers may have them.

    What nobody has pinned goes to disk while there is no room. Queued rows pin nothing: they would lose it before they
    begin, and wait for it again, for ever.
    """
    complete = state.waiting.complete
    while complete and not spilling.defers_work(state):
        wait = next(iter(complete))
        _end(state, wait)
        admit(state, out, wait.origin, wait.lo, wait.hi, front=True)
        if state.memory.is_full:
            return  # a row at a time


def _begin_some(state: HostState, out: Outgoing) -> None:
    waiting = state.waiting
    while (wait := waiting.first) is not None:
        ahead = min(BRING_AHEAD, state.objects.index.limit // 4)
        if (waiting.coming and waiting.coming + _cost(state, wait) > ahead) or spilling.defers_work(state):
            return
        _begin(state, out, wait)


def _cost(state: HostState, wait: WaitingSpan) -> int:
    return sum(state.objects.size(key) for key in _look(state, wait.keys, _for_any(wait))[1])


def _begin(state: HostState, out: Outgoing, wait: WaitingSpan) -> None:
    objects = state.objects
    _, missing = _look(state, wait.keys, _for_any(wait))
    if not missing:
        state.waiting.remove(wait)
        admit(state, out, wait.origin, wait.lo, wait.hi, front=True)
        return
    lost = [key for key in missing if not objects.can_be_brought(key)]
    if lost:
        _give_back(state, out, wait, lost)
        return
    state.waiting.begin(wait, missing, sum(map(objects.size, missing)))
    for key in missing:
        bringing.bring(state, out, key)
    for key in wait.keys:
        if key in objects.index:
            objects.index.pin(key)
            wait.pins.append(key)


def _give_back(state: HostState, out: Outgoing, wait: WaitingSpan, lost: list[Key]) -> None:
    _end(state, wait)
    out.missing(lost, *wait.origin.key, wait.lo, wait.hi)


def _end(state: HostState, wait: WaitingSpan) -> None:
    """A wait is over, however."""
    state.objects.release_pins(wait.pins)
    state.waiting.remove(wait)


def moving_seconds(size: int) -> float:
    """What it takes to move a live value of so many bytes to another worker."""
    return 0.0003 + size / 2.5e9
