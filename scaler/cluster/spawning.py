"""Starting the process of a local cluster, and waiting for its end."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from math import inf

from scaler.common import standard_descriptors, start_environment
from scaler.common.interpreter import command
from scaler.common.interrupts import Uninterrupted, interrupts_blocked

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.cluster.forking import ForkedProcess

    Process = subprocess.Popen[bytes] | ForkedProcess


def spawn(module: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A fresh interpreter that can import what this one can, and runs `main` of this module; a socket to it.

    `main` is given the number of the socket's other end.
    """
    standard_descriptors.occupy()
    ours, theirs = socket.socketpair()
    program = (
        "import signal; signal.signal(2, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_UNBLOCK, {2}); "
        "from scaler.common.standard_descriptors import complete; complete(); "
        # nothing is garbage of what a module leaves behind: looking for it takes a tenth of the start
        f"import gc; usual = gc.get_threshold(); gc.set_threshold(0); from {module} import main; "
        f"gc.freeze(); gc.set_threshold(*usual); main({theirs.fileno()})"
    )
    environment = {**os.environ, **start_environment.environment()}
    process = None
    try:
        # Ctrl-C reaches it as well, and is for the program alone: until it can say so, the signal waits.
        with theirs, interrupts_blocked():
            process = subprocess.Popen(
                command(program), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        return ours, process
    except BaseException:
        ours.close()
        if process is not None:  # a handler has raised since
            process.kill()
            process.wait()
        raise


def code_of_ended(pid: int) -> int | None:
    """The exit code of a child that has ended, negative for a signal; whoever waits for it is told that as well.

    None if it runs, or has been waited for, or where that can't be known so (macOS). Does not block.
    """
    if not hasattr(os, "waitid"):
        return None
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def await_end(process: Process, patience: float) -> None:
    """Block until a process that was told to end has done so; kill it after so many seconds.

    May be called while the same thread is in it, by the handler of a signal, as `Popen.wait` may not.
    """
    if not _ends_within(process, patience):
        process.kill()
        _ends_within(process, inf)


def _ends_within(process: Process, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while True:
        with Uninterrupted():  # `Popen` holds a lock meanwhile
            if process.poll() is not None:
                return True
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
