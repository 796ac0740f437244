"""Which clusters this program has started for itself alone, by their address: nobody starts such a one again."""

from __future__ import annotations

import weakref
from typing import Protocol


class LocalCluster(Protocol):
    """As much of a cluster as its clients ask."""

    def how_it_ended(self) -> str | None:
        """In words, as a part of a sentence; None if it runs. Does not block; any thread may ask."""
        ...


_clusters: weakref.WeakValueDictionary[str, LocalCluster] = weakref.WeakValueDictionary()


def tell(address: str, cluster: LocalCluster) -> None:
    """This cluster is at this address, which it has chosen itself."""
    _clusters[address] = cluster


def end_of(address: str) -> str | None:
    """How the cluster at this address has ended, if it was one of this program's own; None if it may be there."""
    cluster = _clusters.get(address)
    return None if cluster is None else cluster.how_it_ended()


def forget(address: str) -> None:
    """Somebody else is at this address now."""
    _clusters.pop(address, None)
