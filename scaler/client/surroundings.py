"""Where a client made in this process connects: the cluster around the running task, or the one in the environment.

And for how long it looks for a scheduler that is gone.
"""

from __future__ import annotations

import math
import os
import reprlib
from typing import Protocol

from scaler.defaults import RECONNECT
from scaler.transport import Address, Security, surrounding_security
from scaler.worker import context


class Cluster(Protocol):
    """What a cluster object says of itself, as `SchedulerClusterCombo` does."""

    @property
    def address(self) -> str:
        """Where clients connect."""

    @property
    def security(self) -> Security:
        """The keys that it knows them by."""


def address_around() -> str | None:
    """The address of the cluster whose tasks this process runs; None if it runs none."""
    address = (context.surroundings() or {}).get("address")
    return Address.parse(address).url if address else None


def surrounding_address() -> str | None:
    """The address of the cluster around the running task, else that in SCALER_ADDRESS; None if there is neither.

    Does not block. Raises `AddressError` if the variable holds none.
    """
    address = address_around() or os.environ.get("SCALER_ADDRESS")
    return Address.parse(address).url if address else None


def patience_with(target: Address, reconnect: float | None) -> float:
    """Seconds for which a client looks for its scheduler, as its user has said by `reconnect`, if they have.

    In a task of the same cluster there is no bound else: its host waits for the scheduler as well, and whoever wants
    the task's result, a durable job say, may be more patient than any number here.
    """
    if reconnect is not None:
        return reconnect
    return math.inf if is_around(target) else RECONNECT


def is_around(target: Address) -> bool:
    """This process runs tasks of the cluster whose scheduler is there."""
    address = address_around()
    return address is not None and target.for_client().url == Address.parse(address).for_client().url


def target_of(address: str | Cluster | None, security: Security | None) -> tuple[Address, Security]:
    """The address and keys that a new client uses, if these were given. Raises ValueError if there is no address."""
    if address is not None and not isinstance(address, str | Address):
        given = address
        address = getattr(given, "address", None)
        if not isinstance(address, str):
            raise TypeError(f"address must be like tcp://host:port, or a cluster, not {reprlib.repr(given)}")
        security = security or getattr(given, "security", None)
    if address is None:
        address = surrounding_address()
        if address is None:
            raise ValueError(
                "no scheduler address: give Client(address), set SCALER_ADDRESS, or start a local cluster with "
                "scaler.SchedulerClusterCombo() or scaler.Executor()"
            )
    target = Address.parse(address)
    if security is None:
        inherited = (context.surroundings() or {}).get("security", {})
        security = Security.from_env(inherited) or surrounding_security()
    return target, security
