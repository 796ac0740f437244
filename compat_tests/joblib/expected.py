"""Tests of joblib's that fail under the backend "scaler", each with its reason; one that passes is an error."""

_NESTED = "asks that a call inside a task runs in threads of that task: it runs on the cluster, where it can be spread"
_MEMMAP = "asks for files that are mapped into memory: large arrays come from the store, as plain arrays"

#: by the name of a test, with or without its parameters
EXPECTED: dict[str, str] = {
    "test_auto_memmap_on_arrays_from_generator": _MEMMAP,
    "test_memmapping_leaks": _MEMMAP,
    "test_nested_backend_context_manager": _NESTED,
    "test_nested_parallelism_limit": _NESTED,
}
