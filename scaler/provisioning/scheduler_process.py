"""The scheduler of a `Cluster`: a process that ends with its program. Its agents are those of other processes."""

from __future__ import annotations

import gc
import json
import logging
import signal
import socket

from scaler.common import log_lines
from scaler.config import SchedulerConfig, from_plain_values
from scaler.scheduler.server import Server
from scaler.transport import Address, Security, exposure, listen, open_door


def main(fd: int) -> None:
    """Serve the program at the other end of this socket until it closes it."""
    program = socket.socket(fileno=fd)
    program.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's to handle
    with program.makefile("rb") as lines:
        options = json.loads(lines.readline() or b"{}")
    if not options:
        return
    try:
        config = from_plain_values(SchedulerConfig, options["scheduler"])
        logging.basicConfig(level=config.log_level, format=log_lines.LINE, datefmt=log_lines.TIME)
        security = Security.from_env(options["security"])
        assert security is not None
        exposure(security, Address.parse(config.address), is_said=False)
        listener = listen(config.address, security, max_message_bytes=config.max_message_bytes, awaits_welcome=True)
        door = open_door(config.monitor_address, listener.address, config.max_message_bytes)
    except Exception as error:
        program.sendall(json.dumps({"error": str(error), "kind": type(error).__name__}).encode() + b"\n")
        return
    server = Server(config, listener, security, door)
    server.loop.watch_with(program.fileno(), server.loop.stop)
    server.loop.on_signal(signal.SIGINT, lambda: None)
    monitor = listener.address.for_client() if door is None else door.address
    program.sendall(json.dumps({"address": listener.address.url, "monitor": monitor.url}).encode() + b"\n")
    gc.freeze()
    gc.set_threshold(50_000)
    server.run()
