"""Importing this begins the process of a script's local cluster: while it loads modules, this process does, too.

A program that imports `scaler_dask` will hardly be without a cluster for long, unless it says where one is.
"""

from __future__ import annotations

import os

import dask.config

from scaler.extension import begin_local_cluster


def _begin() -> None:
    number = dask.config.get("scaler.n-workers", None)
    if not (dask.config.get("scaler.address", None) or os.environ.get("SCALER_ADDRESS")):
        begin_local_cluster(number if isinstance(number, int) else None, "dask")


_begin()
