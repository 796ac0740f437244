"""The zygote: a small process with one thread from which workers are forked.

Forking a worker off the agent itself would copy its threads' locks, its sockets and its memory. The zygote is forked
before any of those exist. It has imported what a worker needs, never runs user code, and waits for two things: commands
of the agent and the deaths of its children. When the agent is gone, it kills all workers and their process groups.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from scaler.store.directory import clean_up_dead
from scaler.store.spill import SPILL_PREFIX
from scaler.worker import worker_process
from scaler.worker_protocol.progress import PAGE_CELLS

#: agent to zygote: what, slot; a FORK brings two file descriptors (task, control)
COMMAND = struct.Struct("=II")
FORK, KILL = 1, 2

#: zygote to agent: what, slot, pid, wait status
REPORT = struct.Struct("=IIiI")
STARTED, EXITED = 1, 2

_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """What a user's program lends its workers; None leaves what the agent has."""

    sys_path: Sequence[str] | None = None
    cwd: str | None = None
    environ: Mapping[str, str] | None = None


def serve(agent: socket.socket, page: mmap.mmap, options: WorkerOptions) -> NoReturn:
    """Be the zygote until the agent is gone."""
    try:
        _settle_in(agent, options)
        _Zygote(agent, page).run()
    finally:
        os._exit(1)


class _Zygote:
    def __init__(self, agent: socket.socket, page: mmap.mmap) -> None:
        self._agent = agent
        self._page = page
        #: slot of each worker that was not reaped yet
        self._slots: dict[int, int] = {}
        self._pid = os.getpid()
        self._die_with_parent = _find_prctl()
        self._child_ended, self._waking_end = os.pipe()
        for descriptor in (self._child_ended, self._waking_end):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking_end, warn_on_full_buffer=False)

    def run(self) -> NoReturn:
        poll = select.poll()
        poll.register(self._agent, select.POLLIN)
        poll.register(self._child_ended, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._child_ended:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._child_ended, 4096)
                    self._reap()
                else:
                    self._obey()

    def _obey(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._agent, COMMAND.size, 2)
        except ConnectionError:
            data = b""
        if len(data) < COMMAND.size:
            self._end()
        command, slot = COMMAND.unpack(data)
        if command == FORK:
            self._fork(slot, descriptors[0], descriptors[1])
        else:
            for pid, its_slot in self._slots.items():
                if its_slot == slot:
                    _kill_group(pid)

    def _fork(self, slot: int, task: int, control: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            sys.stderr.write(f"cannot fork a worker: {error}\n")
            sys.stderr.flush()
            self._report(EXITED, slot, 0, 1 << 8)
        else:
            if pid == 0:
                self._be_worker(slot, task, control)
            # Both do it, so that the group exists before either goes on.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            self._slots[pid] = slot
            self._report(STARTED, slot, pid, 0)
        os.close(task)
        os.close(control)

    def _be_worker(self, slot: int, task: int, control: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            if self._die_with_parent is not None:
                self._die_with_parent(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != self._pid:
                    os._exit(1)
            signal.set_wakeup_fd(-1)
            os.close(self._child_ended)
            os.close(self._waking_end)
            self._agent.close()
            begin = slot * PAGE_CELLS
            cells = memoryview(self._page).cast("Q")[begin : begin + PAGE_CELLS]
            sockets = [socket.socket(fileno=descriptor) for descriptor in (task, control)]
            for sock in sockets:
                sock.set_inheritable(False)
            worker_process.serve(slot, sockets[0], sockets[1], cells)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while self._slots:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = self._slots.pop(pid, None)
            if slot is not None:
                _kill_group(pid)
                self._report(EXITED, slot, pid, status)

    def _report(self, what: int, slot: int, pid: int, status: int) -> None:
        try:
            self._agent.sendall(REPORT.pack(what, slot, pid, status))
        except OSError:
            self._end()

    def _end(self) -> NoReturn:
        for pid in self._slots:
            _kill_group(pid)
        for pid in self._slots:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
        import tempfile  # here, as it is slow to load

        # an agent that was killed has left its store behind
        clean_up_dead()
        clean_up_dead(tempfile.gettempdir(), SPILL_PREFIX)
        os._exit(0)


def _kill_group(pid: int) -> None:
    """Kill a worker and what its tasks have started."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _find_prctl() -> Callable[..., int] | None:
    """Return the C function `prctl`, or None where there is none."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    return prctl


def _settle_in(agent: socket.socket, options: WorkerOptions) -> None:
    """Leave the agent's session, files and script behind."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.closerange(3, agent.fileno())
    os.closerange(agent.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for number in (1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    if null > 2:
        os.close(null)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as there are workers
    sys.modules["__main__"] = types.ModuleType("__main__")
    if options.environ is not None:
        os.environ.clear()
        os.environ.update(options.environ)
        time.tzset()
    if options.cwd is not None:
        with contextlib.suppress(OSError):
            os.chdir(options.cwd)
    if options.sys_path is not None:
        sys.path[:] = options.sys_path
    # Workers share the memory of what is here now, and nothing here is ever collected.
    gc.collect()
    gc.disable()
    gc.freeze()
