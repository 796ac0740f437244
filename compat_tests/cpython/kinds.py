"""The executors that are measured, and how CPython's tests make one."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """An executor's class, by name: what CPython's tests run in other interpreters imports it there."""

    module: str
    name: str
    #: start method of the processes, which the process pool's tests are given; None for executors that have none
    context: str | None = None
    #: what has to be installed
    needs: str = "concurrent"

    @property
    def executor_type(self) -> Any:
        """The class, or what makes an executor."""
        return getattr(importlib.import_module(self.module), self.name)

    @property
    def is_installed(self) -> bool:
        """It can be measured here."""
        return importlib.util.find_spec(self.needs) is not None


KINDS = {
    "scaler": Kind("scaler", "Executor", needs="scaler"),
    "processes": Kind("concurrent.futures", "ProcessPoolExecutor", "forkserver"),
    "threads": Kind("concurrent.futures", "ThreadPoolExecutor"),
    "distributed": Kind("compat_tests.cpython.kinds", "distributed_executor", needs="distributed"),
}


def distributed_executor(max_workers: int | None = None, **options: Any) -> Any:
    """distributed's executor on a local cluster that ends with it."""
    from distributed import Client, LocalCluster
    from distributed.cfexecutor import ClientExecutor

    client = Client(LocalCluster(n_workers=max_workers, threads_per_worker=1, dashboard_address=None))

    class Executor(ClientExecutor):  # type: ignore[misc]
        def shutdown(self, wait: bool = True, **options: Any) -> None:
            super().shutdown(wait, **options)
            client.close()
            client.cluster.close()

    try:
        return Executor(client, **options)
    except BaseException:
        client.close()
        client.cluster.close()
        raise
