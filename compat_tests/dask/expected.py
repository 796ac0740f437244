"""Tests of dask's that pass under its threads and can't under processes: each with its reason. The list is strict.

A name is that of the test's module and the test; without brackets it stands for all parameters.
"""

from __future__ import annotations

CHANGES = "a task changes an object of the client's (a counter, a target of `store`), and the test looks at that object"
LOCKS = (
    "a lock of the client's process that counts, or that tasks are to share with it: it can't be pickled, or is a copy"
)
IDENTITY = "the value has to be the very object that was given, not an equal one"
UNPICKLABLE = "the graph holds what can't be pickled: a generator, or a ufunc that NumPy made of a Python function"
MEMORY = "the files are in the memory of the client's process: fsspec's file system `memory`"
SETTINGS = "a setting of dask's that the test makes in its own process is to be that of the tasks, too"
THREADS = "asks for threads: that tasks see what the client has made of a global"

WRITABLE = "a file of h5py that the client has open for writing: it does not travel, nor does it with distributed"
OUR_LOCK = "asks which lock goes with threads, in whose place Scaler computes: that of its workers"

#: tests that pass by chance, under every engine: their result hangs on the order of sets
BY_CHANCE = frozenset({"test_order::test_string_ordering_dependents"})

EXPECTED = {
    # ---- dask/tests, dask/bag
    "test_delayed::test_traverse_false": IDENTITY,
    "test_distributed::test_get_scheduler_lock[threads-expected_classes1]": OUR_LOCK,
    "test_graph_manipulation::test_bind": CHANGES,
    "test_graph_manipulation::test_checkpoint": CHANGES,
    "test_graph_manipulation::test_checkpoint_collections": CHANGES,
    "test_graph_manipulation::test_wait_on_many": CHANGES,
    "test_graph_manipulation::test_wait_on_one": CHANGES,
    "test_multiprocessing::test_process_initializer[threading-None-expected_results0]": THREADS,
    "test_bag::test_bag_with_single_callable": IDENTITY,
    "test_bag::test_reductions_are_lazy": UNPICKLABLE,
    "test_bag::test_repartition_partition_size_complex_dtypes": IDENTITY,
    "test_bag::test_to_delayed_optimize_graph": CHANGES,
    # ---- dask/array
    "test_array_core::test_from_array_getitem[False-True]": CHANGES,
    "test_array_core::test_from_array_getitem[True-True]": CHANGES,
    "test_array_core::test_from_array_with_lock": LOCKS,
    "test_array_core::test_h5py_newaxis": WRITABLE,
    "test_array_core::test_store": CHANGES,
    "test_array_core::test_store_compute_false": CHANGES,
    "test_array_core::test_store_delayed_target": CHANGES,
    "test_array_core::test_store_locks_count_calls": LOCKS,
    "test_array_core::test_store_locks_dont_assume_threadsafe": LOCKS,
    "test_array_core::test_store_locks_failure_lock_released": LOCKS,
    "test_array_core::test_store_locks_no_lock": LOCKS,
    "test_array_core::test_store_locks_one_lock_two_stores": LOCKS,
    "test_array_core::test_store_regions": CHANGES,
    "test_array_core::test_store_sources_unoptimized_nocompute": CHANGES,
    "test_array_core::test_to_hdf5": WRITABLE,
    "test_array_core::test_zarr_existing_array": CHANGES,
    "test_array_core::test_zarr_regions": CHANGES,
    "test_array_core::test_zarr_sharding_roundtrip": CHANGES,
    "test_array_core::test_zarr_to_zarr_shards": CHANGES,
    "test_ufunc::test_frompyfunc": UNPICKLABLE,
    "test_xarray::test_shared_tasks": LOCKS,
    # ---- dask/dataframe
    "test_extensions::test_register_extension_type": IDENTITY,  # a context of `decimal` is equal to itself alone
    "test_fusion::test_fusion_executes_only_once": CHANGES,
    "test_io::test_from_map_column_projection": CHANGES,
    "test_parquet::test_filter_isna": IDENTITY,  # `is np.nan`
    "test_parquet::test_fsspec_to_parquet_filesystem_option": MEMORY,
    "test_shuffle::test_disk_shuffle_with_unknown_compression": SETTINGS,
}
