"""What a cluster must not leave: processes, files in /dev/shm, sockets in /tmp."""

import contextlib
import os
import re
import socket
import stat
import uuid
from pathlib import Path

import psutil

from support.waiting import until

#: the environment variable that all descendants of a test's programs inherit, and nobody else has
MARK = "SCALER_TEST_MARK"
#: what the directory of a store is called; with the process id of its agent
_STORE = re.compile(r"\.?scaler-\d+-(\d+)-")


def alive(pid: int) -> bool:
    """Say whether there is such a process that is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def workers_of(pid: int) -> list[int]:
    """Return the process ids of the workers of an agent, or of a local cluster: its children's children."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return sorted(worker.pid for zygote in psutil.Process(pid).children() for worker in zygote.children())
    return []


class Traces:
    """Knows what was there before a test, and checks that no more is there after it."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._before = _files()

    def marked(self) -> list[psutil.Process]:
        """Return the processes that descend from the test's programs."""
        return [process for process in psutil.process_iter() if self._is_marked(process)]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                return False
            return process.environ().get(MARK) == self.mark
        except psutil.Error:
            return False

    def check(self, deadline: float = 10.0) -> None:
        """Fail if something is left that does not go away by itself; processes that are left are killed."""
        try:
            until(lambda: not self.marked(), "the test's processes to end", deadline)
        except AssertionError:
            left = self.marked()
            names = []
            for process in left:
                with contextlib.suppress(psutil.Error):
                    names.append(f"{process.pid}: {process.cmdline()}")
                    process.kill()
            raise AssertionError(f"processes are left behind: {names}") from None
        until(lambda: not _files() - self._before, f"files to go away: {_files() - self._before}", deadline)
        _remove_dead_doors()


def _remove_dead_doors() -> None:
    """Remove the sockets for monitors of schedulers that tests have killed: those could not do it any more."""
    for path in Path("/tmp").glob("*_monitor"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
            if stat.S_ISSOCK(path.lstat().st_mode) and path.stat().st_uid == os.getuid():
                try:
                    tried.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()


def _files() -> set[str]:
    """Return what is Scaler's in /dev/shm, and its sockets in /tmp; stores of living agents are another test's."""
    found = set()
    for directory in ("/dev/shm", "/tmp"):
        with contextlib.suppress(OSError):
            for path in Path(directory).glob("*scaler*"):
                with contextlib.suppress(OSError):
                    store = _STORE.match(path.name)
                    if store is not None and alive(int(store[1])):
                        continue
                    if directory == "/dev/shm" or stat.S_ISSOCK(path.lstat().st_mode):
                        found.add(str(path))
    return found
