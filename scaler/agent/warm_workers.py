"""The zygote's side of the warm process: workers that live there, and those that wait until it is ready.

Before it is ready, workers are forked off the zygote. One of them that leaves since its rows need what is being loaded
has the next one wait for the warm process, at most PATIENCE seconds.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from scaler.agent.orders import COMMAND, EXITED, FORK, KILL, LOAD, READY, REPORT, STARTED
from scaler.agent.warm_process import Become, WarmProcess

#: seconds that a worker waits for the warm process to become ready
PATIENCE = 10.0


class _Waiting(NamedTuple):
    """A worker to be forked: its slot, its sockets, and how long it waits."""

    slot: int
    task: int
    control: int
    until: float


class WarmWorkers:
    """Places workers in the warm process, or in the zygote. Nothing here blocks."""

    def __init__(
        self,
        names: Sequence[str],
        is_early: bool,
        become: Become,
        report: Callable[[int, int, int, int], None],
        fork: Callable[[int, int, int], None],
    ) -> None:
        """Begin to load the modules of these names; `is_early`: before there is a cluster.

        `become` is what the warm process calls, `report` tells the agent, `fork` forks a worker off the zygote.
        """
        self._report = report
        self._fork = fork
        #: workers of the warm process by slot, and their pids; 0 while that is not known
        self._pids: dict[int, int] = {}
        self._waiting: list[_Waiting] = []
        #: how many workers have left, for whom no other one was asked for yet
        self._left = 0
        #: of a report
        self._unparsed = b""
        self._process = WarmProcess(names, is_early, become)
        self._process.begin()

    @property
    def socket(self) -> socket.socket | None:
        """Readable when `hear` has something to do; None when the warm process is gone."""
        return self._process.socket

    @property
    def packages(self) -> frozenset[str]:
        """What workers of the warm process have loaded, or will have."""
        return self._process.packages

    @property
    def patience(self) -> float | None:
        """Milliseconds until `release` has something to do; None for ever."""
        if not self._waiting:
            return None
        return max(0.0, min(waiting.until for waiting in self._waiting) - time.monotonic()) * 1000

    def note_left(self) -> None:
        """A worker has left, to make room for one of the warm process."""
        self._left += 1

    def fork(self, slot: int, task: int, control: int) -> None:
        """Fork a worker, maybe later; takes the sockets."""
        self._process.note_cluster()
        comes_after_one_that_left = self._left > 0
        self._left = max(0, self._left - 1)
        if comes_after_one_that_left and self.packages and not self._process.is_ready:
            self._waiting.append(_Waiting(slot, task, control, time.monotonic() + PATIENCE))
            self._process.hurry()
        else:
            self._place(slot, task, control)

    def kill(self, slot: int) -> None:
        """Kill the worker of a slot, if it is one of these."""
        if slot in self._pids:
            self._send(COMMAND.pack(KILL, slot))
        for waiting in [waiting for waiting in self._waiting if waiting.slot == slot]:
            self._waiting.remove(waiting)
            os.close(waiting.task)
            os.close(waiting.control)
            self._report(EXITED, slot, 0, signal.SIGKILL)

    def load_client(self) -> None:
        """Have the warm process load what a client in a task is made of."""
        self._send(COMMAND.pack(LOAD, 0))

    def hear(self) -> None:
        """Take what the warm process reports."""
        sock = self._process.socket
        try:
            data = sock.recv(4096) if sock is not None else b""
        except ConnectionError:
            data = b""
        if not data:
            self._process.kill()
            return
        self._unparsed += data
        whole = len(self._unparsed) // REPORT.size * REPORT.size
        for what, slot, pid, status in REPORT.iter_unpack(self._unparsed[:whole]):
            if what == READY:
                self._process.is_ready = True
                continue
            if what == STARTED:
                self._pids[slot] = pid
            else:
                self._pids.pop(slot, None)
            self._report(what, slot, pid, status)
        self._unparsed = self._unparsed[whole:]

    def release(self) -> None:
        """Fork those that need not wait any more."""
        if self.patience == 0.0 and not self._process.is_ready:
            self._process.give_up()
        while self._waiting and (self._process.is_ready or not self.packages):
            slot, task, control, _ = self._waiting.pop(0)
            self._place(slot, task, control)

    def take_end(self, pid: int) -> bool:
        """Say whether the process that was reaped is the warm process; then its workers have ended with it."""
        if pid != self._process.pid:
            return False
        self._unparsed = b""
        for slot, worker in self._pids.items():
            if worker:
                kill_group(worker)
            self._report(EXITED, slot, worker, signal.SIGKILL)
        self._pids.clear()
        self._process.take_end()
        return True

    def end(self) -> None:
        """End the warm process with its workers; blocks until they are gone."""
        self._process.end()

    def close(self) -> None:
        """In a child of the zygote: close what is the zygote's."""
        if self._process.socket is not None:
            self._process.socket.close()
        for waiting in self._waiting:
            os.close(waiting.task)
            os.close(waiting.control)

    def _place(self, slot: int, task: int, control: int) -> None:
        if self._process.is_ready and self._send(COMMAND.pack(FORK, slot), [task, control]):
            self._pids[slot] = 0
            os.close(task)
            os.close(control)
        else:
            self._fork(slot, task, control)

    def _send(self, command: bytes, descriptors: Sequence[int] = ()) -> bool:
        """Tell the warm process; say False if it has just died."""
        sock = self._process.socket
        try:
            return sock is not None and socket.send_fds(sock, [command], descriptors) > 0
        except OSError:
            return False


def kill_group(pid: int) -> None:
    """Kill a worker and what its tasks have started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:  # they have ended
        pass
