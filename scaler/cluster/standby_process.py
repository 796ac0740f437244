"""What a local cluster's process does before the program asks for the cluster: its zygote has modules loaded."""

from __future__ import annotations

import json
import os
import select
import socket

from scaler.cluster.early_zygote import EarlyZygote
from scaler.common.program_socket import program_at
from scaler.config import AgentConfig, from_plain_values
from scaler.transport import load_or_create

#: seconds after which the program will hardly ask any more
PATIENCE = 60.0


def main(fd: int) -> None:
    """Wait until the program at the other end of this socket asks for a cluster, and serve it; or until that ends."""
    with program_at(fd) as program:
        _serve(program)


def _serve(program: socket.socket) -> None:
    with program.makefile("rb", buffering=0) as lines:  # what comes behind the line is for others
        line = lines.readline()
    if not line:
        return
    os.environ.update(load_or_create().to_env())
    early = EarlyZygote(from_plain_values(AgentConfig, {"address": "tcp://127.0.0.1:0", **json.loads(line)}))
    try:
        from scaler.cluster import process  # now, as the zygote needs nothing of it

        if select.select([program], [], [], PATIENCE)[0]:
            process.serve(program, early)
    finally:
        early.close()
