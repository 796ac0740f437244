"""Which client a dask computation uses; one per process and address, kept until the process ends."""

from __future__ import annotations

import dask.config

from scaler.client import Client, nesting


def client_for(address: str | None = None) -> Client:
    """Return the client of `address`, of dask's setting, of the surroundings, or of the embedded cluster."""
    address = address or dask.config.get("scaler.address", None)
    if not address:
        try:
            address = nesting.where(None, None)[0].url
        except ValueError:  # no surrounding task and no SCALER_ADDRESS
            from scaler.cluster import embedded

            return embedded.client()
    return nesting.shared_client(address, None)
