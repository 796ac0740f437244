"""Starting the process of a local cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

from scaler.common import hugepages, standard_descriptors
from scaler.common.interpreter import command


def spawn(module: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A fresh interpreter that can import what this one can, and runs `main` of this module; a socket to it.

    `main` is given the number of the socket's other end.
    """
    standard_descriptors.occupy()
    ours, theirs = socket.socketpair()
    program = (
        "import signal; signal.signal(2, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_UNBLOCK, {2}); "
        "from scaler.common.standard_descriptors import complete; complete(); "
        f"from {module} import main; main({theirs.fileno()})"
    )
    environment = {**os.environ, **hugepages.environment()}
    # Ctrl-C reaches it as well, and is for the program alone: until it can say so, the signal waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with theirs:
            return ours, subprocess.Popen(
                command(program), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
