"""`dask.distributed` with its workers as threads of the program's process: what the others are compared with."""

from __future__ import annotations

from functools import partial

import distributed
from distributed import as_completed, wait, worker_client

Client = partial(distributed.Client, processes=False, dashboard_address=None)

__all__ = ["Client", "as_completed", "wait", "worker_client"]
