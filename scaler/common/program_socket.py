"""The socket between a program and a process of its own, which ends with it."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def program_at(fd: int) -> Iterator[socket.socket]:
    """The process's end of it, which has this number. Ctrl-C is the program's to handle from now on."""
    with socket.socket(fileno=fd) as program:
        program.set_inheritable(False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        yield program
