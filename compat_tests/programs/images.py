"""Images in chunks, and arrays that are mostly zeros: dask-image and sparse on dask.

Blobs on a large noisy image are smoothed, found, labelled across chunks, and measured; counts of events are kept as
sparse blocks, and reduced, multiplied and added up.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask_image.imread
import dask_image.ndfilters as filters
import dask_image.ndfourier as fourier
import dask_image.ndmeasure as measure
import dask_image.ndmorph as morph
import numpy as np
import sparse
import tifffile

Array = Any


# ---- images ----------------------------------------------------------------------------------------------------------
def write_frames(directory: Path, n_frames: int, size: int) -> None:
    """A series of frames as TIFF, with bright spots that move."""
    rng = np.random.default_rng(17)
    rows, columns = np.mgrid[:size, :size]
    spots = rng.uniform(20, size - 20, size=(9, 2))
    for number in range(n_frames):
        frame = rng.normal(40, 6, size=(size, size))
        for k, (row, column) in enumerate(spots):
            width = 2 * (3 + k % 4) ** 2
            frame += 120 * np.exp(-((rows - row - number) ** 2 + (columns - column + number) ** 2) / width)
        tifffile.imwrite(directory / f"frame-{number:02}.tif", frame.clip(0, 255).astype(np.uint8))


def filtered(frames: Array) -> dict[str, Any]:
    """Filters that look over the borders of chunks."""
    image = frames[0].rechunk(80).astype(float)
    smooth = filters.gaussian_filter(image, sigma=2)
    results = {
        "gaussian": smooth.std(),
        "median": filters.median_filter(image, size=3).max(),
        "sobel": abs(filters.sobel(image, axis=0)).mean(),
        "laplace": abs(filters.gaussian_laplace(image, sigma=1.5)).max(),
        "largest": filters.maximum_filter(image, size=5).mean(),
        "rank": filters.percentile_filter(image, percentile=30, size=3).mean(),
        "uniform": filters.uniform_filter(frames.astype(float), size=(2, 3, 3)).sum(),
        "convolved": filters.convolve(image, np.outer([1, 2, 1], [1, 0, -1]).astype(float)).min(),
        "generic": filters.generic_filter(image[:64, :64], function=np.ptp, size=3).sum(),
        "fourier": abs(da.fft.ifft2(fourier.fourier_gaussian(da.fft.fft2(image.rechunk(-1)), sigma=3))).max(),
    }
    return {name: float(value) for name, value in dask.compute(results)[0].items()}


def measured(frames: Array) -> dict[str, Any]:
    """Blobs in all frames: each has a label, wherever the chunks end, and is measured under it."""
    image = frames.rechunk((3, 80, 80)).astype(float)
    smooth = filters.gaussian_filter(image, sigma=(0, 1.5, 1.5))
    bright = morph.binary_opening(smooth > filters.threshold_local(smooth[0], block_size=(80, 80)).mean() + 30)
    bright = bright.persist()
    labels, count = measure.label(bright)
    labels, count = dask.persist(labels, count)
    n = int(count)
    index = np.arange(1, n + 1)
    area, mean, centre, deviation, peak, extremes = dask.compute(
        measure.area(image, labels, index), measure.mean(image, labels, index),
        measure.center_of_mass(image, labels, index), measure.standard_deviation(image, labels, index),
        measure.maximum_position(image, labels, index), da.stack(measure.extrema(image, labels, index)[:2]),
    )  # fmt: skip
    places = measure.find_objects(labels).compute()
    grown = morph.binary_dilation(bright, iterations=2)
    histogram = measure.histogram(image, 0, 256, 8).compute()
    return {
        "blobs": n,
        "bright": int(bright.sum()),
        "grown": int(grown.sum()),
        "area": area.tolist(),
        "mean": mean.tolist(),
        "centre": centre.tolist(),
        "deviation": float(deviation.mean()),
        "peak": peak.tolist(),
        "extremes": [float(extremes[0].min()), float(extremes[1].max())],
        "widest": int(max(place.stop - place.start for place in places[2])),
        "histogram": histogram.tolist(),
    }


# ---- sparse arrays ---------------------------------------------------------------------------------------------------
def events(block_id: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """A block of counts, one in a hundred of which are not zero."""
    rng = np.random.default_rng([29, *block_id])
    n = int(np.prod(shape)) // 100
    places = np.stack([rng.integers(0, size, n) for size in shape])
    return sparse.COO(places, rng.integers(1, 6, n), shape=shape)


def counts(n_rows: int, n_columns: int, chunk: int) -> Array:
    """A dask array of such blocks, each made in its own task."""
    make = dask.delayed(events)
    meta = sparse.COO(np.empty((2, 0), dtype=int), np.empty(0, dtype=int), shape=(0, 0))
    rows = [
        [
            da.from_delayed(make((i, j), (chunk, chunk)), (chunk, chunk), dtype=int, meta=meta)
            for j in range(n_columns // chunk)
        ]
        for i in range(n_rows // chunk)
    ]
    return da.block(rows)


def sparsely(n_rows: int, n_columns: int, chunk: int) -> dict[str, Any]:
    """Reductions, products and elementwise functions of sparse blocks; what comes back is sparse, too."""
    x = counts(n_rows, n_columns, chunk)
    dense = np.random.default_rng(31).normal(size=(n_columns, 8))
    both = (x.T @ x).persist()
    product = da.tensordot(x, dense, axes=1)
    scaled = da.log1p(x.astype(float)) * 2
    as_dense = da.random.default_rng(37).random((n_rows, n_columns), chunks=chunk)
    by_column, by_row, total, gram, product, scaled, weighted = dask.compute(
        x.sum(axis=0),
        x.max(axis=1),
        x.sum(),
        both,
        abs(product).sum(),
        scaled,
        (x * as_dense).sum(),
    )
    return {
        "kinds": [type(value).__name__ for value in (by_column, by_row, gram, scaled)],
        "columns": by_column.todense()[:12].tolist(),
        "rows": int(by_row.todense().sum()),
        "total": int(total),
        "gram": [gram.nnz, int(gram.todense().trace())],
        "product": float(product),
        "logarithms": [scaled.nnz, float(scaled.sum())],
        "weighted": float(weighted),
        "again": float((both.astype(float) / 2).sum().compute()),
    }


def main(n_frames: int = 6, size: int = 160, n_rows: int = 900, n_columns: int = 600) -> dict[str, Any]:
    """Look at images, and count events."""
    with tempfile.TemporaryDirectory() as name:
        write_frames(Path(name), n_frames, size)
        frames = dask_image.imread.imread(str(Path(name, "frame-*.tif")))
        return {
            "frames": [*frames.shape, int(frames.sum().compute())],
            "filters": filtered(frames),
            "blobs": measured(frames),
            "sparse": sparsely(n_rows, n_columns, 300),
        }


if __name__ == "__main__":
    dask.config.set(scheduler="threads")
    print(json.dumps(main()))
