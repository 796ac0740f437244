"""Rows that are ready and wait for an agent: one queue for each priority and demand.

Queues of the same priority take turns, so that none waits for ever: say, rows that take several slots for those that
take one.

Rows that no agent has walltime enough for are set aside, in queues by how long they take, so that they are in nobody's
way: of the next rows of their class some may fit. Queues for what no agent has have no turn until one comes with it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterator, KeysView
from heapq import heapify, heappop, heapreplace

from scaler.common.spans import SpanQueue
from scaler.scheduler.state.batch_records import Batch, Demand, QueueClass

#: what a queue is for: a class of rows; of those set aside also which power of two of seconds they take at most
QueueKey = QueueClass | tuple[int, Demand, int]

#: queues are kept for the next rows of their class, up to this many
KEPT = 16
#: (-priority, number, key): of equals the one that was put there first goes first
Turn = tuple[int, int, QueueKey]


class ReadyQueues:
    """All queues; empty ones go away. Rows of clients that are held have queues of their own, which have no turn.

    A client may have a queue for each of its rows: none is looked for among all.
    """

    __slots__ = ("_aside", "_clients", "_held", "_keys", "_number", "_order", "_queues", "_turns", "_unmet")

    def __init__(self) -> None:
        self._queues: dict[QueueKey, SpanQueue[Batch]] = {}
        #: what rows ask for -> the turns of the queues for that, ascending; no empty lists
        self._order: dict[Demand, list[Turn]] = {}
        #: exactly the keys of `_queues`, with their turns
        self._turns: dict[QueueKey, Turn] = {}
        #: of the last turn
        self._number = 0
        #: the queues of rows that were set aside, by their class
        self._aside: dict[QueueClass, dict[QueueKey, None]] = {}
        #: number of a client whose rows are to wait -> the queues of its rows
        self._held: dict[int, dict[QueueClass, SpanQueue[Batch]]] = {}
        #: queues for what no agent has, with rows; none of them is in `_queues`
        self._unmet: dict[QueueKey, SpanQueue[Batch]] = {}
        #: client -> the queues that have or had rows of it, held ones apart; and queue -> those clients; nothing empty
        self._keys: dict[int, dict[QueueKey, None]] = {}
        self._clients: dict[QueueKey, set[int]] = {}

    def __bool__(self) -> bool:
        """There are rows that agents may be given."""
        for queue in self._queues.values():  # noqa: SIM110 - asked in every step, and half the price of `any`
            if queue.rows:
                return True
        return False

    def items(self) -> list[tuple[QueueKey, SpanQueue[Batch]]]:
        """Each queue with its class, highest priority first, empty ones too; then those that have no turn."""
        others = [*self._unmet.items()]
        for queues in self._held.values():
            others += queues.items()
        return [*((key, self._queues[key]) for _, _, key in sorted(self._turns.values())), *others]

    @property
    def rows(self) -> int:
        """Rows in all queues."""
        return sum(queue.rows for _, queue in self.items())

    def _of(self, batch: Batch) -> SpanQueue[Batch]:
        key = batch.queue_class
        if self._held and batch.client in self._held:
            return self._held[batch.client].setdefault(key, SpanQueue())
        self._note(batch.client, key)
        return self._queues.get(key) or self._new(key)

    def _note(self, client: int, key: QueueKey) -> None:
        """A queue gets rows of a client."""
        keys = self._keys.get(client)
        if keys is None:
            keys = self._keys[client] = {}
        if key not in keys:
            keys[key] = None
            self._clients.setdefault(key, set()).add(client)

    def _of_client(self, client: int) -> list[tuple[QueueKey, SpanQueue[Batch]]]:
        """The queues that have rows of a client, which is about to have none there."""
        found = []
        for key in self._keys.pop(client, ()):
            self._clients[key].discard(client)
            if not self._clients[key]:
                del self._clients[key]
            queue = self._unmet[key] if key in self._unmet else self._queues[key]
            if queue.has(client):
                found.append((key, queue))
        return found

    def _forget_queue(self, key: QueueKey) -> None:
        """A queue is gone, with no rows."""
        for client in self._clients.pop(key, ()):
            del self._keys[client][key]
            if not self._keys[client]:
                del self._keys[client]

    def _new(self, key: QueueKey) -> SpanQueue[Batch]:
        return self._unmet[key] if key in self._unmet else self._take_in(key, SpanQueue())

    def _take_in(self, key: QueueKey, queue: SpanQueue[Batch]) -> SpanQueue[Batch]:
        self._queues[key] = queue
        self._give_turn(key)
        return queue

    def _give_turn(self, key: QueueKey) -> None:
        self._number += 1
        turn = self._turns[key] = key[0], self._number, key
        insort(self._order.setdefault(key[1], []), turn)

    def _take_turn(self, key: QueueKey) -> None:
        turns = self._order[key[1]]
        del turns[bisect_left(turns, self._turns.pop(key))]
        if not turns:
            del self._order[key[1]]

    def append(self, batch: Batch, lo: int, hi: int) -> None:
        """Queue rows that became ready."""
        self._of(batch).append(batch, lo, hi)

    def prepend(self, batch: Batch, lo: int, hi: int) -> None:
        """Queue rows that had a place before."""
        self._of(batch).prepend(batch, lo, hi)

    def remove(self, batch: Batch, lo: int, hi: int) -> list[tuple[int, int]]:
        """Take out rows; the spans that were here."""
        return self.remove_all(batch, [(lo, hi)])

    def remove_all(self, batch: Batch, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take out many spans of rows, which ascend; the spans that were here."""
        found: list[tuple[int, int]] = []
        for queue in self._that_may_have(batch):
            found += queue.remove(batch.client, batch.id, (batch.share, batch.nesting), spans)
        self._forget_empty(batch.queue_class)
        return found

    def _that_may_have(self, batch: Batch) -> list[SpanQueue[Batch]]:
        """The queues in which rows of a batch may be."""
        key = batch.queue_class
        if self._held and batch.client in self._held:
            held = self._held[batch.client].get(key)
            return [] if held is None else [held]
        queue = self._queues.get(key) or self._unmet.get(key)
        found = [] if queue is None else [queue]
        if self._aside:
            found += [self._queues[aside] for aside in self._aside.get(key, ())]
        return found

    def set_aside(self, key: QueueKey, grade: int) -> None:
        """The next rows of a queue, which take so many seconds (a power of two) at most, are to be in nobody's way."""
        batch, lo, hi = self._queues[key].take(1 << 32, 0.0)
        aside = (*batch.queue_class, grade)
        queue = self._queues.get(aside)
        if queue is None:
            queue = self._new(aside)
            self._aside.setdefault(batch.queue_class, {})[aside] = None
        self._note(batch.client, aside)
        queue.append(batch, lo, hi)

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        if client in self._held:
            for queue in self._held[client].values():
                queue.drop_client(client)
            return
        for key, queue in self._of_client(client):
            queue.drop_client(client)
            self._forget_empty((key[0], key[1]))

    def hold(self, client: int) -> None:
        """No agent is given rows of a client until `release`."""
        held: dict[QueueClass, SpanQueue[Batch]] = {}
        for key, queue in self._of_client(client):
            queue_class = key[0], key[1]
            held.setdefault(queue_class, SpanQueue()).take_over(queue, client)
            self._forget_empty(queue_class)
        self._held[client] = held

    def release(self, client: int) -> None:
        """Rows of a client have their turn again, if it was held."""
        for key, queue in self._held.pop(client, {}).items():
            if queue.rows:
                self._note(client, key)
                (self._queues.get(key) or self._new(key)).take_over(queue, client)

    def leave_out(self, key: QueueKey) -> None:
        """No agent has what the rows of a class ask for: they have no turn until `bring_back`."""
        self._unmet[key] = self._queues[key]
        self._leave_out_of_turns(key)

    def bring_back(self, capabilities: frozenset[str], slots: int) -> None:
        """Rows that ask for no more than this, those of one slot in any case, have their turn again."""
        most = max(1, slots)
        for key in [key for key in self._unmet if capabilities.issuperset(key[1][0]) and key[1][1] <= most]:
            self._take_in(key, self._unmet.pop(key))

    @property
    def unmet(self) -> KeysView[QueueKey]:
        """For what no agent has, as was said."""
        return self._unmet.keys()

    def _forget_empty(self, key: QueueClass) -> None:
        """Rows of a class were taken out: of its queues those go that have none."""
        if key in self._unmet and not self._unmet[key].rows:
            del self._unmet[key]
            self._forget_queue(key)
        if len(self._queues) > KEPT:
            for one in (key, *self._aside.get(key, ())):
                self._drop_if_empty(one)

    def _drop_if_empty(self, key: QueueKey) -> None:
        queue = self._queues.get(key)
        if queue is not None and not queue.rows and len(self._queues) > KEPT:
            self._drop(key)

    @property
    def are_several(self) -> bool:
        """There are several queues, empty ones among them."""
        return len(self._queues) > 1

    def in_order(self, done: Container[Demand] = ()) -> Iterator[tuple[QueueKey, SpanQueue[Batch]]]:
        """The queues that hold rows, highest priority first, each once; meanwhile rows may be taken and queues rotated.

        They are merged from those of each demand as they are asked for, since there may be a queue for each row. Those
        of a demand that is `done` by then are left out.
        """
        last, heads = self._number, [turns[0] for turns in self._order.values()]
        heapify(heads)
        while heads:
            turn = heads[0]
            key = turn[2]
            queue = self._queues[key]
            if queue.rows:
                yield key, queue
            following = self._turn_behind(turn, last) if key[1] not in done else None
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, following)
            self._drop_if_empty(key)

    def _turn_behind(self, turn: Turn, last: int) -> Turn | None:
        """The next turn for the same demand, of those given up to the number `last`: later ones have had theirs."""
        turns = self._order.get(turn[2][1], ())
        at = bisect_right(turns, turn)
        while at < len(turns) and turns[at][1] > last:  # as are all behind it of its priority
            at = bisect_right(turns, (turns[at][0], self._number + 1))
        return turns[at] if at < len(turns) else None

    def _drop(self, key: QueueKey) -> None:
        self._leave_out_of_turns(key)
        self._forget_queue(key)

    def _leave_out_of_turns(self, key: QueueKey) -> None:
        del self._queues[key]
        self._take_turn(key)
        if len(key) > 2:
            self._forget_aside(key)

    def _forget_aside(self, key: QueueKey) -> None:
        queue_class = key[0], key[1]
        del self._aside[queue_class][key]
        if not self._aside[queue_class]:
            del self._aside[queue_class]

    def rotate(self, key: QueueKey) -> None:
        """Rows of a queue were given to agents: others of its priority have their turn before it."""
        self._take_turn(key)
        self._give_turn(key)
