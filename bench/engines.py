"""The engines behind one face. Each has as many workers as it is told, and is used as its own documentation says."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WORKERS = 2
#: seconds that a program may take to start or to end
PATIENCE = 20.0

Handle = Any


class Engine:
    """What is measured. `load` imports the library as a program would, `open` makes it ready to take work."""

    def load(self) -> None:
        """The import statements of a program that uses it."""

    def open(self, workers: int) -> None:
        """From nothing to where `submit` may be called."""

    def close(self) -> None:
        """End it and its processes."""

    def submit(self, function: Callable[..., Any], value: Any) -> Handle:
        """One task; does not wait for it."""
        raise NotImplementedError

    def collect(self, handles: Sequence[Handle]) -> list[Any]:
        """The results of these tasks, in order."""
        return [handle.result() for handle in handles]

    def map(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        """The engine's own map, called without further options."""
        raise NotImplementedError

    def map_chunked(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        """The engine's own map, with the chunk size that somebody who knows it would give."""
        return self.map(function, values)

    def put(self, value: Any) -> Any:
        """What to give to several tasks instead of the value, where the engine has something for it."""
        return value

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        """The values of these keys of a raw dask graph."""
        raise NotImplementedError

    def compute(self, collection: Any) -> Any:
        """The value of a dask collection."""
        raise NotImplementedError


class Scaler(Engine):
    """A local cluster: scheduler and agent in one process."""

    def load(self) -> None:
        import scaler

        self._scaler = scaler

    def open(self, workers: int) -> None:
        # scaler imports what is behind its names when they are first used: that is part of starting up
        self._cluster = self._scaler.SchedulerClusterCombo(n_workers=workers)
        self._use(self._scaler.Client(self._cluster.address, security=self._cluster.security))

    def _use(self, client: Any) -> None:
        self.client = client
        self.submit = client.submit  # type: ignore[method-assign]
        self.map = client.map  # type: ignore[method-assign]
        self.put = client.send_object  # type: ignore[method-assign]

    def close(self) -> None:
        self.client.disconnect()
        self._cluster.shutdown()

    def map_chunked(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        return self.map(function, values)  # chunks by itself

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        from scaler_dask import scaler_get

        results: Sequence[Any] = scaler_get(graph, keys, client=self.client)
        return results

    def compute(self, collection: Any) -> Any:
        from scaler_dask import scaler_get

        return collection.compute(scheduler=scaler_get, client=self.client)


class ScalerDaemons(Scaler):
    """Scheduler and agent as separate programs, as on a cluster."""

    #: of `scaler_cluster`
    options: tuple[str, ...] = ()

    def open(self, workers: int) -> None:
        self._programs = contextlib.ExitStack()
        try:
            address = free_address()
            #: the process of the scheduler
            self.scheduler = self._programs.enter_context(program("scheduler", address)).pid
            self._programs.enter_context(program("cluster", "-n", str(workers), *self.options, address))
            self._use(connected(address))
        except BaseException:
            self._programs.close()
            raise

    def close(self) -> None:
        self.client.disconnect()
        self._programs.close()


class ProcessPool(Engine):
    def load(self) -> None:
        from concurrent.futures import ProcessPoolExecutor

        self._kind: Callable[..., Any] = ProcessPoolExecutor

    def open(self, workers: int) -> None:
        self._pool = self._kind(workers)
        self.submit = self._pool.submit  # type: ignore[method-assign]

    def close(self) -> None:
        self._pool.shutdown()

    def map(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        return list(self._pool.map(function, values))

    def map_chunked(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        return list(self._pool.map(function, values, chunksize=1000))


class Threads(ProcessPool):
    def load(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._kind = ThreadPoolExecutor


class Pool(Engine):
    def load(self) -> None:
        import multiprocessing

        self._kind = multiprocessing.Pool

    def open(self, workers: int) -> None:
        self._pool = self._kind(workers)
        self.map = self._pool.map  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        self._pool.terminate()
        self._pool.join()

    def submit(self, function: Callable[..., Any], value: Any) -> Handle:
        return self._pool.apply_async(function, (value,))

    def collect(self, handles: Sequence[Handle]) -> list[Any]:
        return [handle.get() for handle in handles]


class Distributed(Engine):
    def load(self) -> None:
        from dask.distributed import Client, LocalCluster

        self._kinds = LocalCluster, Client

    def open(self, workers: int) -> None:
        import logging

        cluster_kind, client_kind = self._kinds
        self._cluster = cluster_kind(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
        self.client = client_kind(self._cluster)

    def close(self) -> None:
        self.client.close()
        self._cluster.close()

    def submit(self, function: Callable[..., Any], value: Any) -> Handle:
        return self.client.submit(function, value, pure=False)

    def collect(self, handles: Sequence[Handle]) -> list[Any]:
        return self.client.gather(list(handles))  # type: ignore[no-any-return]

    def map(self, function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
        return self.client.gather(self.client.map(function, values, pure=False))  # type: ignore[no-any-return]

    def put(self, value: Any) -> Any:
        return self.client.scatter(value)

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        return self.client.get(graph, keys)  # type: ignore[no-any-return]

    def compute(self, collection: Any) -> Any:
        return collection.compute(scheduler=self.client)


class DaskThreads(Engine):
    def compute(self, collection: Any) -> Any:
        return collection.compute(scheduler="threads", num_workers=WORKERS)

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        import dask.threaded

        return dask.threaded.get(graph, keys, num_workers=WORKERS)  # type: ignore[no-any-return]


class DaskProcesses(Engine):
    def compute(self, collection: Any) -> Any:
        return collection.compute(scheduler="processes", num_workers=WORKERS)


class DaskSync(Engine):
    def get(self, graph: dict[Any, Any], keys: list[Any]) -> Sequence[Any]:
        import dask.local

        return dask.local.get_sync(graph, keys)  # type: ignore[no-any-return]


ENGINES: dict[str, type[Engine]] = {
    "scaler": Scaler,
    "daemons": ScalerDaemons,
    "processpool": ProcessPool,
    "pool": Pool,
    "distributed": Distributed,
    "threads": Threads,
    "dask-threads": DaskThreads,
    "dask-processes": DaskProcesses,
    "dask-sync": DaskSync,
    # no engines, but two ways of planning
    "plain": Engine,
    "graphblas": Engine,
}
#: as a head of a table
TITLES = {
    "scaler": "Scaler",
    "daemons": "Scaler, daemons apart",
    "processpool": "ProcessPoolExecutor",
    "pool": "multiprocessing.Pool",
    "distributed": "dask.distributed",
    "threads": "ThreadPoolExecutor",
    "dask-threads": "dask threads",
    "dask-processes": "dask processes",
    "dask-sync": "dask sync",
    "plain": "plain",
    "graphblas": "GraphBLAS",
}


@contextlib.contextmanager
def opened(name: str, workers: int = WORKERS) -> Iterator[Engine]:
    """An engine that is ready to take work, until the end of the block."""
    engine = ENGINES[name]()
    engine.load()
    engine.open(workers)
    try:
        yield engine
    finally:
        engine.close()


# ---- programs of scaler ----------------------------------------------------------------------------------------------
def free_address() -> str:
    """A loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@contextlib.contextmanager
def program(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program `scaler_NAME`, until the end of the block."""
    start = f"from scaler.cli.{name} import main; main()"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-c", start, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
            if process.poll() is not None:
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                raise RuntimeError(
                    f"scaler_{name} ended by itself with exit code {process.returncode}, saying: {said[-1]}"
                )
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def connected(address: str) -> Any:
    """A client of the scheduler that is starting at this address."""
    import time

    import scaler

    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return scaler.Client(address, name=f"bench-{os.getpid()}")
        except scaler.ConnectionFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
