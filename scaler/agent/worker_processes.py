"""The agent's side of its workers: starting, talking to, killing them, and learning of their deaths.

agent ──commands, SCM_RIGHTS──► zygote ──fork──► worker        the zygote's socket: Started, Exited
  ▲▲                                               ▲▲
  │└── task socket: rows, results ─────────────────┘│
  └─── control socket: recall, publish ─────────────┘
  one page of memory shared by all: which row each worker has begun
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from scaler.agent.orders import COMMAND, FORK, KILL, LOAD, REPORT, SOCKETS, STARTED
from scaler.agent.settling import WorkerOptions, leave_session
from scaler.common.process_limits import allow_descriptors, most_descriptors
from scaler.errors import ScalerError
from scaler.worker_protocol.encoding import read_by_agent
from scaler.worker_protocol.messages import FromWorker, Quit, ToWorker
from scaler.worker_protocol.progress import BEGUN_CELL, CLAIMED_CELL, DISPATCH_CELL, PAGE_CELLS, REVOKED_CELL, ROW_CELL
from scaler.worker_protocol.socketpair import LARGEST_MESSAGE, QueuingSender, Receiver

if TYPE_CHECKING:
    import subprocess

__all__ = ["Exited", "Started", "WorkerOptions", "WorkerProcess", "Zygote"]

_SOCKET_BUFFER = 1 << 20
#: bytes that a worker says before others are heard: each line that a task prints takes as long as a result
_TURN = 1 << 14
#: slots for workers beyond the configured ones, for blocked tasks
EXTRA_SLOTS = 600
#: descriptors that this has beside those
_OTHERS = 32
#: those of connections to the stores of other hosts (see `store.fetching`), if this may have so many more
_TO_STORES = 2048
#: seconds that workers without a task have to end as programs do
GRACE = 1.0


def check_descriptors(workers: int, needed: int | None = None) -> None:
    """Raises ScalerError if this process may not have the sockets of so many workers.

    With those it has as many descriptors as are `needed`; by default as many as an agent has.
    """
    needed = workers * SOCKETS + _OTHERS if needed is None else needed
    has = most_descriptors()
    if has < needed:
        who = "1 worker needs" if workers == 1 else f"{workers:,} workers need"
        raise ScalerError(
            f"{who} {needed:,} descriptors, and a process may have {has:,} open here "
            "(RLIMIT_NOFILE): start fewer, or raise that with `ulimit -n`, as root, before"
        )


class Started(NamedTuple):
    """A worker has a process; it says `Ready` when it can be given rows."""

    slot: int
    pid: int


class Exited(NamedTuple):
    """A worker has ended and is reaped; pid is 0 when there never was a process."""

    slot: int
    pid: int
    #: as of os.waitpid
    status: int
    #: the number of the system's error if there can be no process
    error: int = 0


class WorkerProcess:
    """One worker, as the agent sees it. Nothing here blocks."""

    def __init__(
        self, slot: int, task: socket.socket, control: socket.socket, zygote: Zygote, largest: int = LARGEST_MESSAGE
    ) -> None:
        """`largest`: bytes of a message that it may say."""
        self.slot = slot
        #: known when Started has been received
        self.pid: int | None = None
        #: the worker has closed its end; its Exited follows
        self.ended = False
        self._zygote = zygote
        self._task = task
        self._control = control
        self._receiver = Receiver(task, read_by_agent, _TURN, largest)
        #: why nothing more can be read of what it says: bytes came that are no message
        self.broken: str | None = None
        self._tasks_out = QueuingSender(task)
        self._control_out = QueuingSender(control)

    def fileno(self) -> int:
        """Return the task socket, readable when there are messages or the worker has ended."""
        return self._task.fileno()

    @property
    def descriptors(self) -> tuple[int, int]:
        """All that a loop may watch."""
        return self._task.fileno(), self._control.fileno()

    def receive(self) -> list[FromWorker]:
        """Return complete messages, those of a turn; when the worker has ended, the last ones and then none."""
        if self.ended:
            return []
        try:
            messages = self._receiver.read()
            self.broken = self._receiver.broken
            return messages
        except (EOFError, OSError):
            self.ended = True
            return []

    def send(self, message: ToWorker, more: bool = False) -> bool:
        """Send on the task socket, now or when it is writable; False if something waits for that. `more` follows."""
        return self._tasks_out.send(message, more)

    def control(self, message: ToWorker) -> bool:
        """Send on the control socket, which the worker reads also while it runs user code; as `send`."""
        return self._control_out.send(message)

    def want_write(self) -> list[int]:
        """Return the file descriptors to call `flush` for when one is writable."""
        both = ((self._tasks_out, self._task), (self._control_out, self._control))
        return [sock.fileno() for out, sock in both if out.waiting]

    def flush(self) -> None:
        """Send what waits, as far as the sockets take it."""
        self._tasks_out.flush()
        self._control_out.flush()

    def kill(self) -> None:
        """Kill the worker and the processes of its group, at once; its Exited follows."""
        self._zygote.kill(self)

    def close(self) -> None:
        """Close the sockets; a worker that still lives ends."""
        self.ended = True
        self._task.close()
        self._control.close()


class Zygote:
    """The process that workers are forked from, as the agent sees it."""

    def __init__(
        self,
        pid: int,
        sock: socket.socket,
        page: mmap.mmap,
        options: WorkerOptions,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """`process` if it was not forked but executed."""
        self.pid = pid
        #: the zygote is gone, and all workers with it; nothing can be forked off it any more
        self.ended = False
        self._socket = sock
        self._page = memoryview(page).cast("Q")
        #: the worker of each slot whose Exited was not received yet
        self._workers: dict[int, WorkerProcess] = {}
        self._unparsed = b""
        self._options = options
        self._process = process
        #: it was told to load what a client is made of
        self._has_client = False
        #: how it ended, as of os.waitpid; None: it has not, or nobody knows
        self.status: int | None = None

    @classmethod
    def start(cls, slots: int, options: WorkerOptions | None = None) -> Zygote:
        """Fork the zygote, with room for `slots` workers. Call it before this process has threads, sockets or loops."""
        page, options = mmap.mmap(-1, max(1, slots) * PAGE_CELLS * 8), options or WorkerOptions()
        ours, its = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                leave_session()
                from scaler.agent import zygote  # here: what workers need is loaded while the agent begins

                zygote.serve(its, page, options)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        its.close()
        # here, so that workers have the limit of who starts them
        allow_descriptors(slots * SOCKETS + _OTHERS + _TO_STORES)
        return cls(pid, ours, page, options)

    def start_another(self) -> Zygote:
        """Another one for the same slots, whatever this process has by now: this one was killed. Raises OSError."""
        from scaler.agent.spawned_zygote import spawn  # here, as agents should start without it

        process, sock, page = spawn(self._page.nbytes, dataclasses.replace(self._options, is_early=False))
        return Zygote(process.pid, sock, page, self._options, process)

    def fork_worker(self, slot: int, largest: int = LARGEST_MESSAGE) -> WorkerProcess:
        """Begin to start a worker in a free slot. Messages may be sent to it at once; it may say one of so many bytes.

        Raises ValueError when the slot is in use or there is no such slot, ConnectionError when the zygote is gone, and
        OSError when this process has no descriptors left, or this user too many on their way.
        """
        if not 0 <= slot < len(self._page) // PAGE_CELLS:
            raise ValueError(f"slot {slot} is out of range")
        if slot in self._workers:
            raise ValueError(f"slot {slot} has a worker already")
        if self.ended:
            raise ConnectionError("the zygote is gone")
        begin = slot * PAGE_CELLS
        for cell in range(begin, begin + PAGE_CELLS):
            self._page[cell] = 0
        pairs: list[tuple[socket.socket, socket.socket]] = []
        try:
            while len(pairs) < SOCKETS:
                pairs.append(socket.socketpair())
        except OSError:
            for sock in itertools.chain(*pairs):
                sock.close()
            raise
        for pair in pairs:
            for sock in pair:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        (task, its_task), (control, its_control) = pairs
        worker = WorkerProcess(slot, task, control, self, largest)
        with its_task, its_control:
            try:
                socket.send_fds(self._socket, [COMMAND.pack(FORK, slot)], [its_task.fileno(), its_control.fileno()])
            except ConnectionError:  # told by `receive`
                pass
            except OSError:
                worker.close()
                raise
        self._workers[slot] = worker
        return worker

    def load_client(self) -> None:
        """Have workers from now on begin with what a client in a task is made of: each would load it for itself."""
        if not self._has_client and not self.ended:
            self._has_client = True
            with contextlib.suppress(ConnectionError):  # told by `receive`
                self._socket.sendall(COMMAND.pack(LOAD, 0))

    def fileno(self) -> int:
        """Return the zygote's socket, readable when `receive` has something."""
        return self._socket.fileno()

    def receive(self) -> list[Started | Exited]:
        """Return what has become of workers, without blocking."""
        reports: list[Started | Exited] = []
        if self.ended:
            return reports
        while True:
            try:
                data = self._socket.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return reports
            except ConnectionError:
                data = b""
            if not data:
                return reports + self._end()
            self._unparsed += data
            whole = len(self._unparsed) // REPORT.size * REPORT.size
            for what, slot, pid, status in REPORT.iter_unpack(self._unparsed[:whole]):
                if what == STARTED:
                    if slot in self._workers:
                        self._workers[slot].pid = pid
                    reports.append(Started(slot, pid))
                else:
                    self._workers.pop(slot, None)
                    reports.append(Exited(slot, max(0, pid), status, max(0, -pid)))
            self._unparsed = self._unparsed[whole:]

    def progress(self, slot: int) -> tuple[int, int]:
        """Return (dispatch, row) that the worker of a slot is at, also after its death; row -1 for none.

        The row has begun, or what it needs is being loaded.
        """
        begin = slot * PAGE_CELLS
        return self._page[begin + DISPATCH_CELL], self._page[begin + ROW_CELL] - 1

    def claimed(self, slot: int) -> int:
        """Return in how many tasks the row was submitted that this one has claimed and runs in its stack; -1: none."""
        claimed: int = self._page[slot * PAGE_CELLS + CLAIMED_CELL] - 1
        return claimed

    def begun(self, slot: int) -> int:
        """Return when that row began, in ns of time.monotonic_ns(); 0 if it has not."""
        began: int = self._page[slot * PAGE_CELLS + BEGUN_CELL]
        return began

    def revoke(self, slot: int, dispatch: int) -> None:
        """Have the worker of a slot begin no dispatch up to this one, unless it is at it already."""
        self._page[slot * PAGE_CELLS + REVOKED_CELL] = dispatch

    def kill(self, worker: WorkerProcess) -> None:
        """Kill a worker with its process group."""
        if self._workers.get(worker.slot) is worker and not self.ended:
            with contextlib.suppress(ConnectionError):
                self._socket.sendall(COMMAND.pack(KILL, worker.slot))

    def close(self, idle: Sequence[WorkerProcess] = (), timeout: float = 5.0) -> None:
        """End all workers and the zygote; blocks until they are gone, at most `timeout` seconds.

        `idle` workers have GRACE seconds for their `atexit` functions; the others, and who needs longer, are killed.
        """
        if not self._socket._closed:  # type: ignore[attr-defined]
            for worker in idle:
                worker.send(Quit())
            self._await(lambda: any(self._workers.get(worker.slot) is worker for worker in idle), GRACE)
            if not self.ended:
                os.kill(self.pid, signal.SIGCONT)  # a task may have stopped it
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            self._await(lambda: True, timeout)
            if not self.ended:
                os.kill(self.pid, signal.SIGKILL)
                self._end()
        self._socket.close()

    def _await(self, more: Callable[[], bool], timeout: float) -> None:
        """Take reports while there is more to come, and the zygote lives."""
        deadline = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self.ended and more() and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            self.receive()

    def _end(self) -> list[Exited]:
        """Account for the end of the zygote: its workers died with it."""
        self.ended = True
        exits = []
        for slot, worker in self._workers.items():
            if worker.pid is not None:
                with contextlib.suppress(OSError):
                    os.killpg(worker.pid, signal.SIGKILL)
            exits.append(Exited(slot, worker.pid or 0, signal.SIGKILL))
        self._workers.clear()
        with contextlib.suppress(ChildProcessError):
            _, self.status = os.waitpid(self.pid, 0)
        if self._process is not None:
            self._process.returncode = self.status
        return exits
