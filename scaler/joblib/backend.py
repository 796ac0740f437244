"""The backend, as joblib uses it.

joblib waits for what its own thread is told. Inside a task the engine can't see that, so it is told
(`retrieval_context`); that is how nested calls never wait for each other's workers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import joblib
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from scaler.client import Client
from scaler.extension import find_client, worker_slot_lent
from scaler.joblib.parallel_call import ParallelCall, Report
from scaler.joblib.worker_batch import BatchSettings, WorkerInitializer

#: seconds that a cluster without workers is given to get one
WORKER_TIMEOUT = 10.0


class ScalerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """What joblib uses by the name "scaler"; its options are given to `joblib.parallel_config(backend="scaler", ...)`.

    `address`: of the scheduler. Without one: that of the cluster around the running task, else that in
    `SCALER_ADDRESS`, else a local cluster of this process, with a worker for each core. `client`: use this one.
    `initializer(*initargs)` runs once in each worker before its first batch; if it raises, so does the batch.

    Making one does not block: nothing is started or connected before joblib calls `configure` or `effective_n_jobs`.
    These block until there is a worker, and raise like `Client`, and TimeoutError if no worker comes within 10 seconds.
    Any thread may use it, and so may a task; while one `Parallel` uses it, others are given another one like it.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    #: seconds that a batch should take: a task costs less than a millisecond
    MIN_IDEAL_BATCH_DURATION = 0.05
    MAX_IDEAL_BATCH_DURATION = 0.5

    def __init__(
        self,
        address: str | None = None,
        *,
        client: Client | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._address = address
        self._given_client = client
        self._initializer = _for_workers(initializer, initargs)
        self._lock = threading.Lock()
        #: of the `Parallel` that it works for now; under the name by which joblib's own programs look for it
        self._workers: ParallelCall | None = None
        self.parallel: joblib.Parallel | None = None

    @property
    def default_n_jobs(self) -> int:
        """All workers; inside a task of another call one, so that calls in calls don't multiply."""
        return 1 if self.nesting_level else -1

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches may run at the same time; blocks until there is a cluster if it has to count workers."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning: use 1, or -1 for all workers")
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs > 0:
            return int(n_jobs)
        return max(_workers_of(self._client()) + 1 + int(n_jobs), 1)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: joblib.Parallel | None = None,
        prefer: str | None = None,
        require: str | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        **of_others: Any,
    ) -> int:
        """Get ready for a `Parallel`. What is only for processes of joblib's own, as `temp_folder`, is ignored."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        with self._lock:
            if self._workers is not None:  # of another thread, or of a generator that still runs
                raise FallbackToBackend(self._another())
            client = self._client()
            first = _for_workers(initializer, initargs) or self._initializer
            settings = BatchSettings((self.nesting_level or 0) + 1, n_jobs, self.inner_max_num_threads, first)
            limit = n_jobs if n_jobs < _workers_of(client) else None
            self._workers = ParallelCall(client, limit, settings, parallel)
        self.parallel = parallel
        return n_jobs

    def start_call(self) -> None:
        """Forget the batches that joblib had cut for a call that was aborted: they would come first in this one."""
        left = getattr(self.parallel, "_ready_batches", None)
        while left is not None and not left.empty():
            left.get_nowait()

    def submit(self, batch: Callable[[], Any], callback: Report | None = None) -> concurrent.futures.Future[list[Any]]:
        """Send a batch; `callback` is called with its future when it has ended, on a thread of its own.

        Blocks while a large argument is stored. Raises nothing: what can't be sent is the error of its future.
        """
        call = self._workers
        if call is None:  # the call has been aborted at this very moment
            outcome: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
            outcome.cancel()
            return outcome
        return call.submit(batch, callback)

    #: what joblib before 1.5 calls
    apply_async = submit

    def retrieve_result_callback(self, out: concurrent.futures.Future[Any]) -> Any:
        """The results of a batch; raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Take back all batches; those that run are ended with their workers. Blocks until that has happened."""
        call, self._workers = self._workers, None
        if call is not None:
            call.abort()
            if ensure_ready:
                self._workers = call.successor()

    def terminate(self) -> None:
        """The call is over. The cluster and its workers stay for the next one."""
        call, self._workers = self._workers, None
        self.parallel = None
        if call is not None:
            call.close()
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, int | None]:
        """The same cluster, one level deeper: used where a call inside a task gives its `n_jobs`."""
        return self._another((self.nesting_level or 0) + 1), None

    @contextlib.contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Inside a task: its worker's slot is another worker's for as long as results are waited for.

        joblib looks for results each hundredth of a second. Where it would only gather them, that begins with the last.
        """
        with worker_slot_lent():
            call, parallel = self._workers, self.parallel
            if call and parallel and parallel.timeout is None and not parallel.return_generator:
                call.wait()
            yield

    def _another(self, nesting_level: int | None = None) -> ScalerBackend:
        return ScalerBackend(
            self._address,
            client=self._given_client,
            nesting_level=self.nesting_level if nesting_level is None else nesting_level,
            inner_max_num_threads=self.inner_max_num_threads,
            initializer=self._initializer,
        )

    def _client(self) -> Client:
        return self._given_client if self._given_client is not None else find_client(self._address).client

    def __reduce__(self) -> Any:
        return _unpickled, (self._address, self._given_client, self.nesting_level, self.inner_max_num_threads)


def _unpickled(
    address: str | None, client: Client | None, nesting_level: int | None, threads: int | None
) -> ScalerBackend:
    return ScalerBackend(address, client=client, nesting_level=nesting_level, inner_max_num_threads=threads)


def _for_workers(initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> WorkerInitializer | None:
    """What runs an initializer once in each worker; one that is of that kind already stays the same."""
    if initializer is None or isinstance(initializer, WorkerInitializer):
        return initializer
    return WorkerInitializer(initializer, initargs)


def _workers_of(client: Client) -> int:
    if not client.n_workers:
        try:
            client.submit(os.getpid).result(WORKER_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(
                f"no worker came to the cluster at {client.address} within {WORKER_TIMEOUT:.0f} seconds: "
                "start one with `scaler_cluster`"
            ) from None
    return max(client.n_workers, 1)
