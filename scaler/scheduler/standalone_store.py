"""The standalone store: an agent without workers, for clients that share memory with no other agent.

It is a process of its own, so bulk bytes never pass through the scheduler's. It is started when the first client asks
for it, and ends with the scheduler: the end of file on its standard input tells it.
"""

from __future__ import annotations

import logging
import os
import subprocess

from scaler.common.interpreter import command
from scaler.transport import Address, Security

logger = logging.getLogger("scaler.scheduler")

#: seconds that it may take to end before it is killed
STOP_TIMEOUT = 3.0


class StandaloneStoreProcess:
    """The process, once it was started. Not thread-safe."""

    def __init__(self, address: Address, port: int, security: Security, limit: int, log_level: str) -> None:
        """`address`: where the scheduler listens; `port`: where the store will, 0: a free one."""
        self._address = address
        self._port = port
        self._security = security
        self._limit = limit
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs. Returns at once: it joins as an agent does. Raises OSError."""
        if self._process is not None and self._process.poll() is None:
            return
        options = {
            "address": self._address.for_client().url,
            "bind": self._address.host,
            "port": self._port,
            "max_message_bytes": self._limit,
            "log_level": self._log_level,
        }
        program = f"from scaler.agent.standalone_store import main; main({options!r})"
        environment = {**os.environ, **self._security.to_env()}
        self._process = subprocess.Popen(command(program), stdin=subprocess.PIPE, env=environment)
        logger.info("Scheduler: started the standalone store, process %d", self._process.pid)

    def stop(self) -> None:
        """End it; blocks until it is gone, at most a few seconds."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
