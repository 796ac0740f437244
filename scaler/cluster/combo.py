"""`SchedulerClusterCombo`: a scheduler and this host's workers, in processes that live as long as the program wants.

One process runs the scheduler's and the agent's cores, its children are the workers. It is started as a fresh
interpreter, so the program is never imported a second time and needs no `if __name__ == "__main__"`. The two hold the
ends of a socket: the options and the answer go over it, and when the program ends, however it ends, the other end
reads the end of file and stops.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref

from scaler import defaults
from scaler.cluster.spawning import await_end, code_of_ended, spawn
from scaler.common import advance, at_exit, dashboards, local_clusters
from scaler.compatibility.signatures import WithOriginals, takes_in_order
from scaler.greenlets import refuse_patched

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Unpack

    from scaler.cluster.dashboard import LocalDashboard
    from scaler.cluster.forking import ForkedProcess
    from scaler.compatibility.cluster_arguments import ClusterArguments
    from scaler.transport import Security

#: seconds that a cluster may take to start
START_TIMEOUT = 30.0
#: seconds that a process may take to end whose connection is closed, before it is killed
ENDING = 1.0
#: seconds that a cluster may take to end before it is killed
STOP_TIMEOUT = 5.0

_running: weakref.WeakSet[SchedulerClusterCombo] = weakref.WeakSet()


class SchedulerClusterCombo:
    """A scheduler with `n_workers` workers on this host (default: one for each core), for as long as this object lives.

    Without an address it takes a free port of the loopback interface; `address` then says which. `protected=False` lets
    clients shut it down, `capabilities` are names that tasks may ask for; these and all other options are those of the
    programs `scaler_scheduler` and `scaler_cluster`, with their defaults, but for the log, which is quieter, and
    `warm_modules`: by default those that the program has loaded and its tasks are likely to need. With `dashboard`
    there is one, in a process of its own: `dashboard_link` is what to open in a browser (needs `scaler[dashboard]`).

    The arguments of the original are taken, too: `scaler.compatibility` says what they mean here.

    Blocks until clients can connect. Any thread may make it and call its methods. A context
    manager: leaving it shuts the cluster down; so does the end of the program, whatever ends it. Raises `AddressError`,
    `AddressInUse`, `KeyFileError`, `ConnectionFailed` if its process does not start, ValueError for a bad option,
    `ScalerError` if gevent has replaced threads.

    >>> from scaler import Client
    >>> with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.address) as client:
    ...     client.submit(pow, 2, 3).result()
    8
    """

    _dashboard: LocalDashboard | None = None

    __signature__ = WithOriginals("scaler.compatibility.cluster_arguments", "ClusterArguments")

    @takes_in_order(("n_workers", "address", "event_loop"), lambda given: bool(given) and isinstance(given[0], int))
    def __init__(
        self,
        address: str | int | None = None,
        n_workers: int | str | None = None,
        event_loop: str = defaults.EVENT_LOOP,
        *,
        protected: bool = defaults.PROTECTED,
        capabilities: tuple[str, ...] = (),
        worker_threads: int | None = None,
        warm_modules: Iterable[str] | None = None,
        client_timeout: float = defaults.CLIENT_TIMEOUT,
        agent_timeout: float = defaults.AGENT_TIMEOUT,
        retries_on_loss: int = defaults.RETRIES_ON_LOSS,
        heartbeat_interval: float = defaults.HEARTBEAT_INTERVAL,
        log_level: str = defaults.LOCAL_LOG_LEVEL,
        max_message_bytes: int | str = defaults.MAX_MESSAGE_BYTES,
        memory_limit: int | str | None = None,
        worker_memory_limit: int | str | None = None,
        spill_directory: str | None = None,
        max_tasks_per_worker: int | None = None,
        preload: str | None = None,
        journal: str | None = None,
        results: str | None = None,
        dashboard: bool = False,
        **originals: Unpack[ClusterArguments],
    ) -> None:
        if isinstance(address, int):
            raise TypeError(f"address must be like tcp://host:port, not {address!r}")
        if n_workers is not None:
            if isinstance(n_workers, bool | str) or not hasattr(n_workers, "__index__") or n_workers < 1:
                raise ValueError(
                    f"n_workers must be 1 or more, as an integer, not {n_workers!r}: "
                    "a cluster without workers would run nothing"
                )
            n_workers = n_workers.__index__()  # it may be one of numpy
        of_scheduler: dict[str, Any] = {
            "event_loop": event_loop,
            "protected": protected,
            "client_timeout": client_timeout,
            "agent_timeout": agent_timeout,
            "retries_on_loss": retries_on_loss,
            "heartbeat_interval": heartbeat_interval,
            "log_level": log_level,
            "max_message_bytes": max_message_bytes,
            "journal": journal,
            "results": results,
        }
        of_agent: dict[str, Any] = {
            "workers": n_workers,
            "capabilities": tuple(capabilities),
            "worker_threads": worker_threads,
            "warm_modules": None if warm_modules is None else tuple(warm_modules),
            "memory_limit": memory_limit,
            "worker_memory_limit": worker_memory_limit,
            "spill_directory": spill_directory,
            "max_tasks_per_worker": max_tasks_per_worker,
            "preload": preload,
        }
        of_log: dict[str, Any] = {}
        if originals:
            from scaler.compatibility.cluster_arguments import translated

            translations = translated(type(self), originals)
            for options, translation in zip((of_scheduler, of_agent, of_log), translations, strict=True):
                options.update(translation)
        refuse_patched()
        self._owner = os.getpid()
        #: held by who shuts it down; so may do a signal's handler that comes meanwhile
        self._lock = threading.RLock()
        begun = _begun_in_advance(address)
        while True:
            self._socket, self._process = begun or spawn("scaler.cluster.process")
            try:
                self._start(address, of_scheduler, of_agent, of_log)
                break
            except BaseException as error:
                from scaler.errors import ConnectionFailed

                self._end_process()
                if begun is None or not isinstance(error, ConnectionFailed):
                    raise
                begun = None  # it has ended meanwhile: a new one will do
        _running.add(self)
        if address is None:
            local_clusters.tell(self.address, self)
        if dashboard:
            try:
                self._open_dashboard()
            except BaseException:
                self.shutdown()
                raise

    def _open_dashboard(self) -> None:
        from scaler.cluster.dashboard import LocalDashboard

        self._dashboard = LocalDashboard(self.monitor_address)
        dashboards.tell(self.address, self._dashboard.link)

    def _start(
        self, address: str | None, of_scheduler: dict[str, Any], of_agent: dict[str, Any], of_log: dict[str, Any]
    ) -> None:
        """Say what is wanted, and wait until it is there."""
        from multiprocessing import current_process

        from scaler.cluster.loaded_modules import needed_by_tasks
        from scaler.config import AgentConfig, SchedulerConfig, plain_values
        from scaler.transport import Address, load_or_create

        wanted = Address.parse(address) if address is not None else Address("127.0.0.1", 0)
        if of_agent["warm_modules"] is None:
            of_agent["warm_modules"] = tuple(needed_by_tasks())
        agent = AgentConfig(wanted.url, **of_agent)
        self.n_workers = agent.worker_count
        self.security: Security = load_or_create()
        answer = self._ask(
            {
                "scheduler": plain_values(SchedulerConfig(wanted.url, **of_scheduler)),
                "agent": plain_values(agent),
                "log": of_log,
                "environment": self.security.to_env(),
                "authkey": bytes(current_process().authkey).hex(),
                "arguments": [each for each in sys.argv if isinstance(each, str)],  # type: ignore[redundant-expr]
            }
        )
        self._address = Address.parse(answer["address"])
        #: where monitors of this cluster connect
        self.monitor_address = answer["monitor"]

    def _ask(self, options: dict[str, Any]) -> dict[str, str]:
        from scaler.errors import AddressInUse, ConnectionFailed, ConnectionTimeout, ScalerError

        self._socket.settimeout(START_TIMEOUT)
        try:
            self._socket.sendall(json.dumps(options).encode() + b"\n")
            import scaler.client.client  # noqa: F401  needed next, and there is nothing else to do meanwhile

            line = self._socket.makefile("rb").readline()
        except TimeoutError:
            self._end_process()
            raise ConnectionTimeout(
                f"the local cluster's process did not answer in {START_TIMEOUT:g} s, and was ended: this machine may "
                "have too much to do, or too little memory"
            ) from None
        except OSError:  # it has ended
            line = b""
        if not line:
            code = self._end_process()
            raise ConnectionFailed(
                f"the local cluster's process did not start (exit code {code}); its errors are on standard error"
            )
        answer = json.loads(line)
        if "error" in answer:
            kind = {"AddressInUse": AddressInUse, "ValueError": ValueError}.get(answer["kind"], ScalerError)
            raise kind(answer["error"])
        return dict(answer)

    def _end_process(self) -> int:
        """Have the process end; its exit code. It is killed if it does not end by itself, which removes its files."""
        self._socket.close()
        await_end(self._process, ENDING)
        return self._process.wait()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._address.for_client().url

    def get_address(self) -> str:
        """`address`, as the original spells it."""
        return self.address

    @property
    def dashboard_link(self) -> str | None:
        """What to open in a browser, with the token that opens it; None if this cluster has no dashboard."""
        return dashboards.link_of(self.address)

    @property
    def pid(self) -> int:
        """Of the process that runs scheduler and agent."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its process is there: not after `shutdown`, nor if it was killed. Does not block."""
        return self._process.poll() is None

    def how_it_ended(self) -> str | None:
        """How its process ended, in words, as a part of a sentence; None if it runs. Does not block."""
        if os.getpid() != self._owner:
            return None
        code = self._process.returncode
        if code is None:
            code = code_of_ended(self._process.pid)
        if code is None:
            return None
        if self._socket.fileno() < 0:
            return "was shut down"
        from scaler.common.exits import describe_code

        return describe_code(code)

    def shutdown(self) -> None:
        """End scheduler and workers; blocks until they are gone, at most a few seconds. A second call does nothing."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._process.returncode is not None:
                return
            if self._dashboard is not None:
                dashboards.forget(self.address)
                self._dashboard.close()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            await_end(self._process, STOP_TIMEOUT)  # if it is killed its workers see that and end too

    def __enter__(self) -> SchedulerClusterCombo:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown()

    def __repr__(self) -> str:
        return f"<SchedulerClusterCombo {self.address}, {self.n_workers} workers, {self._state}>"

    def _repr_html_(self) -> str:
        rows = {"address": self.address, "workers": self.n_workers, "state": self._state}
        return dashboards.as_html("SchedulerClusterCombo", rows, self.dashboard_link)

    @property
    def _state(self) -> str:
        return "running" if self.is_running else "ended"


def _begun_in_advance(address: str | None) -> tuple[socket.socket, subprocess.Popen[bytes] | ForkedProcess] | None:
    begun = advance.take()
    if begun is None:
        return None
    from scaler.cluster.standby import Standby  # here, as only those programs need it that have begun one

    if isinstance(begun, Standby) and begun.serves and (address is None or begun.hashes_as_elsewhere):
        return begun.socket, begun.process
    begun.end()
    return None


def is_started_here(address: str) -> bool:
    """Whether this process, or one that it was forked off, has started the cluster at this address. Does not block."""
    return any(cluster.address == address for cluster in list(_running) if cluster._process.returncode is None)


def _shut_down_all() -> None:
    for cluster in list(_running):
        with contextlib.suppress(Exception):
            cluster.shutdown()


at_exit.register(at_exit.CLUSTERS, _shut_down_all)
