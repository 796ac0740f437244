"""`Cluster`: a scheduler, and hosts for it from a provider, for as long as the program wants.

    program -- socket -- scheduler      (unless the address of one is given)
       |
       +------ socket -- provisioner -- provider's commands -- jobs, whose agents connect to the scheduler

When the program ends, however it ends, both read the end of file: the scheduler stops, the provisioner cancels its jobs
and stops after them. A provisioner that dies is replaced; the new one finds the jobs by their tag.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
import weakref
from dataclasses import replace
from typing import Any

from scaler import defaults
from scaler.cluster.spawning import await_end, spawn
from scaler.common import at_exit, dashboards
from scaler.config import ProvisionConfig, SchedulerConfig, from_plain_values, plain_values, settings
from scaler.errors import AddressInUse, ConnectionFailed, ConnectionTimeout, ScalerError
from scaler.greenlets import refuse_patched
from scaler.monitor.watcher import Watcher
from scaler.provisioning.provider import ProviderError
from scaler.provisioning.seeing import observed
from scaler.transport import Address, Security, load_or_create

#: seconds that a process may take to start
START_TIMEOUT = 30.0
#: seconds that the jobs may take to end, and then their provisioner, before it is killed
STOP_TIMEOUT = 70.0
#: seconds between the end of a provisioner that nobody asked for and the next one
PAUSE = 0.5

_SETTINGS = {setting.name for setting in settings(ProvisionConfig)}
_running: weakref.WeakSet[Cluster] = weakref.WeakSet()


class _Child:
    """A process that serves this program over a socket, a line of JSON each way at first."""

    def __init__(self, module: str, options: dict[str, Any]) -> None:
        """Blocks until it has answered. Raises what it says went wrong."""
        self.socket, self.process = spawn(module)
        try:
            self.socket.settimeout(START_TIMEOUT)
            self.lines = self.socket.makefile("rb")
            try:
                self.socket.sendall(json.dumps(options).encode() + b"\n")
                line = self.lines.readline()
            except TimeoutError:
                raise ConnectionTimeout(f"the process of {module} did not answer in {START_TIMEOUT:g} s") from None
            except OSError:
                line = b""
            if not line:
                raise ConnectionFailed(f"the process of {module} did not start; its errors are on standard error")
            self.answer: dict[str, Any] = json.loads(line)
            if "error" in self.answer:
                kinds: dict[str, type[Exception]] = {
                    "AddressInUse": AddressInUse, "ProviderError": ProviderError, "OptionError": ValueError,
                    "ImportError": ImportError,
                }  # fmt: skip
                raise kinds.get(self.answer["kind"], ScalerError)(self.answer["error"])
            self.socket.settimeout(None)
        except BaseException:
            self.process.kill()
            self.end(1.0)
            raise

    def tell(self, what: dict[str, Any]) -> None:
        """Send a line; one that has ended does not hear it."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(what).encode() + b"\n")

    def end(self, timeout: float) -> None:
        """Hang up, and wait for its end; kill it after `timeout` seconds."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        await_end(self.process, timeout)
        self.socket.close()


class Cluster:
    """Hosts from `provider` ("local", "slurm", ...; see docs/provisioning.md) as the work needs them.

    There are `minimum` to `maximum` hosts with `workers` workers each. Without `address` it starts a scheduler in a
    process of its own, at `host`: the name or address of this machine as hosts reach it, by default the one that its
    way out has, and the loopback interface for "local". Further options are those of `ProvisionConfig` (`walltime`,
    `idle_time`, `drain_time`, ...) and of the provider (`partition`, ...).

    Blocks until the scheduler listens and the provider has answered, not for hosts. Any thread may make it and call its
    methods. A context manager: leaving it ends everything that it started; so does the end of the program, whatever
    ends it. Raises `ProviderError` (no such system here), ValueError for a bad option, else like local clusters.

    >>> from scaler import Client
    >>> with Cluster("local", maximum=1) as cluster, Client(cluster) as client:
    ...     client.submit(pow, 2, 3).result()
    8
    """

    def __init__(
        self,
        provider: str = "local",
        *,
        address: str | None = None,
        minimum: int = defaults.MINIMUM_HOSTS,
        maximum: int = defaults.MAXIMUM_HOSTS,
        workers: int = 1,
        host: str | None = None,
        tag: str | None = None,
        security: Security | None = None,
        log_level: str = defaults.LOCAL_LOG_LEVEL,
        **options: Any,
    ) -> None:
        refuse_patched()
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False
        self._scheduler: _Child | None = None
        self._provisioner: _Child | None = None
        self._status: dict[str, Any] = {}
        self.security: Security = security or load_or_create()
        self._options = {name: value for name, value in options.items() if name not in _SETTINGS}
        of_config = {name: value for name, value in options.items() if name in _SETTINGS}
        if provider == "local":
            of_config.setdefault("list_interval", 0.5)
        of_config.update(minimum=minimum, maximum=maximum, workers=workers, log_level=log_level)
        #: what all jobs of this cluster begin with in their names
        self.tag = tag or f"scaler-{secrets.token_hex(4)}"
        self._is_new = tag is None
        of_config.update(provider=provider, tag=self.tag)
        # mistakes are told at once
        config = from_plain_values(ProvisionConfig, {"address": "tcp://127.0.0.1:1", **of_config})
        try:
            if address is None:
                address = self._start_scheduler(provider, host, log_level)
            #: where clients connect
            self.address = Address.parse(address).url
            self._config = replace(config, address=self.address)
            self._limits = (config.minimum, config.maximum)
            self._provisioner = self._start_provisioner(self._is_new)
        except BaseException:
            self._is_closed = True
            self._end()
            raise
        _running.add(self)
        threading.Thread(target=_attend, args=(weakref.ref(self),), name="scaler-cluster", daemon=True).start()

    # ---- for users -------------------------------------------------------------------------------------------------
    @property
    def monitor_address(self) -> str:
        """Where monitors of this cluster connect."""
        return self._scheduler.answer["monitor"] if self._scheduler is not None else self.address

    def scale(self, n: int) -> None:
        """Have `n` hosts from now on, whatever there is to do. Does not wait for them. Ends `adapt`."""
        self.adapt(n, n)

    def adapt(self, minimum: int = defaults.MINIMUM_HOSTS, maximum: int = defaults.MAXIMUM_HOSTS) -> None:
        """Have `minimum` to `maximum` hosts, as the work needs them, instead of what was said before. Does not block.

        Raises ValueError if these are no such numbers.
        """
        replace(self._config, minimum=minimum, maximum=maximum)  # which checks them
        with self._lock:
            self._limits = (minimum, maximum)
            if self._provisioner is not None:
                self._provisioner.tell({"adapt": self._limits})

    def wait_for_workers(self, n_workers: int = 1, timeout: float | None = None) -> None:
        """Block until so many workers are there. Raises TimeoutError after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        version, there = 0, 0
        with Watcher(self.monitor_address, 0.1, security=self.security, name="scaler-cluster") as watcher:
            while end is None or time.monotonic() < end:
                seen = watcher.wait(version, None if end is None else max(0.0, end - time.monotonic()))
                if seen is None:
                    break
                version = seen.version
                if seen.is_connected and seen.snapshot is not None:
                    there = sum(agent.workers for agent in observed(seen.snapshot).agents if not agent.is_draining)
                    if there >= n_workers:
                        return
        words = "; ".join(self._status.get("lines", ()))
        why = f" ({words})" if words else ""
        raise ConnectionTimeout(f"{there} of {n_workers} workers came within {timeout or 0:g} s{why}")

    @property
    def status(self) -> dict[str, Any]:
        """How many hosts are `desired`, `pending`, `running` and `draining`, and `lines`: the provider's own words."""
        return dict(self._status)

    def close(self) -> None:
        """End the hosts and the scheduler, unless that is another's; blocks until they are gone. Twice does nothing."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            provisioner = self._provisioner
            is_dead = provisioner is not None and provisioner.process.poll() is not None
            if is_first and is_dead and not self._config.keep:
                with contextlib.suppress(Exception):  # it died a moment ago: its jobs have to end all the same
                    self._provisioner = self._start_provisioner(False)
            self._end()  # also if the first call, which was interrupted or is under way in this thread, is there

    #: as local clusters call it
    shutdown = close

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self._config.provider} {self.address}, {self._words}>"

    def _repr_html_(self) -> str:
        rows = {"address": self.address, "provider": self._config.provider, "hosts": self._words}
        return dashboards.as_html("Cluster", rows, dashboards.link_of(self.address))

    @property
    def _words(self) -> str:
        if self._is_closed:
            return "ended"
        found = self._status
        counts = ", ".join(f"{found.get(name, 0)} {name}" for name in ("running", "pending", "draining"))
        return f"{counts} of {self._limits[0]} to {self._limits[1]} hosts"

    # ---- its processes ---------------------------------------------------------------------------------------------
    def _start_scheduler(self, provider: str, host: str | None, log_level: str) -> str:
        host = host or ("127.0.0.1" if provider == "local" else outward_address())
        config = SchedulerConfig(f"tcp://{host}:0", log_level=log_level)  # type: ignore[arg-type]
        options = {"scheduler": plain_values(config), "security": self.security.to_env()}
        self._scheduler = _Child("scaler.provisioning.scheduler_process", options)
        return str(self._scheduler.answer["address"])

    def _start_provisioner(self, is_new: bool) -> _Child:
        minimum, maximum = self._limits
        config = {**plain_values(self._config), "minimum": minimum, "maximum": maximum}
        options = {
            "config": config, "options": self._options, "security": self.security.to_env(), "is_new": is_new,
            "origin": self.security.origin,
        }  # fmt: skip
        return _Child("scaler.provisioning.process", options)

    def _replace_provisioner(self, dead: _Child) -> None:
        """Another takes the place of one that has died, unless this is over."""
        with self._lock:
            if not self._is_closed and self._provisioner is dead:
                dead.end(1.0)
                try:
                    # processes of this machine have ended with it
                    self._provisioner = self._start_provisioner(self._config.provider == "local")
                except (ScalerError, ValueError, ImportError) as error:
                    self._status = {**self._status, "lines": (f"no provisioner, tries again: {error}",)}

    def _end(self) -> None:
        if self._provisioner is not None:
            self._provisioner.end(STOP_TIMEOUT)
        if self._scheduler is not None:
            self._scheduler.end(5.0)


def _attend(reference: weakref.ref[Cluster]) -> None:
    """Keep what the provisioner tells, and have it replaced when it dies. In a thread; does not keep the cluster."""
    while True:
        cluster = reference()
        if cluster is None or cluster._is_closed or cluster._provisioner is None:
            return
        child = cluster._provisioner
        del cluster
        with contextlib.suppress(OSError, ValueError):
            for line in child.lines:
                cluster = reference()
                if cluster is None:
                    return
                cluster._status = json.loads(line)
                del cluster
        time.sleep(PAUSE)
        cluster = reference()
        if cluster is None or cluster._is_closed:
            return
        cluster._replace_provisioner(child)
        del cluster


def outward_address() -> str:
    """The address that this machine has on its way to others; that of loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only chooses the interface
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _close_all() -> None:
    for cluster in list(_running):
        with contextlib.suppress(Exception):
            cluster.close()


#: after clients, beside local clusters
at_exit.register(at_exit.CLUSTERS + 1, _close_all)
