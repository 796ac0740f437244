"""What a dask client is connected to: the engine's client, and the local cluster that it may have started."""

from __future__ import annotations

from typing import Any

import dask.config

from scaler import Client as Engine
from scaler.extension import surrounding_address
from scaler_dask.own_cluster import OwnCluster


class EngineConnection:
    """Connects when `open` is called. Any thread may call the methods; `open`, `restart_cluster` and `close` block."""

    def __init__(
        self, address: Any, n_workers: int | None, capabilities: tuple[str, ...], timeout: float, security: Any
    ) -> None:
        """`address`: a text, or what has one and maybe keys, or an `Engine`, which is used and never closed.

        `n_workers` and `capabilities` are those of a local cluster. Raises TypeError for any other address.
        """
        if not (address is None or isinstance(address, (str, Engine)) or isinstance(_address_of(address), str)):
            raise TypeError(
                f"Client() takes an address like tcp://host:2345, a SchedulerClusterCombo or a scaler.Client, "
                f"not {address!r}"
            )
        #: whoever gave the engine goes on using it
        self.is_shared = isinstance(address, Engine)
        self._engine: Engine | None = address if isinstance(address, Engine) else None
        self._address = address
        self._n_workers = n_workers
        self._capabilities = capabilities
        self._timeout = timeout
        #: keys and such, if they are not those of the environment
        self.security = security
        #: started here, and ended with this
        self.cluster: OwnCluster | None = None

    @property
    def cluster_given(self) -> Any:
        """The cluster that was given instead of its address."""
        return None if self.is_shared or isinstance(self._address, str) else self._address

    @property
    def is_open(self) -> bool:
        """There is, or was, a connection."""
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The engine's client. Raises RuntimeError before `open`."""
        if self._engine is None:
            raise RuntimeError("this client is not connected yet: use `async with Client(...)`, or await it")
        return self._engine

    def open(self) -> None:
        """Connect, unless that was done; start a local cluster if there is no address. Raises like both of these."""
        if self._engine is not None:
            return
        address = self._address
        if address is not None and not isinstance(address, str):
            self.security = self.security or getattr(address, "security", None)
            address = _address_of(address)
        if address is None and self._n_workers is None:
            address = dask.config.get("scaler.address", None) or surrounding_address()
        if address is None:
            self.cluster = OwnCluster(n_workers=self._n_workers, capabilities=self._capabilities)
            address, self.security = self.cluster.address, self.cluster.security
        if "://" not in address:
            address = f"tcp://{address}"  # as distributed reads it
        try:
            self._engine = Engine(address, timeout=self._timeout, security=self.security)
        except BaseException:
            if self.cluster is not None:
                self.cluster.shutdown()
            raise

    def restart_cluster(self) -> None:
        """End the local cluster, and start one anew; nothing if there is none."""
        if self.cluster is None:
            return
        n_workers = self.cluster.n_workers
        self.engine.disconnect()
        self.cluster.shutdown()
        self.cluster = OwnCluster(n_workers=n_workers, capabilities=self._capabilities)
        self.security = self.cluster.security
        self._engine = Engine(self.cluster.address, security=self.security)

    def close(self) -> None:
        """Leave the cluster, and end one that was started here."""
        if self._engine is not None:
            self._engine.disconnect()
        if self.cluster is not None:
            self.cluster.shutdown()


def _address_of(cluster: Any) -> Any:
    return getattr(cluster, "address", None)
