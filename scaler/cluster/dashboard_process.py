"""The process of a local cluster's dashboard. It ends with the program that started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading

from scaler.config import DashboardConfig
from scaler.errors import ScalerError


def main(fd: int) -> None:
    """Serve a dashboard until the program at the other end of this socket closes it."""
    with socket.socket(fileno=fd) as program:
        program.set_inheritable(False)
        _serve(program)


def _serve(program: socket.socket) -> None:
    with program.makefile("rb") as lines:
        wanted = json.loads(lines.readline() or b"{}")
    if not wanted:
        return
    from scaler.monitor.dashboard import server  # Bokeh takes a second

    def began(link: str) -> None:
        program.sendall(json.dumps({"link": link}).encode() + b"\n")
        threading.Thread(target=_end_with, args=(program,), daemon=True).start()

    try:
        server.run(DashboardConfig(wanted["monitor"], port=0), began)
    except ScalerError as error:
        program.sendall(json.dumps({"error": str(error)}).encode() + b"\n")


def _end_with(program: socket.socket) -> None:
    """End this process as soon as the program has closed its end, however it did."""
    try:
        while program.recv(100):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
