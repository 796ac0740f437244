"""The local cluster that a client has started, and a client's scheduler, under the names that distributed's have."""

from __future__ import annotations

from typing import Any, NoReturn

from scaler import SchedulerClusterCombo
from scaler_dask import absent


class OwnCluster(SchedulerClusterCombo):
    """A `SchedulerClusterCombo` that answers to the names of dask's clusters as well. Made by clients only.

    Names that have no counterpart say what to use instead.
    """

    #: its methods block
    asynchronous = False

    def close(self, timeout: Any = None) -> None:
        """End it: `shutdown`, which blocks for a few seconds at most."""
        self.shutdown()

    @property
    def scheduler_address(self) -> str:
        """`address`."""
        return self.address

    @property
    def scheduler(self) -> SchedulerAddress:
        """Its address, as `scheduler.address`."""
        return SchedulerAddress(self.address)

    @property
    def name(self) -> str:
        """`address`: it has no other name."""
        return self.address

    @property
    def status(self) -> str:
        """One of running, closed. Does not block."""
        return "running" if self.is_running else "closed"

    def __getattr__(self, name: str) -> NoReturn:
        absent.refuse(self, "LocalCluster", name, absent.OF_CLUSTER)


class SchedulerAddress:
    """What a client knows of its scheduler: where it is."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __getattr__(self, name: str) -> NoReturn:
        absent.refuse(self, "scheduler", name, {} if name.startswith("_") else {name: absent.OF_SCHEDULER})

    def __repr__(self) -> str:
        return f"<Scheduler {self.address!r}>"
