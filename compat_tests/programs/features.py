"""Features of many time series, as tsfresh extracts them: by a distributor, by dask's data frames, by an executor.

A long table has a row for each moment of each series: id, time, kind, value. Each series becomes a row of features.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client
from tsfresh import extract_features
from tsfresh.feature_extraction import EfficientFCParameters, MinimalFCParameters
from tsfresh.utilities.distribution import ClusterDaskDistributor, IterableDistributorBaseClass

Frame = Any

#: of tsfresh's some 75 calculators, those that are quick
CALCULATORS = [
    "abs_energy", "absolute_sum_of_changes", "agg_autocorrelation", "ar_coefficient", "autocorrelation",
    "benford_correlation", "c3", "cid_ce", "count_above_mean", "energy_ratio_by_chunks", "fft_aggregated",
    "fft_coefficient", "first_location_of_maximum", "index_mass_quantile", "kurtosis", "large_standard_deviation",
    "linear_trend", "longest_strike_above_mean", "mean_abs_change", "number_crossing_m", "number_peaks",
    "partial_autocorrelation", "quantile", "ratio_beyond_r_sigma", "skewness", "spkt_welch_density",
    "time_reversal_asymmetry_statistic",
]  # fmt: skip


def make_series(n_series: int, length: int) -> Frame:
    """Two kinds for each id: noisy oscillations, and random walks."""
    rng = np.random.default_rng(13)
    time = np.arange(length)
    tables = []
    for number in range(n_series):
        wave = np.sin(time / (2 + number % 7)) * (1 + number % 3) + rng.normal(scale=0.3, size=length)
        walk = rng.normal(size=length).cumsum()
        for kind, values in (("wave", wave), ("walk", walk)):
            tables.append(pd.DataFrame({"id": number, "time": time, "kind": kind, "value": values}))
    return pd.concat(tables, ignore_index=True)


class OnClient(ClusterDaskDistributor):
    """tsfresh's distributor for a cluster of dask's, with a client that is there already."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def close(self) -> None:
        """The client goes on."""


class OnExecutor(IterableDistributorBaseClass):
    """Any executor as a distributor."""

    def __init__(self, executor: Executor, n_workers: int) -> None:
        self.executor = executor
        self.n_workers = n_workers

    def distribute(self, func: Callable[..., Any], partitioned_chunks: Iterable[Any], kwargs: Any) -> list[Any]:
        """The lists that the calls for the chunks return, one after the other."""
        lists = self.executor.map(partial(func, **kwargs), list(partitioned_chunks))
        return [item for items in lists for item in items]


def summary(table: Frame) -> dict[str, Any]:
    """What is compared: the shape, the names, and each column's mean and largest value."""
    table = table.sort_index().sort_index(axis=1).astype(float)
    return {
        "shape": list(table.shape),
        "columns": list(table.columns[:5]),
        "means": table.mean().tolist(),
        "largest": table.max().tolist(),
    }


def by_distributor(series: Frame, distributor: Any) -> dict[str, Any]:
    """Some 200 features for each id."""
    wanted = EfficientFCParameters()
    settings = {name: wanted[name][:6] if wanted[name] else None for name in CALCULATORS}
    table = extract_features(
        series, column_id="id", column_sort="time", column_kind="kind", column_value="value",
        default_fc_parameters=settings, distributor=distributor, disable_progressbar=True,
    )  # fmt: skip
    return summary(table)


def own_features(values: Any) -> Any:
    """Of one series, without a library."""
    x = values.to_numpy()
    changes = np.diff(x)
    spectrum = abs(np.fft.rfft(x - x.mean()))
    return pd.Series(
        {
            "mean": x.mean(),
            "deviation": x.std(),
            "slope": np.polyfit(np.arange(len(x)), x, 1)[0],
            "roughness": np.sqrt((changes**2).sum()),
            "crossings": float((np.diff(np.sign(x - x.mean())) != 0).sum()),
            "period": len(x) / max(1, int(spectrum.argmax())),
            "entropy": -float(np.nansum(spectrum / spectrum.sum() * np.log(spectrum / spectrum.sum()))),
        }
    )


def by_groups(series: Frame) -> dict[str, Any]:
    """A function of each group of a dask data frame, whose rows are shuffled to their groups."""
    meta = pd.DataFrame({name: pd.Series(dtype=float) for name in own_features(series.value[:9]).index})
    grouped = dd.from_pandas(series, npartitions=4).groupby(["id", "kind"])
    features = grouped.value.apply(own_features, meta=pd.Series(dtype=float, name="value"))
    smooth = grouped.apply(
        lambda group: group.sort_values("time").value.rolling(9).mean().max(), meta=("rolled", float)
    )
    table = features.compute().unstack()[list(meta.columns)]
    table["rolled"] = smooth.compute()
    table.index = ["__".join(map(str, pair)) for pair in table.index]
    return summary(table)


def of_partition(part: Frame) -> Frame:
    """tsfresh's features of all series that a partition has; they are whole in it."""
    return extract_features(
        part, column_id="id", column_sort="time", column_kind="kind", column_value="value",
        default_fc_parameters=MinimalFCParameters(), n_jobs=0, disable_progressbar=True,
    )  # fmt: skip


def by_partitions(series: Frame) -> dict[str, Any]:
    """Series are brought together by a shuffle, and each partition is given to tsfresh as a whole."""
    names = of_partition(series[series.id == 0]).columns
    meta = pd.DataFrame({name: pd.Series(dtype=float) for name in names})
    together = dd.from_pandas(series, npartitions=5).shuffle("id", npartitions=6)
    features = together.map_partitions(of_partition, meta=meta).persist()
    largest = features["walk__variance"].nlargest(3).compute()
    return {**summary(features.compute()), "most": sorted(largest.index.tolist()), "rows": len(features)}


def main(n_series: int = 24, length: int = 48) -> dict[str, Any]:
    """Extract features in four ways."""
    warnings.simplefilter("ignore")
    series = make_series(n_series, length)
    with Client(n_workers=2, threads_per_worker=1) as client:
        clustered = by_distributor(series, OnClient(client))
        with client.get_executor() as executor:
            executed = by_distributor(series, OnExecutor(executor, len(client.ncores())))
        return {
            "clustered": clustered,
            "executed": executed == clustered,
            "grouped": by_groups(series),
            "partitions": by_partitions(series),
        }


if __name__ == "__main__":
    print(json.dumps(main()))
