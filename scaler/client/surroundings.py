"""Where a client made in this process connects: the cluster around the running task, or the one in the environment."""

from __future__ import annotations

import os

from scaler.transport import Address, Security, load_or_create
from scaler.worker import context


def surrounding_address() -> str | None:
    """The address of the cluster around the running task, else that in SCALER_ADDRESS; None if there is neither."""
    address = (context.surroundings() or {}).get("address") or os.environ.get("SCALER_ADDRESS")
    return Address.parse(address).url if address else None


def target_of(address: str | None, security: Security | None) -> tuple[Address, Security]:
    """The address and keys that a new client uses, if these were given. Raises ValueError if there is no address."""
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
        security = Security.from_env(inherited) or Security.from_env(os.environ) or load_or_create()
    return target, security
