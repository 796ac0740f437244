"""Process 1 of a container inherits all whose parents have ended, and nobody but it can reap them.

A program that did so would take the exit codes of its own children from those who wait for them. So it runs in a child
of process 1, which is left to pass signals on, to reap, and to end as the program has ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection

from scaler.common.exits import exit_code

#: pid of the first process of a container
FIRST = 1
#: what a process does to itself, or can't be passed on
_KEPT = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV,
    signal.SIGSYS, signal.SIGTRAP, signal.SIGTTIN, signal.SIGTTOU,
}  # fmt: skip
#: what a terminal tells all processes in its foreground, the program among them
_TOLD_TO_ALL = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH}


def run_in_child() -> None:
    """Where this is process 1, the program goes on in a child. Call it before there are threads."""
    if os.getpid() != FIRST:
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    passed = signal.valid_signals() - _KEPT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed)  # what is blocked is not lost on process 1
    program = os.fork()
    if program:
        os._exit(_outlast(program, passed))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outlast(program: int, passed: Collection[int]) -> int:
    """Reap all that end, and pass signals on, until the program has ended; its exit code. Blocks."""
    while True:
        told = signal.sigwaitinfo(passed)
        if told.si_signo == signal.SIGCHLD:
            status = _reap(program)
            if status is not None:
                return exit_code(status)
        elif told.si_code <= 0 or told.si_signo not in _TOLD_TO_ALL:  # positive: the kernel tells of a terminal
            os.kill(program, told.si_signo)


def _reap(program: int) -> int | None:
    """Reap all that have ended; how the program did, if it is among them."""
    found = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                found = ended[1]
    except ChildProcessError:
        pass
    return found
