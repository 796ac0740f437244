"""The workers of a host: their processes, what they say and how they end; and the zygote, replaced when it has died."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from scaler.agent.core.events import Effect, Event, FromWorker, Garbled, HungUp, Looked, ToWorker, WorkerExited
from scaler.agent.overdue import Overdue
from scaler.agent.worker_processes import Exited, WorkerProcess, Zygote
from scaler.agent.zygote_watch import has_hung_up, look
from scaler.common.exits import describe_exit
from scaler.common.loop import Loop
from scaler.common.process_limits import words_of
from scaler.worker_protocol.messages import Surroundings
from scaler.worker_protocol.progress import NO_THREAD
from scaler.worker_protocol.socketpair import COMPANY, LARGEST_PAYLOAD

logger = logging.getLogger("scaler.agent")


class HostWorkers:
    """Carries out what the core wants of workers, and tells what they did. Only `close` blocks. Used by one thread."""

    def __init__(
        self, zygote: Zygote | None, loop: Loop, context: dict[str, Any], note_end: Callable[[int], None]
    ) -> None:
        """Each worker is given the `context`, whose `limit` bounds what it says; `note_end` is told pids.

        Without a zygote there are none.
        """
        self.zygote = zygote
        #: by slot
        self.processes: dict[int, WorkerProcess] = {}
        #: they are to end: so is the zygote
        self.are_ending = False
        self._loop = loop
        self._context = context
        #: bytes of what one says at a time: the largest result, and what goes with it
        self._largest = context.get("limit", LARGEST_PAYLOAD) + COMPANY
        self._note_end = note_end
        self._overdue = Overdue()
        self._announced: set[int] = set()
        #: for the core, besides what workers say
        self._seen: list[Event] = []
        if zygote is not None:
            loop.watch(zygote.fileno(), zygote)

    # ---- what happened ---------------------------------------------------------------------------------------------
    @property
    def due(self) -> float | None:
        """When `gather` should be called though nothing happened."""
        return self._overdue.due

    def gather(self, now: float, target: int) -> list[Event]:
        """What workers said and did since the last time. `target`: those that the host should have at work."""
        events, self._seen = self._seen, []
        ready = self._loop.ready
        for source in list(ready):
            if type(source) is WorkerProcess:
                del ready[source]
                events += self._heard(source)
                if source.ended:
                    events += self._hung_up(source, now)
        if self.zygote in ready:
            del ready[self.zygote]
            events += self._reports(target)
        due = self._overdue.due
        if due is not None and now >= due:
            assert self.zygote is not None
            events += map(HungUp, look(self._overdue, self.zygote, self.processes, now))
        return events

    @property
    def pids(self) -> dict[int, int]:
        """Of the workers' processes, by slot."""
        return {slot: worker.pid for slot, worker in self.processes.items() if worker.pid is not None}

    def begun(self, slots: Iterable[int]) -> dict[int, tuple[int, int]]:
        """What the workers of these slots have begun last, of those that have."""
        zygote = self.zygote
        return {} if zygote is None else {slot: zygote.progress(slot) for slot in slots if zygote.begun(slot)}

    def began(self, slot: int) -> int:
        """When the worker of a slot began what it has begun last, in ns of `time.monotonic_ns`."""
        assert self.zygote is not None
        return self.zygote.begun(slot)

    def reached(self, slots: Iterable[int]) -> dict[int, int]:
        """The dispatches that the workers of these slots are at, or were at last."""
        zygote = self.zygote
        return {} if zygote is None else {slot: zygote.progress(slot)[0] for slot in slots}

    def _heard(self, worker: WorkerProcess) -> list[Event]:
        events: list[Event] = [FromWorker(worker.slot, message) for message in worker.receive()]
        if worker.broken is not None:
            self._loop.forget(worker.fileno())
            events.append(Garbled(worker.slot, worker.broken))
        return events

    def _hung_up(self, worker: WorkerProcess, now: float) -> list[Event]:
        """Its connection has ended. So has its process, as a rule, or is about to: that is awaited."""
        for fd in worker.descriptors:
            self._loop.forget(fd)
        self._overdue.await_end(worker.slot, now)
        return [HungUp(worker.slot)] if has_hung_up(worker) else []

    def _reports(self, target: int) -> list[Event]:
        events: list[Event] = []
        assert self.zygote is not None
        for report in self.zygote.receive():
            self._overdue.note(report.slot, isinstance(report, Exited))
            if isinstance(report, Exited):
                events += self._exited(report)
            elif report.slot not in self._announced and report.slot < target:
                self._announced.add(report.slot)
                logger.info("Worker[%d] started", report.slot)
        if self.zygote.ended and not self.are_ending:
            self._loop.forget(self.zygote.fileno())
            self.zygote.close()
            how = "ended" if self.zygote.status is None else describe_exit(self.zygote.status)
            logger.error(
                "the process that workers are forked from (pid %d) %s, and %d workers with it: their tasks run again; "
                "another one is started", self.zygote.pid, how, sum(type(event) is WorkerExited for event in events),
            )  # fmt: skip
        return events

    def _exited(self, report: Exited) -> list[Event]:
        worker = self.processes.pop(report.slot, None)
        events: list[Event] = []
        if worker is not None:
            while heard := self._heard(worker):
                events += heard
                if worker.broken is not None:
                    break
            for fd in worker.descriptors:
                self._loop.forget(fd)
            self._loop.ready.pop(worker, None)
            worker.close()
        assert self.zygote is not None
        begun, trouble = self.zygote.progress(report.slot), _trouble_of(report)
        claimed = self.zygote.claimed(report.slot)
        events.append(WorkerExited(report.slot, report.pid, report.status, begun, trouble, claimed))
        self._note_end(report.pid)
        return events

    # ---- what the core wants ---------------------------------------------------------------------------------------
    def start(self, slot: int, nests: bool = False) -> None:
        """Begin to start a worker, with what a client in a task takes if it `nests`; if that can't be, it ends before
        it begins.
        """
        assert self.zygote is not None
        if self.zygote.ended and not self._start_zygote(slot):
            return
        if nests:
            self.zygote.load_client()
        try:
            worker = self.zygote.fork_worker(slot, self._largest)
        except OSError as error:
            self._end_before_it_began(slot, words_of(error))
            return
        self.processes[slot] = worker
        self._overdue.await_start(slot, time.monotonic())
        worker.send(Surroundings(self._context))
        self._loop.watch(worker.fileno(), worker)

    def send(self, effect: ToWorker, following: Effect | None) -> None:
        """Tell a worker, if it is there; `following` is the core's next wish."""
        worker = self.processes.get(effect.slot)
        if worker is None or worker.ended:
            return
        if effect.control:
            is_sent = worker.control(effect.message)
        else:
            more = isinstance(following, ToWorker) and following.slot == effect.slot and not following.control
            is_sent = worker.send(effect.message, more)
        if not is_sent:
            self._watch_writable(worker)

    def kill(self, slot: int) -> None:
        """End a worker and the processes of its group."""
        worker = self.processes.get(slot)
        if worker is not None:
            worker.kill()
            self._overdue.await_end(slot, time.monotonic())

    def look_at(self, slot: int) -> None:
        """See which row a worker is at: an event of the next `gather`."""
        if self.zygote is not None:
            self._seen.append(Looked(slot, self.zygote.progress(slot)))
            self._loop.soon()

    def revoke(self, slot: int, dispatch: int) -> None:
        """Have a worker begin no dispatch up to this one, unless it is at it already."""
        if self.zygote is not None:
            self.zygote.revoke(slot, dispatch)

    def close(self, idle: Iterable[int]) -> None:
        """End all; blocks until they are gone. Those of the `idle` slots end as programs do, others are killed."""
        self.are_ending = True
        if self.zygote is not None:
            self.zygote.close([self.processes[slot] for slot in idle if slot in self.processes])
        for worker in self.processes.values():
            worker.close()

    def _start_zygote(self, slot: int) -> bool:
        """Another one, as the last was killed; if none can be, the worker of this slot ends before it begins."""
        assert self.zygote is not None
        try:
            self.zygote = self.zygote.start_another()
        except OSError as error:
            self._end_before_it_began(slot, f"the process that workers are forked from can't: {words_of(error)}")
            return False
        self._loop.watch(self.zygote.fileno(), self.zygote)
        return True

    def _end_before_it_began(self, slot: int, trouble: str) -> None:
        """How often it is tried again is the core's to decide, as with workers that end while they start."""
        self._seen.append(WorkerExited(slot, 0, 1 << 8, (0, -1), trouble))
        self._loop.soon()

    def _watch_writable(self, worker: WorkerProcess) -> None:
        for fd in worker.want_write():
            self._loop.watch_writable(fd, lambda: self._flush(worker))

    def _flush(self, worker: WorkerProcess) -> None:
        if self.processes.get(worker.slot) is worker:
            worker.flush()
            self._watch_writable(worker)


def _trouble_of(report: Exited) -> str:
    """Which limit has ended a worker that was starting, in words; empty if none has."""
    if report.error:
        return words_of(OSError(report.error, os.strerror(report.error)))
    if report.status == NO_THREAD << 8:
        return words_of(OSError(errno.EAGAIN, "it can start no thread"))
    return ""
