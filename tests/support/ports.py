"""Addresses for programs that are started again at theirs.

The system gives out the ports of its own range again as soon as they are free: to another test that runs meanwhile.
"""

import itertools
import os
import socket

#: below the ports that systems give out by themselves; each process of `pytest -n` has its own
_FIRST, _EACH, _PROCESSES = 10_000, 4_000, 5

_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
_numbers = itertools.count(os.getpid())


def fresh_address() -> str:
    """An address of this host at which nobody listens, and that no other test of this process was given lately."""
    while True:
        port = _FIRST + _EACH * _process + next(_numbers) % _EACH
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return f"tcp://127.0.0.1:{port}"
