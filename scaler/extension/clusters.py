"""The local cluster that an adapter's program is going to start."""

from __future__ import annotations

from scaler.cluster import standby


def begin_local_cluster(n_workers: int | None = None, package: str | None = None) -> None:
    """Begin the process of this program's first local cluster, which loads what the program has loaded meanwhile.

    It has so many workers (None: one for each core), whose tasks need this `package`, whatever the program says.
    To be called by a module when it is imported. It does nothing but in a script, and if it would be of no use; the
    process ends as soon as the program connects to another cluster, and if none is started within a minute. Does not
    block.
    """
    standby.begin(n_workers, package)
