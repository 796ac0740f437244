"""A zygote of a fresh interpreter: for an agent whose first one was killed.

The first one is forked off the agent before that has threads, sockets or loops. By the time another one is needed it
has all of these, so this one is executed: it takes a tenth of a second longer, and then serves as the first one did.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from typing import NoReturn

from scaler.agent.settling import WorkerOptions, leave_session
from scaler.common import start_environment
from scaler.common.interpreter import command


def spawn(size: int, options: WorkerOptions) -> tuple[subprocess.Popen[bytes], socket.socket, mmap.mmap]:
    """A process that becomes a zygote, the agent's end of its socket, and the page of so many bytes that they share.

    Raises OSError.
    """
    ours, its = socket.socketpair()
    try:
        with its, tempfile.TemporaryFile() as shared, tempfile.TemporaryFile() as told:
            shared.truncate(size)
            page = mmap.mmap(shared.fileno(), size)
            # not among its arguments, which anybody on this host may read
            told.write(json.dumps(dataclasses.asdict(options), default=list).encode())
            told.seek(0)
            program = f"from scaler.agent.spawned_zygote import main; main({its.fileno()}, {shared.fileno()}, {size})"
            environment = {**os.environ, **start_environment.environment()}
            process = subprocess.Popen(
                command(program), stdin=told, pass_fds=[its.fileno(), shared.fileno()], env=environment
            )
    except BaseException:
        ours.close()
        raise
    return process, ours, page


def main(agent: int, shared: int, size: int) -> NoReturn:
    """Be the zygote, with the descriptors of these numbers; what workers are lent is read from the standard input."""
    leave_session()
    from scaler.agent import zygote

    options = WorkerOptions(**json.load(sys.stdin))
    zygote.serve(socket.socket(fileno=agent), mmap.mmap(shared, size), options)
