"""Taking rows back: cancelled, claimed by their client, or wanted elsewhere by the scheduler.

Rows that no worker has are taken at once. For the others their workers are asked for all that has not begun; `doomed`
says what to do with a row when it comes back. What does not come back is running. A worker can't answer while a row
keeps the interpreter to itself, as a long call in C may; if rows are to be cancelled even if they run, it is looked at
from outside.
"""

import math

from scaler.agent.core.crew import Crew
from scaler.agent.core.events import LookAt, Looked
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.part import Part
from scaler.agent.core.placement import Placement
from scaler.agent.core.state import Worker
from scaler.protocol.messages import (
    CANCELLED,
    BalanceRequest,
    BalanceResponse,
    Spans,
    TaskClaimResponse,
    TaskRunning,
)
from scaler.protocol.results import NO_SIZES, SpanResult

#: seconds for which a worker's answer is waited for before it is looked at from outside
FORCE_PATIENCE = 0.1


class Withdrawals:
    """See the module's text."""

    def __init__(self, out: Outbox, crew: Crew, placement: Placement) -> None:
        self._out = out
        self._crew = crew
        self._placement = placement
        #: rows withdrawn as soon as their worker gives them back: (client, batch, row) -> "claim", "cancel" or "force"
        self.doomed: dict[tuple[int, int, int], str] = {}
        #: slots of workers asked for rows that end even if they run -> when to look what they do
        self._insisting: dict[int, float] = {}
        #: rows that the scheduler wants back and that workers have been asked for
        self.owed = 0

    def withdraw(self, spans: Spans, what: str) -> None:
        """Take these rows back: "cancel", "force" (also if they run) or "claim"."""
        gone = Spans()
        for client, batch, lo, hi in spans:
            found = 0
            for a, b in self._placement.remove_rows(client, batch, lo, hi):
                self._withdrawn(what, client, batch, a, b)
                found += b - a
            if found == hi - lo:
                continue
            for worker in self._crew.workers.values():
                for handout in worker.handouts.values():
                    if handout.part.key == (client, batch):
                        for a, b in handout.left:
                            rows = range(max(a, lo), min(b, hi))
                            found += len(rows)
                            self._doom(worker, client, batch, rows, what)
            if found < hi - lo and what == "claim":
                gone.add(client, batch, lo, hi)
        if gone:
            self._out.say(TaskClaimResponse(Spans(), gone))

    def _doom(self, worker: Worker, client: int, batch: int, rows: range, what: str) -> None:
        if not rows:
            return
        for row in rows:
            self.doomed[client, batch, row] = what
        first = next(iter(worker.handouts.values()))
        if what == "force" and first.part.key == (client, batch) and first.left and first.left[0][0] in rows:
            self._crew.kill(worker, "cancelled", "cancelled by its client")
        else:
            self._crew.recall(worker, keep=0)
            if what == "force":
                self._insisting[worker.slot] = self._crew.now + FORCE_PATIENCE

    def insist(self) -> float:
        """Look at workers that don't answer though rows of theirs are to end; when to do so next, infinite: never."""
        for slot, due in list(self._insisting.items()):
            worker = self._crew.workers.get(slot)
            if worker is None or not worker.recalling or worker.sentence is not None:
                del self._insisting[slot]
            elif due <= self._crew.now:
                self._insisting[slot] = self._crew.now + FORCE_PATIENCE
                self._out.add(LookAt(slot))
        return min(self._insisting.values(), default=math.inf)

    def looked(self, event: Looked) -> None:
        """End a worker that runs a row that is to end even if it runs."""
        worker = self._crew.workers.get(event.slot)
        number, row = event.begun
        if worker is None or number not in worker.handouts:
            return
        if self.doomed.get((*worker.handouts[number].part.key, row)) == "force":
            self._crew.kill(worker, "cancelled", "cancelled by its client")

    def _withdrawn(self, what: str, client: int, batch: int, lo: int, hi: int) -> None:
        if what == "claim":
            granted = Spans()
            granted.add(client, batch, lo, hi)
            self._out.say(TaskClaimResponse(granted, Spans()))
        else:
            self._out.result(client, SpanResult(batch, lo, hi, CANCELLED, 0, 0, NO_SIZES, b""))

    # ---- what becomes of rows that workers have --------------------------------------------------------------------
    def came_back(self, part: Part, lo: int, hi: int) -> None:
        """Rows come back from a worker: they are withdrawn if that was wanted, or wait for another worker."""
        if lo >= hi:
            return
        if not self.doomed:
            self._placement.admit(part, lo, hi, front=True)
            return
        client, batch = part.key
        for row in range(hi - 1, lo - 1, -1):
            what = self.doomed.pop((client, batch, row), None)
            if what is None:
                self._placement.admit(part, row, row + 1, front=True)
            else:
                self._withdrawn(what, client, batch, row, row + 1)

    def ended(self, client: int, batch: int, lo: int, hi: int) -> None:
        """Rows have ended: those that were to be withdrawn are not."""
        for row in range(lo, hi):
            if self.doomed.pop((client, batch, row), None) == "claim":
                refused = Spans()
                refused.add(client, batch, row, row + 1)
                self._out.say(TaskClaimResponse(Spans(), refused))

    def refuse_running(self, worker: Worker) -> None:
        """What a worker still has after it gave back all that had not begun is running: it can't be withdrawn."""
        running = TaskRunning()
        refused = Spans()
        for handout in worker.handouts.values():
            client, batch = handout.part.key
            for lo, hi in handout.left:
                for row in range(lo, hi):
                    what = self.doomed.get((client, batch, row))
                    if what == "force":
                        self._crew.kill(worker, "cancelled", "cancelled by its client")
                    elif what is not None:
                        del self.doomed[client, batch, row]
                        (refused if what == "claim" else running).add(client, batch, row, row + 1)
        if running:
            self._out.say(running)
        if refused:
            self._out.say(TaskClaimResponse(Spans(), refused))

    def is_cancelled(self, client: int, batch: int, row: int) -> bool:
        """The row is to be cancelled when it comes back."""
        return self.doomed.get((client, batch, row), "claim") != "claim"

    def drop_client(self, client: int) -> None:
        """Nobody asks for rows of a client any more."""
        for row in [row for row in self.doomed if row[0] == client]:
            del self.doomed[row]

    def drop_everything(self) -> None:
        """Nobody asks for anything any more."""
        self.doomed.clear()
        self._insisting.clear()
        self.owed = 0

    # ---- balance ---------------------------------------------------------------------------------------------------
    def balance(self, message: BalanceRequest) -> None:
        """The scheduler wants rows that have not begun: now, or when workers have answered."""
        response = self._take_last(message.rows)
        asked = False
        if message.rows and not response:
            for worker in self._crew.workers.values():
                if worker.rows > 1 and worker.sentence is None:
                    self._crew.recall(worker)
                    asked = True
        if asked:
            self.owed += message.rows
        else:
            self._out.say(response)

    def pay_debt(self) -> None:
        """Rows came back that the scheduler wanted."""
        workers = self._crew.workers.values()
        if not self.owed or any(worker.recalling for worker in workers):
            return
        idle = sum(w.state == "idle" and not w.blocked for w in workers)
        wanted, self.owed = min(self.owed, max(0, self._placement.rows - idle)), 0
        self._out.say(self._take_last(wanted))

    def _take_last(self, wanted: int) -> BalanceResponse:
        response = BalanceResponse()
        while wanted and (taken := self._placement.take_last(wanted)) is not None:
            part, lo, hi = taken
            response.add(*part.key, lo, hi)
            wanted -= hi - lo
        return response
