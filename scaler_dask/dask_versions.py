"""What differs between the versions of dask that are supported, where it can't be told from the objects at hand."""

from __future__ import annotations

import sys
from typing import Any

from dask import base as _base

#: dask's functions; their types differ from version to version
base: Any = _base


def has_expressions() -> bool:
    """Whether dask's graphs end in one key for each collection, as they do since 2025.4."""
    try:
        from dask._expr import FinalizeCompute  # noqa: F401
    except ImportError:
        return False
    return True


def is_called_by_persist() -> bool:
    """Whether the caller of the caller is `dask.persist`, which wants futures where `dask.compute` wants values.

    Only in older versions of dask. New ones call the `persist` of the scheduler's owner, and never come here. Old ones
    do that for what dask.distributed says is its default client, and call any other scheduler just as for computing:
    `schedule(graph, keys, **keywords)`. The keywords are the user's. The keys are flat, not nested as for computing,
    but so they are for dask's own functions that want values (`compute_as_if_collection`, as in storing arrays). And
    what they take for the scheduler is the same object for both. So there is nothing to go by but who calls. Returning
    values to all would be correct, but `persist` would bring all of a collection to the client.
    """
    return sys._getframe(2).f_code is base.persist.__code__
