"""Dask on Scaler: `dask.compute(x, scheduler=scaler_get)`."""

from scaler_dask.get import scaler_get

__all__ = ["scaler_get"]
