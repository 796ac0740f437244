"""Futures that are cancelled one by one, without a round trip for each.

A future is cancelled once its row can't begin any more, which its scheduler has to say. When several were cancelled one
right after the other, the scheduler is asked to hold this client's rows back (`TaskHold`), and says which of those that
may be next wait with it. These can be ended here, and it is told of them later, as they don't begin before it is told
that the rows may go on: as soon as no more are cancelled, or something is submitted.

A scheduler that comes after knows nothing of that, and hears from this client which rows have ended. No agent has any
of these.
"""

import math

from scaler.client.core.pending import PendingBatch, PendingBatches
from scaler.errors import ProtocolError
from scaler.protocol.messages import Message, Spans, TaskCancel, TaskHold

#: cancellations one right after the other before rows are held back; twice as many after each time that was in vain
FEW, MOST_FEW = 4, 1024
#: so many times as many rows as were cancelled are held back next, and at most so many
GROWTH, MOST = 16, 16_384
#: seconds after the last cancellation until rows go on
LINGER = 0.02
#: seconds that rows are held back to begin with, and longer for each one that ends here, and for each other one that is
#: cancelled meanwhile: whoever is slower does without
FIRST_TAKE, EACH_TAKES, ASKING_TAKES = 0.05, 0.002, 0.01


class Holding:
    """Which rows are held back, until when, and which of them have ended here."""

    def __init__(self) -> None:
        #: rows are held back, or the scheduler was asked for that
        self.is_on = False
        #: when they are to go on, seconds; infinite while none are held back, or the scheduler has not answered
        self.due = math.inf
        #: cancellations one right after the other that are worth it
        self.enough = FEW
        #: ids of the rows that are held back, and of all that the scheduler was asked for
        self._held: set[int] = set()
        self._named: set[int] = set()
        #: those that have ended here, of which the scheduler was not told
        self._ended = Spans()
        #: answers that are to come, and how many of them come too late
        self._asked = self._late = 0
        #: until when that is no longer than it is worth, seconds
        self._until = 0.0
        #: rows that have ended here since
        self._taken = 0
        #: id of the row that the scheduler was asked for last
        self._last = 0

    def ask(self, pending: PendingBatches, row_id: int, streak: int, now: float) -> list[Message]:
        """A row is cancelled, the scheduler has to be asked for it, and so many were right before: what to tell it."""
        backwards, self._last = row_id < self._last, row_id
        if self.is_on:
            self._until += ASKING_TAKES
            self._linger(now)
        if streak < self.enough or row_id in self._named:
            return []
        wanted = pending.rows_near(row_id, min(GROWTH * streak, MOST), backwards)
        if not wanted:
            return []
        if not self.is_on:
            self.is_on, self._until = True, math.inf
        self._asked += 1
        self.due = math.inf
        for _, batch, lo, hi in wanted:
            self._named.update(range(batch + lo, batch + hi))
        return [*self.told(), TaskHold(wanted.clients, wanted.batches, wanted.spans)]

    def answer(self, held: TaskHold, now: float) -> None:
        """The scheduler has said which rows it holds back. Raises `ProtocolError` for what it was not asked."""
        if not self._asked:
            raise ProtocolError("a TaskHold, which nobody has asked for")
        self._asked -= 1
        if self._late:
            self._late -= 1
            return
        if self._until == math.inf:
            self._until = now + FIRST_TAKE
        for _, batch, lo, hi in held:
            rows = range(batch + lo, batch + hi)
            if not self._named.issuperset(rows):
                raise ProtocolError(f"a TaskHold with rows {lo} to {hi} of batch {batch}, which were not all named")
            self._held.update(rows)
        self._linger(now)

    def take(self, pending: PendingBatch, row: int, now: float) -> bool:
        """A row is cancelled: whether it is held back, and ends here."""
        batch = pending.task.batch
        if batch + row not in self._held:
            return False
        self._held.remove(batch + row)
        self._taken += 1
        ended = self._ended
        if ended and ended.batches[-1] == batch and ended.spans[-1] == row:
            ended.spans[-1] = row + 1
        else:
            ended.add(0, batch, row, row + 1)
        self._until += EACH_TAKES
        self._linger(now)
        return True

    def _linger(self, now: float) -> None:
        """There may be more right away: rows are held back for a moment, as long as that is worth it."""
        if not self._asked:
            self.due = now if now > self._until else now + LINGER

    def release(self) -> list[Message]:
        """Rows go on: what the scheduler is to be told."""
        self.enough = FEW if self._taken > FEW else min(2 * self.enough, MOST_FEW)
        messages = [*self.told(), TaskHold()]
        self._late = self._asked
        self._stop()
        return messages

    def around(self, cancelled: Spans) -> tuple[list[Message], list[Message]]:
        """What is to be said before all batches are said anew, and behind them, so that none of these rows begins."""
        if not cancelled:
            return [], []
        self._asked += 1
        self._late += 1
        hold = TaskHold(cancelled.clients[:1], cancelled.batches[:1], cancelled.spans[:2])
        return [hold], [*TaskCancel(cancelled).parts(), TaskHold()]

    def forget(self) -> None:
        """The scheduler that was asked is gone."""
        self._asked = self._late = 0
        self._ended = Spans()
        self._stop()

    def _stop(self) -> None:
        self.is_on, self.due, self._taken = False, math.inf, 0
        self._held.clear()
        self._named.clear()

    def told(self) -> list[Message]:
        """What the scheduler is to hear of rows that have ended here since it was last told."""
        ended, self._ended = self._ended, Spans()
        return [*TaskCancel(ended).parts()] if ended else []
