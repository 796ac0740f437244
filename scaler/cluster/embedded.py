"""One local cluster for a process, started when it is first needed: what `scaler_get` runs on without an address."""

from __future__ import annotations

import os
import threading

from scaler.client import Client
from scaler.cluster.combo import SchedulerClusterCombo

_lock = threading.Lock()
_mine: tuple[int, SchedulerClusterCombo, Client] | None = None


def client(n_workers: int | None = None) -> Client:
    """A client of this process's own cluster, which is started by the first call and ends with the process.

    A forked child gets a cluster of its own. Any thread may call it; the first call blocks until the cluster is up.
    """
    global _mine
    with _lock:
        if _mine is None or _mine[0] != os.getpid() or _mine[2].closed:
            cluster = SchedulerClusterCombo(n_workers=n_workers)
            _mine = os.getpid(), cluster, Client(cluster.address, security=cluster.security)
        return _mine[2]


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
