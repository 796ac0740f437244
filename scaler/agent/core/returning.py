"""Another scheduler has taken the place of the last one, and knows nothing: it is told what is here, and hears again
how rows have ended that it may not know of. Whatever runs goes on meanwhile."""

from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.withdrawals import WithdrawalTable
from scaler.protocol.messages import Inventory, Settled, TaskResult, u32, u64
from scaler.protocol.results import spans_of
from scaler.store.layout import Key


def introduce_again(state: HostState, out: Outgoing) -> None:
    """Tell another scheduler what is here."""
    state.withdrawals = WithdrawalTable()
    out.begin_anew()
    unsettled = state.unsettled
    inventory = Inventory(u32(unsettled.sessions), u64(unsettled.sessions.values()))
    held: dict[Key, set[int]] = {}
    for key, lo, hi in _rows(state):
        if key[0] in unsettled.sessions:
            inventory.rows.add(*key, lo, hi)
            held.setdefault(key, set()).update(range(lo, hi))
    results = unsettled.say_again(held, state.objects.index.keys(), out.full)
    for message in results:
        _add_ended(inventory, message)
    for key in state.objects.inline:
        _add_object(state, inventory, key, 0)
    for key in list(state.objects.index.keys()):
        _add_object(state, inventory, key, state.objects.index[key].size)
    out.say(inventory)
    for message in results:
        out.say(message)


def _rows(state: HostState) -> list[tuple[Key, int, int]]:
    """All rows that are here to be run."""
    rows = [(wait.origin.key, wait.lo, wait.hi) for wait in state.waiting]
    rows += [(origin.key, lo, hi) for origin, lo, hi in state.ready]
    for worker in state.workers.records.values():
        for dispatch in worker.dispatches.values():
            if not dispatch.unwanted:
                rows += [(dispatch.origin.key, lo, hi) for lo, hi in dispatch.left]
    return rows


def _add_ended(inventory: Inventory, message: TaskResult) -> None:
    for span in spans_of(message):
        inventory.rows.add(message.client, span.batch, span.lo, span.hi)


def _add_object(state: HostState, inventory: Inventory, key: Key, size: int) -> None:
    if key[0] in state.unsettled.sessions:
        inventory.objects.add(*key)
        inventory.sizes.append(size)


def settle(state: HostState, message: Settled) -> None:
    """What need not be said again, whoever asks."""
    for client, results in zip(message.clients, message.results, strict=True):
        state.unsettled.settle(client, results)
    for client, batch in zip(message.over_clients, message.over_batches, strict=True):
        state.unsettled.end_batch(client, batch)
