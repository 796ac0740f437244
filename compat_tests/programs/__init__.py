"""Programs as users write them, on libraries of the field; each runs on any engine but for the line that names it.

    python -m compat_tests.programs                              # all, under Scaler and under threads
    python -m compat_tests.programs --engines all tutorial       # one, under every engine
    python compat_tests/programs/climate.py                      # as it is: prints its results

| program | what it uses |
|---|---|
| `tutorial` | dask: delayed, bags, arrays, data frames, futures, as its tutorial teaches them |
| `incremental` | scikit-learn: `partial_fit` on the chunks of dask arrays, models side by side, a search that halves |
| `features` | tsfresh: features of many time series, by its distributors, an executor, groups and partitions |
| `climate` | xarray and zarr: climatology, rolling means, `apply_ufunc`, `map_blocks`, stores |
| `images` | dask-image and sparse: filters, labels and measurements, sparse blocks in dask arrays |

Each has `main()`, which returns plain results; they are the same each time. As it is, it uses dask.distributed's
client (`from dask.distributed import ...`) or dask's threads (`dask.config.set(scheduler="threads")`). The runner
replaces that line, runs the program in a process of its own, and compares the results with those under threads. It also
looks for processes, and for files in shared memory, that were left behind.
"""
