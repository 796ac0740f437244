"""Climate in chunks: xarray on dask, from a store on disk to climatology, anomalies, trends, and back to disk."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr

Data = Any


class Folder:
    """What `dask.array.store` writes into: a file a block, named after where it begins. Safe in any process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __setitem__(self, place: tuple[slice, ...], block: Any) -> None:
        np.save(self.directory / ("-".join(str(part.start) for part in place) + ".npy"), block)


def make_year(year: int, n_lat: int, n_lon: int) -> Data:
    """A year of made-up temperatures and rain, every day."""
    rng = np.random.default_rng(year)
    time = pd.date_range(f"{year}-01-01", f"{year}-12-31", freq="D")
    lat, lon = np.linspace(-60, 60, n_lat), np.linspace(0, 350, n_lon)
    season = 10 * np.cos((time.day_of_year.to_numpy()[:, None, None] - 200) / 58) * np.sign(lat)[:, None]
    base = 25 - abs(lat)[:, None] / 3 + 0.1 * (year - 2000) + np.zeros(n_lon)
    temperature = base + season + rng.normal(scale=2, size=(len(time), n_lat, n_lon))
    rain = rng.gamma(0.5, 4, size=temperature.shape) * (rng.random(temperature.shape) < 0.4)
    rain[0, 0, :3] = np.nan  # a station that was broken
    return xr.Dataset(
        {"temperature": (("time", "lat", "lon"), temperature), "rain": (("time", "lat", "lon"), rain)},
        coords={"time": time, "lat": lat, "lon": lon},
    )


def opened(directory: Path, years: range, n_lat: int, n_lon: int) -> Data:
    """All years as one dataset in chunks; nothing is read yet."""
    parts = []
    for year in years:
        path = directory / f"year-{year}.zarr"
        make_year(year, n_lat, n_lon).chunk(time=92).to_zarr(path, consolidated=False)
        parts.append(xr.open_zarr(path, chunks={}, consolidated=False))
    return xr.concat(parts, dim="time", data_vars="all", join="outer", coords="different", compat="equals")


def climatology(data: Data) -> dict[str, Any]:
    """The mean of each month, what deviates from it, and how warm each season is on average over the globe."""
    monthly = data.temperature.groupby("time.month").mean("time")
    anomalies = data.temperature.groupby("time.month") - monthly
    weights = np.cos(np.deg2rad(data.lat))
    seasons = data.temperature.groupby("time.season").mean().mean(("lat", "lon")).compute()
    globe = anomalies.weighted(weights).mean(("lat", "lon")).resample(time="YS").mean()
    monthly, globe, spread = dask.compute(monthly, globe, anomalies.std())
    return {
        "monthly": monthly.mean(("lat", "lon")).values.tolist(),
        "yearly": globe.values.tolist(),
        "spread": float(spread),
        "seasons": dict(zip(seasons.season.values.tolist(), seasons.values.tolist(), strict=True)),
    }


def windows(data: Data) -> dict[str, Any]:
    """Rolling means, months of rain, the wettest five days, days one after the other."""
    smooth = data.temperature.rolling(time=7, center=True).mean()
    months = data.rain.resample(time="MS").sum()
    wet = data.rain.chunk(time=-1).rolling(time=5).sum().max("time")
    warmer = data.temperature.diff("time") > 0
    blocks = data.coarsen(lat=4, lon=6, boundary="trim").mean()
    return {
        "smooth": [float(smooth.max()), float(smooth.min()), int(smooth.count())],
        "months": months.mean(("lat", "lon")).values[:6].tolist(),
        "wettest": float(wet.max()),
        "warmer": int(warmer.sum()),
        "coarse": blocks.temperature.mean("time").values.tolist(),
        "missing": int(data.rain.isnull().sum()),
    }


def slope(values: Any) -> Any:
    """Of a straight line through the last axis."""
    days = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    return (values * days).sum(axis=-1) / (days**2).sum()


def standardised(block: Data) -> Data:
    """A block with the coordinates that it came with."""
    return (block - block.mean("time")) / block.std("time")


def functions(data: Data) -> dict[str, Any]:
    """Functions of arrays, and of blocks with their coordinates."""
    whole = data.temperature.chunk({"time": -1, "lat": 4})
    trend = xr.apply_ufunc(
        slope, whole, input_core_dims=[["time"]], dask="parallelized", output_dtypes=[float]
    )  # fmt: skip
    blocks = xr.map_blocks(standardised, whole, template=whole)
    warm = xr.where(data.temperature > 30, data.temperature, 0).sum()
    quantiles = whole.quantile([0.1, 0.9], dim="time")
    correlation = xr.corr(data.temperature, data.rain.fillna(0), dim="time")
    trend, deviation, warm, quantiles, correlation = dask.compute(
        trend, blocks.std("time").mean(), warm, quantiles, correlation
    )
    return {
        "trend": trend.mean("lon").values.tolist(),
        "deviation": float(deviation),
        "warm": float(warm),
        "quantiles": quantiles.mean(("lat", "lon")).values.tolist(),
        "correlation": float(abs(correlation).max()),
        "nearest": float(data.temperature.sel(lat=41, lon=33, method="nearest").mean()),
        "interpolated": float(data.temperature.isel(time=slice(0, 90)).interp(lat=12.5).mean()),
    }


def stored(data: Data, directory: Path) -> dict[str, Any]:
    """Results that are written block by block, at once and later, and read again."""
    celsius = data[["temperature"]].chunk(time=200).drop_encoding()
    later = celsius.to_zarr(directory / "all.zarr", compute=False, consolidated=False)
    dask.compute(later)
    again = xr.open_zarr(directory / "all.zarr", consolidated=False)
    blocks = data.rain.fillna(0).data.rechunk((150, 10, -1))
    (directory / "rain").mkdir()
    folder: Any = Folder(directory / "rain")
    da.store(blocks, folder, lock=False)
    files = sorted((directory / "rain").iterdir())
    return {
        "same": bool((again.temperature == data.temperature).all()),
        "chunks": [len(again.chunks["time"]), len(files)],
        "rain": sum(float(np.load(path).sum()) for path in files),
    }


def main(years: range = range(2001, 2004), n_lat: int = 20, n_lon: int = 36) -> dict[str, Any]:
    """Write some years, and look at them."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = opened(directory, years, n_lat, n_lon)
        return {
            "sizes": dict(data.sizes),
            "climatology": climatology(data),
            "windows": windows(data.persist()),
            "functions": functions(data),
            "stored": stored(data, directory),
        }


if __name__ == "__main__":
    dask.config.set(scheduler="threads")
    print(json.dumps(main()))
