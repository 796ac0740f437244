"""What a tutorial of dask teaches: delayed functions, bags, arrays, data frames, futures."""

from __future__ import annotations

import collections
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.diagnostics import ProgressBar
from dask.distributed import Client, as_completed, wait, worker_client

CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Espoo", "Faro"]


# ---- delayed ---------------------------------------------------------------------------------------------------------
def increment(x: int) -> int:
    return x + 1


def double(x: int) -> int:
    return 2 * x


def is_even(x: int) -> bool:
    return x % 2 == 0


@dask.delayed
def load(path: Path) -> Any:
    return pd.read_csv(path)


@dask.delayed(nout=2)
def smallest_and_largest(values: list[int]) -> tuple[int, int]:
    return min(values), max(values)


def delayed_functions(paths: list[Path]) -> dict[str, Any]:
    """Loops, control flow, methods of what is delayed, and several results that share their parts."""
    parts = []
    for x in range(60):
        if is_even(x):
            parts.append(dask.delayed(double)(x))
        else:
            parts.append(dask.delayed(increment)(x))
    total = dask.delayed(sum)(parts)
    low, high = smallest_and_largest(parts)

    sums, counts = [], []
    for path in paths:
        delays = load(path)["delay"]
        sums.append(delays.sum())
        counts.append(delays.count())
    mean = dask.delayed(sum)(sums) / dask.delayed(sum)(counts)

    with ProgressBar(minimum=60):  # shows itself only if it takes long
        total, low, high, mean = dask.compute(total, low, high, mean)
    return {"total": total, "low": low, "high": high, "mean": float(mean)}


# ---- bags ------------------------------------------------------------------------------------------------------------
def write_records(directory: Path, n_files: int) -> None:
    """Orders, one JSON record a line."""
    rng = np.random.default_rng(3)
    for number in range(n_files):
        with gzip.open(directory / f"orders-{number}.json.gz", "wt") as file:
            for _ in range(200):
                items = [
                    {"article": int(rng.integers(40)), "amount": int(rng.integers(1, 9))}
                    for _ in range(rng.integers(1, 5))
                ]
                record = {"city": CITIES[rng.integers(len(CITIES))], "age": int(rng.integers(18, 90)), "items": items}
                file.write(json.dumps(record) + "\n")


def bags(directory: Path) -> dict[str, Any]:
    """Semi-structured records: filtered, plucked, counted, grouped, and made into a data frame."""
    orders = db.read_text(str(directory / "orders-*.json.gz")).map(json.loads)
    items = orders.pluck("items").flatten()
    by_age = orders.foldby(
        key=lambda order: order["age"] // 10 * 10,
        binop=lambda n, order: n + len(order["items"]),
        initial=0,
        combine=lambda a, b: a + b,
        combine_initial=0,
    )
    grouped = orders.groupby(lambda order: order["city"]).map(
        lambda pair: (pair[0], max(order["age"] for order in pair[1]))
    )
    frame = orders.map(lambda order: {"city": order["city"], "n": len(order["items"])}).to_dataframe()
    written = (
        orders.filter(lambda order: order["age"] < 20).map(json.dumps).to_textfiles(str(directory / "young-*.json"))
    )
    return {
        "orders": orders.count().compute(),
        "first": orders.take(2)[1]["city"],
        "amount": items.pluck("amount").sum().compute(),
        "articles": sorted(items.pluck("article").frequencies().topk(5, key=lambda pair: (pair[1], pair[0])).compute()),
        "by age": sorted(by_age.compute()),
        "oldest": sorted(grouped.compute()),
        "distinct": sorted(orders.pluck("city").distinct().compute()),
        "deviation": float(orders.pluck("age").std().compute()),
        "frame": frame.groupby("city").n.sum().compute().sort_index().to_dict(),
        "young": sum(len(Path(path).read_text().splitlines()) for path in written),
    }


# ---- arrays ----------------------------------------------------------------------------------------------------------
def read_station(number: int) -> Any:
    return np.random.default_rng(number).normal(10, number + 1, size=(100, 300))


def laplacian(block: Any) -> Any:
    return (
        np.roll(block, 1, 0) + np.roll(block, -1, 0) + np.roll(block, 1, 1) + np.roll(block, -1, 1) - 4 * block
    )  # its borders are wrong, and are cut off


def arrays() -> dict[str, Any]:
    """Blocks that are read late, stacked, rechunked, smoothed with their neighbours, and reduced."""
    blocks = [da.from_delayed(dask.delayed(read_station)(n), (100, 300), float) for n in range(8)]
    stations = da.stack(blocks)
    rechunked = stations.rechunk((8, 50, 150))
    plane = da.concatenate(blocks, axis=1).rechunk((50, 800))
    curved = plane.map_overlap(laplacian, depth=1, boundary="reflect")
    smooth = da.overlap.overlap(plane, depth={0: 2, 1: 2}, boundary="periodic").map_blocks(np.cbrt, dtype=float)
    counts, edges = da.histogram(stations, bins=8, range=(-40, 60))
    tall = plane[:60].T.rechunk((600, -1))
    u, s, v = da.linalg.svd(tall)
    mean, deviation, curvature, weights, rows, values = dask.compute(
        rechunked.mean(axis=(1, 2)), stations.std(axis=0).max(), abs(curved).sum(), counts,
        plane[plane[:, 0] > 12].shape[1], s[:4],
    )  # fmt: skip
    return {
        "mean": mean.tolist(),
        "deviation": float(deviation),
        "curvature": float(curvature),
        "histogram": weights.tolist(),
        "edges": edges.tolist(),
        "columns": rows,
        "singular": values.tolist(),
        "back": bool(abs((u * s) @ v - tall).max().compute() < 1e-9),
        "smooth": float(smooth.sum().compute()),
        "top": stations.ravel().topk(3).compute().tolist(),
        "chosen": float(plane[plane > 40].sum().compute()),
        "einsum": float(da.einsum("sij,sij->s", stations, stations).max().compute()),
    }


# ---- data frames -----------------------------------------------------------------------------------------------------
def write_flights(directory: Path, n_files: int) -> list[Path]:
    """A table a month, as CSV."""
    rng = np.random.default_rng(5)
    paths = []
    for month in range(n_files):
        n = 1_500
        start = pd.Timestamp("2023-01-01") + pd.DateOffset(months=month)
        frame = pd.DataFrame(
            {
                "time": start + pd.to_timedelta(np.sort(rng.integers(0, 28 * 24 * 60, n)), unit="min"),
                "origin": rng.choice(CITIES, n),
                "target": rng.choice(CITIES, n),
                "distance": rng.integers(200, 3_000, n),
                "delay": rng.normal(8, 20, n).round(2),
                "cancelled": rng.random(n) < 0.03,
            }
        )
        paths.append(directory / f"flights-{month:02}.csv")
        frame.to_csv(paths[-1], index=False)
    return paths


def frames(directory: Path) -> dict[str, Any]:
    """One data frame of many CSV files: groups, joins, an index, rolling means, Parquet, a reduction of one's own."""
    flights = dd.read_csv(str(directory / "flights-*.csv"), parse_dates=["time"])
    flown = flights[~flights.cancelled]
    spread = dd.Aggregation(
        "spread",
        chunk=lambda groups: (groups.max(), groups.min()),
        agg=lambda highs, lows: (highs.max(), lows.min()),
        finalize=lambda high, low: high - low,
    )
    airports = pd.DataFrame({"origin": CITIES, "country": ["DK", "NO", "IE", "NL", "FI", "PT"]})
    with_country = flown.merge(dd.from_pandas(airports, npartitions=2), on="origin")
    indexed = flown.set_index("time")
    late = flown.map_partitions(lambda part: part[part.delay > 60], meta=flown._meta)
    flights.to_parquet(str(directory / "flights"))
    again = dd.read_parquet(str(directory / "flights"), columns=["origin", "distance"])
    by_origin, by_country, spreads, daily = dask.compute(
        flown.groupby("origin").delay.agg(["mean", "std", "count"]),
        with_country.groupby("country").distance.mean(),
        flown.groupby("target").delay.agg(spread),
        indexed.delay.resample("1D").mean(),
    )
    by_origin = by_origin.sort_index()
    return {
        "rows": len(flights),
        "mean": by_origin["mean"].to_dict(),
        "deviation": by_origin["std"].tolist(),
        "count": by_origin["count"].tolist(),
        "countries": by_country.sort_index().to_dict(),
        "spread": spreads.sort_index().to_dict(),
        "daily": [len(daily), float(daily.sum())],
        "rolling": float(indexed.delay.rolling("2D").mean().max().compute()),
        "late": len(late),
        "farthest": flown.distance.nlargest(3).compute().tolist(),
        "pairs": flown.drop_duplicates(subset=["origin", "target"]).shape[0].compute(),
        "quantile": float(flown.delay.quantile(0.5).compute()),
        "value counts": again.origin.value_counts().compute().sort_index().to_dict(),
        "shuffled": sorted(flights.shuffle("origin").map_partitions(lambda part: part.origin.nunique()).compute())[-1]
        <= len(CITIES),
    }


# ---- futures ---------------------------------------------------------------------------------------------------------
def words_of(number: int) -> collections.Counter[str]:
    rng = np.random.default_rng(number)
    return collections.Counter(rng.choice(CITIES, 500).tolist())


def merged(a: collections.Counter[str], b: collections.Counter[str]) -> collections.Counter[str]:
    return a + b


def steps(n: int) -> tuple[int, int]:
    """How long the Collatz sequence of n is."""
    count, value = 0, n
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        count += 1
    return n, count


def fibonacci(n: int) -> int:
    """Tasks that submit tasks, and wait for them."""
    if n < 2:
        return n
    with worker_client() as client:
        return sum(client.gather(client.map(fibonacci, [n - 1, n - 2])))


def fails(x: int) -> float:
    return 1 / (x - x)


def futures(client: Client) -> dict[str, Any]:
    """Tasks that are submitted as others end: an accumulation of one's own, a search that widens, errors."""
    ready = as_completed(client.map(words_of, range(24)))
    merges = 0
    first = None
    for future in ready:  # two that are there are merged, whichever they are
        if first is None:
            first = future
        else:
            ready.add(client.submit(merged, first, future, key=f"merged-{merges}"))
            first, merges = None, merges + 1
    assert first is not None
    counted = first.result()

    asked = as_completed([client.submit(steps, n) for n in range(1, 20)], with_results=True)
    longest: dict[int, int] = {}
    for _, (n, count) in asked:
        longest[n] = count
        if count > 15 and 3 * n < 400:
            asked.add(client.submit(steps, 3 * n))

    table = client.scatter(np.arange(1_000.0))
    sums = client.map(lambda power, values: float((values**power).sum()), range(1, 4), values=table)
    done, not_done = wait(sums)
    bad = client.submit(fails, 3)
    return {
        "counted": dict(counted),
        "merges": merges,
        "searched": len(longest),
        "longest": max((count, n) for n, count in longest.items()),
        "powers": client.gather(sums),
        "waited": [len(done), len(not_done)],
        "error": type(bad.exception()).__name__,
        "status": bad.status,
        "recursive": client.submit(fibonacci, 9).result(),
        "nested": client.submit(sum, [client.submit(increment, 1), client.submit(double, 4)]).result(),
    }


def persisted(client: Client) -> dict[str, Any]:
    """Collections that stay on the cluster while they are asked different things."""
    x = da.random.default_rng(11).normal(size=(1_200, 1_200), chunks=(300, 300))
    centred = (x - x.mean(axis=0)).persist()
    wait(centred)
    squares, product = dask.persist(centred**2, centred @ centred.T)
    future = client.compute(squares.sum())
    bag = db.from_sequence(range(1_000), npartitions=10).map(double).persist()
    return {
        "squares": float(future.result()),
        "trace": float(da.trace(product).compute()),
        "largest": float(abs(centred).max().compute()),
        "same": bool(da.allclose(centred.T.T, centred).compute()),
        "bag": [bag.sum().compute(), bag.filter(is_even).count().compute()],
    }


def main(n_files: int = 6) -> dict[str, Any]:
    """Go through all chapters."""
    with tempfile.TemporaryDirectory() as name, Client(n_workers=2, threads_per_worker=1) as client:
        directory = Path(name)
        write_records(directory, n_files)
        paths = write_flights(directory, n_files)
        return {
            "delayed": delayed_functions(paths),
            "bag": bags(directory),
            "array": arrays(),
            "dataframe": frames(directory),
            "futures": futures(client),
            "persist": persisted(client),
        }


if __name__ == "__main__":
    print(json.dumps(main()))
