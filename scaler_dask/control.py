"""The part of the client that is about workers, and about what is known of the cluster."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dask.utils import parse_timedelta

from scaler import Client as Engine
from scaler_dask import remote
from scaler_dask.futures import futures_of
from scaler_dask.report import TaskStream
from scaler_dask.work import Work
from scaler_dask.workers import Workers


class Control:
    """Base of `Client`, which has what is declared here."""

    _works: Mapping[Any, Work]
    _workers: Workers
    _streams: list[TaskStream]

    @property
    def engine(self) -> Engine:
        """The client of Scaler below."""
        raise NotImplementedError

    def _sync(self, function: Callable[[], Any], asynchronous: Any = None) -> Any:
        raise NotImplementedError

    # ---- workers ---------------------------------------------------------------------------------------------------
    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workers: Any = None,
        wait: bool = True,
        nanny: bool = False,
        on_error: str = "raise",
        **kwargs: Any,
    ) -> Any:
        """Call a function once in each worker: a dict of worker to value. Blocks, or is awaited.

        As good as it gets: tasks can't be sent to one worker, so short ones are sent until every worker has had one. A
        worker that is busy for 10 s is left out, and so is what joins later. An argument named `dask_worker` is given
        the worker's name. `on_error`: "raise", or "return" the exceptions in the values' places, or "ignore" them.
        """
        if on_error not in ("raise", "return", "ignore"):
            raise ValueError(f"on_error must be 'raise', 'return' or 'ignore', not {on_error!r}")
        return self._sync(lambda: self._workers.run(self.engine, function, args, kwargs, on_error))

    def upload_file(self, filename: str | Path, load: bool = True) -> Any:
        """Let workers import a module (.py), or what is in an archive (.zip, .egg). Blocks, or is awaited.

        Each worker gets it, and those that join later before their next task; it goes with the worker.
        """
        path = Path(filename)
        return self._register(f"upload-{path.name}", remote.Uploaded(path.name, path.read_bytes()))

    def register_plugin(self, plugin: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Call `plugin.setup(worker)` in each worker, and in those that join later before their next task.

        `worker` has a name, an address and a local_directory, no more. Other methods than `setup` and `teardown` are
        never called. Plugins of schedulers are refused: the scheduler runs no code of users.
        """
        name = name or getattr(plugin, "name", None) or f"{type(plugin).__name__}-{uuid.uuid4().hex}"
        if not hasattr(plugin, "setup"):
            raise NotImplementedError(f"{plugin!r} has no setup(worker), which is all that plugins do on Scaler")
        return self._register(name, remote.SetUp(plugin, "setup"), remote.SetUp(plugin, "teardown"))

    def register_worker_plugin(self, plugin: Any = None, name: str | None = None, nanny: Any = None) -> Any:
        """The old name of `register_plugin`."""
        return self.register_plugin(plugin, name)

    def register_worker_callbacks(self, setup: Callable[..., Any] | None = None) -> Any:
        """Call `setup()` in each worker, and in those that join later before their next task."""
        return self._register(f"callback-{uuid.uuid4().hex}", setup) if setup is not None else self._sync(dict)

    def unregister_worker_plugin(self, name: str, nanny: Any = None) -> Any:
        """Call the plugin's `teardown(worker)` in each worker, and `setup` no more. KeyError for an unknown name."""
        return self._sync(lambda: self._workers.unregister(self.engine, name))

    def _register(self, name: str, setup: Callable[[], Any], teardown: Callable[[], Any] | None = None) -> Any:
        return self._sync(lambda: self._workers.register(self.engine, name, setup, teardown))

    def wait_for_workers(self, n_workers: int = 1, timeout: float | str | None = None) -> Any:
        """Block, or be awaited, until there are so many workers. Raises TimeoutError after `timeout` seconds."""
        seconds: float | None = parse_timedelta(timeout)

        def wait_for_workers() -> None:
            deadline = None if seconds is None else time.monotonic() + seconds
            while self.engine.n_workers < n_workers:
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{self.engine.n_workers} of {n_workers} workers are there: start more with scaler_cluster"
                    )
                time.sleep(0.05)

        return self._sync(wait_for_workers)

    # ---- what there is to know -------------------------------------------------------------------------------------
    def who_has(self, futures: Any = None, **kwargs: Any) -> Any:
        """For each key whether it has a value: the cluster's address in a tuple, or an empty tuple.

        Which host has it is the stores' own business; values travel to where they are used.
        """
        works = [f.work for f in futures_of(futures)] if futures is not None else list(self._works.values())
        address = self.engine.address
        return self._sync(lambda: {work.key: (address,) if work.status == "finished" else () for work in works})

    def has_what(self, workers: Any = None, **kwargs: Any) -> Any:
        """The keys that have values, under the cluster's address; see `who_has`."""
        keys = tuple(work.key for work in list(self._works.values()) if work.status == "finished")
        return self._sync(lambda: {self.engine.address: keys})

    def nthreads(self, workers: Any = None) -> Any:
        """How many tasks each worker runs at a time, which is 1; the workers are numbered."""
        return self._sync(lambda: {f"{self.engine.address}#{n}": 1 for n in range(self.engine.n_workers)})

    ncores = nthreads

    def scheduler_info(self, n_workers: int = -1, **kwargs: Any) -> dict[str, Any]:
        """The scheduler's address, and its workers as far as a client knows them: how many there are."""
        address = self.engine.address
        workers = {
            f"{address}#{n}": {"type": "Worker", "id": n, "name": n, "nthreads": 1, "status": "running"}
            for n in range(self.engine.n_workers)
        }
        return {"type": "Scheduler", "id": address, "address": address, "n_workers": len(workers), "workers": workers}

    @property
    def dashboard_link(self) -> None:
        """None: there is no dashboard."""
        return None

    def get_versions(self, check: bool = False, packages: Sequence[str] = ()) -> Any:
        """Versions of Python and packages here and in each worker. Blocks, or is awaited.

        With `check` raises ValueError naming those that differ. Scheduler and client agree when they connect.
        """

        return self._sync(lambda: self._workers.versions(self.engine, check))

    def get_task_stream(
        self, start: Any = None, stop: Any = None, count: int | None = None, plot: bool = False, filename: str = ""
    ) -> Any:
        """What is known of tasks since the first call of this: dicts with key, status, and seconds begun and ended.

        They are the client's own times: from when the task was submitted to when its end was heard of.
        """
        if not self._streams:
            self._streams.append(TaskStream())
        records = self._streams[0].records()
        return records[-count:] if count is not None else records

    def recorded(self) -> contextlib.AbstractContextManager[TaskStream]:
        """Within this context, note when tasks are submitted and end."""

        @contextlib.contextmanager
        def recorded() -> Iterator[TaskStream]:
            stream = TaskStream()
            self._streams.append(stream)
            try:
                yield stream
            finally:
                self._streams.remove(stream)

        return recorded()

    # ---- nothing to do ---------------------------------------------------------------------------------------------
    def replicate(self, futures: Any = None, n: Any = None, workers: Any = None, **kwargs: Any) -> Any:
        """Do nothing: a value is copied to each host that uses it, once, when it is used."""
        return self._sync(lambda: None)

    def rebalance(self, futures: Any = None, workers: Any = None, **kwargs: Any) -> Any:
        """Do nothing: the stores spill to disk what does not fit, and values travel to where they are used."""
        return self._sync(lambda: None)
