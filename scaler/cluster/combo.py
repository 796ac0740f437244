"""`SchedulerClusterCombo`: a scheduler and this host's workers, in processes that live as long as the program wants.

One process runs the scheduler's and the agent's cores, its children are the workers. It is started as a fresh
interpreter, so the program is never imported a second time and needs no `if __name__ == "__main__"`. The two hold the
ends of a socket: the options and the answer go over it, and when the program ends, however it ends, the other end
reads the end of file and stops.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any

from scaler.common import hugepages
from scaler.config import LOCAL_LOG_LEVEL, AgentConfig, SchedulerConfig, available_cores, plain_values
from scaler.errors import AddressInUse, ConnectionFailed, ScalerError
from scaler.transport import Address, Security, load_or_create

#: seconds that a cluster may take to start
START_TIMEOUT = 30.0
#: seconds that a cluster may take to end before it is killed
STOP_TIMEOUT = 5.0

_running: weakref.WeakSet[SchedulerClusterCombo] = weakref.WeakSet()


class SchedulerClusterCombo:
    """A scheduler with `n_workers` workers on this host (default: one for each core), for as long as this object lives.

    Without an address it takes a free port of the loopback interface; `address` then says which. `protected=False` lets
    clients shut it down, `capabilities` are names that tasks may ask for; these and all other options are those of the
    programs `scaler_scheduler` and `scaler_cluster`, with their defaults, but for the log, which is quieter.

    Blocks until clients can connect. Any thread may make it and call its methods. A context
    manager: leaving it shuts the cluster down; so does the end of the program, whatever ends it. Raises `AddressError`,
    `AddressInUse`, `KeyFileError`, `ConnectionFailed` if its process does not start, ValueError for a bad option.

    >>> from scaler import Client
    >>> with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.address) as client:
    ...     client.submit(pow, 2, 3).result()
    8
    """

    def __init__(
        self,
        address: str | None = None,
        n_workers: int | None = None,
        event_loop: str = SchedulerConfig.event_loop,
        *,
        protected: bool = SchedulerConfig.protected,
        capabilities: tuple[str, ...] = AgentConfig.capabilities,
        client_timeout: float = SchedulerConfig.client_timeout,
        agent_timeout: float = SchedulerConfig.agent_timeout,
        retries_on_loss: int = SchedulerConfig.retries_on_loss,
        heartbeat_interval: float = SchedulerConfig.heartbeat_interval,
        log_level: str = LOCAL_LOG_LEVEL,
        max_message_bytes: int = SchedulerConfig.max_message_bytes,
        memory_limit: int | None = AgentConfig.memory_limit,
        worker_memory_limit: int | None = AgentConfig.worker_memory_limit,
        spill_directory: str | None = AgentConfig.spill_directory,
    ) -> None:
        if n_workers is None:
            n_workers = available_cores()
        if type(n_workers) is not int or n_workers < 1:
            raise ValueError(
                f"n_workers must be 1 or more, not {n_workers!r}: a cluster without workers would run nothing"
            )
        wanted = Address.parse(address) if address is not None else Address("127.0.0.1", 0)
        of_scheduler: dict[str, Any] = {
            "event_loop": event_loop,
            "protected": protected,
            "client_timeout": client_timeout,
            "agent_timeout": agent_timeout,
            "retries_on_loss": retries_on_loss,
            "heartbeat_interval": heartbeat_interval,
            "log_level": log_level,
            "max_message_bytes": max_message_bytes,
        }
        of_agent: dict[str, Any] = {
            "workers": n_workers,
            "capabilities": tuple(capabilities),
            "memory_limit": memory_limit,
            "worker_memory_limit": worker_memory_limit,
            "spill_directory": spill_directory,
        }
        options = {
            "scheduler": plain_values(SchedulerConfig(wanted.url, **of_scheduler)),
            "agent": plain_values(AgentConfig(wanted.url, **of_agent)),
        }
        self.n_workers = n_workers
        self.security: Security = load_or_create()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        try:
            self._process = _spawn(theirs, self.security)
            theirs.close()
            self._address = Address.parse(self._ask(options))
        except BaseException:
            self._socket.close()
            raise
        _running.add(self)

    def _ask(self, options: dict[str, dict[str, Any]]) -> str:
        self._socket.settimeout(START_TIMEOUT)
        try:
            self._socket.sendall(json.dumps(options).encode() + b"\n")
            import scaler.client.client  # noqa: F401  needed next, and there is nothing else to do meanwhile

            line = self._socket.makefile("rb").readline()
        except OSError:  # it takes too long, or has ended
            line = b""
        if not line:
            self._process.kill()
            code = self._process.wait()
            raise ConnectionFailed(
                f"the local cluster's process did not start (exit code {code}); its errors are on standard error"
            )
        answer = json.loads(line)
        if "error" in answer:
            self._process.wait(STOP_TIMEOUT)
            kind = {"AddressInUse": AddressInUse, "ValueError": ValueError}.get(answer["kind"], ScalerError)
            raise kind(answer["error"])
        return str(answer["address"])

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._address.for_client().url

    @property
    def pid(self) -> int:
        """Of the process that runs scheduler and agent."""
        return self._process.pid

    def shutdown(self) -> None:
        """End scheduler and workers; blocks until they are gone, at most a few seconds. A second call does nothing."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._process.returncode is not None:
                return
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            try:
                self._process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its workers see that and end too
                self._process.wait()

    def __enter__(self) -> SchedulerClusterCombo:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown()

    def __repr__(self) -> str:
        state = "running" if self._process.poll() is None else "ended"
        return f"<SchedulerClusterCombo {self.address}, {self.n_workers} workers, {state}>"


def _spawn(theirs: socket.socket, security: Security) -> subprocess.Popen[bytes]:
    """A fresh interpreter that can import what this one can, with the socket as its standard input's neighbour."""
    program = (
        f"import signal, sys; signal.signal(2, signal.SIG_IGN); sys.path[:] = {sys.path!r}; "
        f"from scaler.cluster.process import main; main({theirs.fileno()})"
    )
    environment = {**os.environ, **security.to_env(), **hugepages.environment()}
    return subprocess.Popen(
        [sys.executable, "-c", program], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
    )


@atexit.register
def _shut_down_all() -> None:
    for cluster in list(_running):
        with contextlib.suppress(Exception):
            cluster.shutdown()
