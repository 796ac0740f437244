"""The zygote: a small process with one thread from which workers are forked.

Forking a worker off the agent itself would copy its threads' locks, its sockets and its memory. The zygote is forked
before any of those exist. It has imported what a worker needs, never runs user code, and waits for two things: commands
of the agent and the deaths of its children. When the agent is gone, it kills all workers and their process groups.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from scaler.agent.orders import COMMAND, EXITED, FORK, LOAD, READY, REPORT, SOCKETS, STARTED
from scaler.agent.settling import WorkerOptions, settle_in
from scaler.agent.warm_process import can_warm, fork
from scaler.agent.warm_workers import WarmWorkers, kill_group
from scaler.common.children import die_with_parent, signal_at_parents_end
from scaler.common.later_modules import load_all
from scaler.common.outlet import put
from scaler.store.directory import clean_up_dead
from scaler.store.spill import clean_up_spilled
from scaler.worker import worker_process
from scaler.worker_protocol.progress import LEFT_CELL, PAGE_CELLS

#: what a client in a task is made of
CLIENT = ("scaler.client.client",)


def serve(agent: socket.socket, page: mmap.mmap, options: WorkerOptions) -> NoReturn:
    """Be the zygote until the agent is gone."""
    try:
        path = [*sys.path]
        settle_in(agent, options)
        zygote = _Zygote(agent, page, path, options.spill_directory)
        zygote.wake_at_agents_end()
        missing = [name for name in options.warm_modules if name not in sys.modules]
        if missing and can_warm():
            zygote.warm_up(missing, options.is_early)
        zygote.run()
    finally:
        os._exit(1)


class _Zygote:
    def __init__(self, agent: socket.socket, page: mmap.mmap, path: list[str], spill_root: str | None = None) -> None:
        self._agent = agent
        self._page = page
        #: where the agent finds modules; that of workers has the user's, too
        self._path = path
        #: where an agent that was killed has left objects on disk; None: where temporary files are
        self._spill_root = spill_root
        #: slot of each worker that was not reaped yet
        self._slots: dict[int, int] = {}
        #: there once modules are to be loaded
        self._warm: WarmWorkers | None = None
        #: reports that the agent has not taken yet
        self._unsent = bytearray()
        self._pid = os.getpid()
        self._child_ended, self._waking_end = os.pipe()
        for descriptor in (self._child_ended, self._waking_end):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking_end, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))  # the program may have it blocked

    def wake_at_agents_end(self) -> None:
        """Have the kernel let this go on when the agent has ended, for whoever has stopped it: it is to clean up."""
        signal_at_parents_end(signal.SIGCONT)

    def warm_up(self, names: Sequence[str], is_early: bool) -> None:
        """Begin to load these modules in a process of their own, from which workers are forked when it has them."""

        def become(its: socket.socket, load: Callable[[], None]) -> NoReturn:
            self._leave_zygote()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            load()
            zygote = _Zygote(its, self._page, self._path)
            zygote._report(READY, 0, os.getpid(), 0)
            zygote.run()

        self._warm = WarmWorkers(names, is_early, become, self._report, self._fork)

    def run(self) -> NoReturn:
        while True:
            warm = self._warm
            heard = [self._agent.fileno(), self._child_ended]
            if warm is not None and warm.socket is not None:
                heard.append(warm.socket.fileno())
            poll = select.poll()
            for descriptor in heard:
                poll.register(descriptor, select.POLLIN)
            if self._unsent:
                poll.register(self._agent, select.POLLIN | select.POLLOUT)
            ready = dict(poll.poll(warm.patience if warm is not None else None))
            if warm is not None and any(descriptor in ready for descriptor in heard[2:]):
                warm.hear()
            if self._child_ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._child_ended, 4096)
                self._reap()
            events = ready.get(self._agent.fileno(), 0)
            if events & select.POLLOUT:
                self._send_reports()
            if events & ~select.POLLOUT:
                self._obey()
            if warm is not None:
                warm.release()

    def _obey(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._agent, COMMAND.size, SOCKETS)
        except ConnectionError:
            data = b""
        if len(data) < COMMAND.size:
            self._end()
        command, slot = COMMAND.unpack(data)
        if command == FORK:
            self._begin(slot, descriptors)
            return
        if command == LOAD:
            self._load_client()
            return
        for pid, its_slot in self._slots.items():
            if its_slot == slot:
                _kill(pid)
        if self._warm is not None:
            self._warm.kill(slot)

    def _load_client(self) -> None:
        of_workers, sys.path[:] = [*sys.path], self._path
        load_all(CLIENT)
        sys.path[:] = of_workers
        gc.collect()
        gc.freeze()  # workers share the memory of that, too
        if self._warm is not None:
            self._warm.load_client()

    def _begin(self, slot: int, descriptors: Sequence[int]) -> None:
        """Start a worker with these sockets, now or when the warm process is ready."""
        if len(descriptors) < SOCKETS:
            _complain("cannot start a worker: the process that forks them has no descriptors left")
            for descriptor in descriptors:
                os.close(descriptor)
            self._report(EXITED, slot, 0, 1 << 8)
            return
        (self._fork if self._warm is None else self._warm.fork)(slot, *descriptors)

    def _fork(self, slot: int, task: int, control: int) -> None:
        try:
            pid = fork()
        except OSError as error:
            self._report(EXITED, slot, -(error.errno or errno.EAGAIN), 1 << 8)
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
            self._leave_zygote()
            promised = self._warm.packages if self._warm is not None else frozenset()
            cells = self._page_of(slot)
            sockets = [socket.socket(fileno=descriptor) for descriptor in (task, control)]
            for sock in sockets:
                sock.set_inheritable(False)
            worker_process.serve(slot, sockets[0], sockets[1], cells, promised)
        finally:
            os._exit(1)

    def _leave_zygote(self) -> None:
        """In a child: die with the zygote, and close what is its alone."""
        die_with_parent(self._pid)
        signal.set_wakeup_fd(-1)
        os.close(self._child_ended)
        os.close(self._waking_end)
        self._agent.close()
        if self._warm is not None:
            self._warm.close()

    def _reap(self) -> None:
        while self._slots or self._warm is not None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = self._slots.pop(pid, None)
            if slot is None:
                if self._warm is not None:
                    self._warm.take_end(pid)
            else:
                kill_group(pid)
                if self._warm is not None and self._page_of(slot)[LEFT_CELL]:
                    self._warm.note_left()
                self._report(EXITED, slot, pid, status)

    def _page_of(self, slot: int) -> memoryview:
        begin = slot * PAGE_CELLS
        return memoryview(self._page).cast("Q")[begin : begin + PAGE_CELLS]

    def _report(self, what: int, slot: int, pid: int, status: int) -> None:
        self._unsent += REPORT.pack(what, slot, pid, status)
        self._send_reports()

    def _send_reports(self) -> None:
        """Tell the agent what it takes now: it may itself wait until its commands are read, and read nothing."""
        try:
            del self._unsent[: self._agent.send(self._unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _end(self) -> NoReturn:
        for pid in self._slots:
            _kill(pid)
        for pid in self._slots:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)
        if self._warm is not None:
            self._warm.end()
        # an agent that was killed has left its store behind
        clean_up_dead()
        clean_up_spilled(self._spill_root)
        os._exit(0)


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # whoever read it is gone; if it has stopped, nobody waits for it
        put(2, f"{text}\n".encode())


def _kill(pid: int) -> None:
    """Kill a worker that was not reaped, in whatever group a task has put it, and what its tasks have started."""
    os.kill(pid, signal.SIGKILL)
    kill_group(pid)
