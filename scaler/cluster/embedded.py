"""One local cluster for a process, started when it is first needed: what `scaler_get` runs on without an address."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from scaler.client import Client
from scaler.client.client import parts_of
from scaler.cluster.combo import SchedulerClusterCombo
from scaler.common.renewed_lock import RenewedLock
from scaler.serialize.call import AnySerializer, key_of

_lock = RenewedLock()
#: the process, its cluster, and the client of each serializer
_mine: tuple[int, SchedulerClusterCombo, dict[Any, Client]] | None = None


def client(n_workers: Callable[[], int | None] = lambda: None, serializer: AnySerializer | None = None) -> Client:
    """A client of this process's own cluster, which is started by the first call and ends with the process.

    There is one for each serializer. A forked child gets a cluster of its own; and if the cluster was killed, it is
    followed by another. `n_workers` is asked when a cluster is started. Any thread may call it; the first call blocks
    until the cluster is up.
    """
    global _mine
    with _lock.lock:
        mine = _mine
        if mine is None or mine[0] != os.getpid() or not _is_of_use(mine[1], mine[2].values()):
            mine = os.getpid(), SchedulerClusterCombo(n_workers=n_workers()), {}
        _, cluster, clients = mine
        key = key_of(serializer)
        if key not in clients:
            clients[key] = Client(cluster.address, security=cluster.security, serializer=serializer)
        _mine = mine
        return clients[key]


def _is_of_use(cluster: SchedulerClusterCombo, clients: Iterable[Client]) -> bool:
    return cluster.is_running and not any(parts_of(client)[0].liveness.is_lost for client in clients)
