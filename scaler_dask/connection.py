"""Which client a dask computation uses; one per process and address, kept until the process ends."""

from __future__ import annotations

import dask.config

from scaler import Client
from scaler.extension import find_client


def client_for(address: str | None = None) -> Client:
    """Return the client of `address`, of dask's setting, of the surroundings, or of the embedded cluster.

    The settings are dask's own: `scaler.address` and `scaler.n-workers`, the latter for the embedded cluster; from the
    environment DASK_SCALER__ADDRESS and DASK_SCALER__N_WORKERS. Raises ValueError for a number that is none.
    """
    return find_client(address or dask.config.get("scaler.address", None), _workers).client


def _workers() -> int | None:
    number = dask.config.get("scaler.n-workers", None)
    if number is None or (isinstance(number, int) and number > 0):
        return number
    raise ValueError(f"dask's setting scaler.n-workers has to be a whole number of 1 or more, not {number!r}")
