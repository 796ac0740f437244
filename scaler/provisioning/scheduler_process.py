"""The scheduler of a `Cluster`: a process that ends with its program. Its agents are those of other processes."""

from __future__ import annotations

import json
import socket

from scaler.common import log_lines
from scaler.common.program_socket import program_at
from scaler.common.unexpected_end import told_in_log
from scaler.config import SchedulerConfig, from_plain_values
from scaler.scheduler.server import open_server
from scaler.transport import Address, Security, exposure


def main(fd: int) -> None:
    """Serve the program at the other end of this socket until it closes it."""
    with program_at(fd) as program:
        _serve(program)


def _serve(program: socket.socket) -> None:
    with program.makefile("rb") as lines:
        options = json.loads(lines.readline() or b"{}")
    if not options:
        return
    try:
        config = from_plain_values(SchedulerConfig, options["scheduler"])
        log_lines.set_up(config.log_level)
        security = Security.from_env(options["security"])
        assert security is not None
        exposure(security, Address.parse(config.address), is_said=False)
        server = open_server(config, security)
    except Exception as error:
        program.sendall(json.dumps({"error": str(error), "kind": type(error).__name__}).encode() + b"\n")
        return
    with told_in_log("Scheduler: it"):
        server.serve(program)
