"""The workers of an agent, and the three things that are done to one: told something, asked for rows, ended."""

from scaler.agent.core.events import KillWorker, ToWorker
from scaler.agent.core.outbox import Outbox
from scaler.agent.core.state import Worker
from scaler.store.layout import Key
from scaler.worker_protocol.messages import Drop, Recall
from scaler.worker_protocol.messages import ToWorker as ToWorkerMessage


class Crew:
    """See the module's text."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        #: by slot
        self.workers: dict[int, Worker] = {}
        #: seconds; set by the door before anything else happens
        self.now = 0.0
        self._next_token = 1

    def tell(self, worker: Worker, message: ToWorkerMessage, control: bool = False) -> None:
        """Send a message; with `control` it is read while user code runs."""
        self._out.add(ToWorker(worker.slot, message, control))

    def recall(self, worker: Worker, keep: int = 1) -> None:
        """Ask a worker for its rows that have not begun; `keep` rows stay, the one that runs included.

        One that is still loading what its first row needs is thus left that row: taken back, it would come to run after
        rows that were behind it.
        """
        if not worker.recalling:
            worker.recalling = True
            token = self._next_token
            self._next_token += 1
            self.tell(worker, Recall(token, keep), control=True)

    def kill(self, worker: Worker, kind: str, words: str) -> None:
        """End a worker; the row it runs is told why."""
        if worker.sentence is None:
            worker.sentence = kind, words
            self._out.add(KillWorker(worker.slot))

    def reject(self, worker: Worker, what: str) -> None:
        """End a worker that said what can't be: nothing that it says from now on is believed."""
        if worker.sentence is None:
            name = next((f", which ran {handout.part.task.name}," for handout in worker.handouts.values()), "")
            self._out.log("ERROR", f"worker {worker.slot}{name} {what}: it is ended, and another one is started")
            self.kill(worker, "rejected", what)

    def drop(self, slot: int, keys: list[Key]) -> None:
        """A worker shall forget objects at once, also while user code runs."""
        worker = self.workers.get(slot)
        if worker is not None and keys:
            worker.objects.difference_update(keys)
            self.tell(worker, Drop(keys), control=True)

    @property
    def is_working(self) -> bool:
        """Some worker runs a row that does not wait for other rows."""
        return any(w.state == "busy" and not w.blocked for w in self.workers.values())
