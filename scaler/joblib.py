"""joblib on a cluster: importing this module makes the backend "scaler" known to joblib.

    import joblib, scaler.joblib

    with joblib.parallel_config(backend="scaler"):  # or parallel_backend("scaler", address="tcp://...")
        joblib.Parallel(n_jobs=-1)(joblib.delayed(f)(x) for x in xs)

A batch of joblib's is one task. What its calls are given becomes arguments of the task one by one, each only once, so
that the client stores what is large, and recognises an array that the next batch has too. Batches that have ended are
reported by a thread of each `Parallel`: joblib then asks the user's iterator for more, which may take its time.

joblib waits by polling. Inside a task the engine can't see that, so it is told (`retrieval_context`); that is how
nested calls never wait for each other's workers.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import joblib
from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    register_parallel_backend,
)

from scaler.client import Client, Future, nesting
from scaler.client.aside import Aside
from scaler.cluster import embedded
from scaler.serialize.function import name_of
from scaler.serialize.payload import SCALARS
from scaler.worker import context

#: texts and bytes longer than this are passed as arguments of their own
LONG = 1_024
#: seconds that a cluster without workers is given to get one
WORKER_TIMEOUT = 10.0

_Report = Callable[["concurrent.futures.Future[Any]"], object]


class ScalerBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """What joblib uses by the name "scaler".

    `address`: of the scheduler. Without one: that of the cluster around the running task, else that in
    `SCALER_ADDRESS`, else a local cluster of this process, with a worker for each core. `client`: use this one.
    `initializer(*initargs)` runs once in each worker before its first batch.

    Nothing is started or connected before it is needed. Raises like `Client`, and TimeoutError if no worker comes.
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
        self._given = client
        self._initializer = _Initializer(initializer, initargs) if initializer is not None else None
        self._lock = threading.Lock()
        #: the batches of the `Parallel` that it works for now
        self._workers: _Batches | None = None
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
        return max(_workers_of(self._client()[0]) + 1 + int(n_jobs), 1)

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
            client, is_own = self._client()
            key = _ManagerKey(bytes(multiprocessing.current_process().authkey)) if is_own else None
            first = _Initializer(initializer, initargs) if initializer is not None else self._initializer
            settings = _Settings(key, (self.nesting_level or 0) + 1, n_jobs, self.inner_max_num_threads, first)
            self._workers = _Batches(client, n_jobs if n_jobs < _workers_of(client) else None, settings)
        self.parallel = parallel
        return n_jobs

    def submit(self, batch: Callable[[], Any], callback: _Report | None = None) -> concurrent.futures.Future[list[Any]]:
        """Send a batch; `callback` is called with its future when it has ended, on a thread of its own.

        Blocks while a large argument is stored. Raises nothing: what can't be sent is the error of its future.
        """
        workers = self._workers
        if workers is None:  # the call has been aborted at this very moment
            outcome: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()
            outcome.cancel()
            return outcome
        return workers.submit(batch, callback)

    #: what joblib before 1.5 calls
    apply_async = submit

    def retrieve_result_callback(self, out: concurrent.futures.Future[Any]) -> Any:
        """The results of a batch; raises what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Take back all batches; those that run are ended with their workers. Blocks until that has happened."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.abort()
            if ensure_ready:
                self._workers = workers.anew()

    def terminate(self) -> None:
        """The call is over. The cluster and its workers stay for the next one."""
        workers, self._workers = self._workers, None
        self.parallel = None
        if workers is not None:
            workers.close()
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, int | None]:
        """The same cluster, one level deeper: used where a call inside a task gives its `n_jobs`."""
        return self._another((self.nesting_level or 0) + 1), None

    @contextlib.contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Inside a task: its worker's slot is another worker's for as long as results are waited for."""
        if nesting.current() is None:
            yield
            return
        context.blocked()
        try:
            yield
        finally:
            context.unblocked()

    def _another(self, nesting_level: int | None = None) -> ScalerBackend:
        made = ScalerBackend(
            self._address,
            client=self._given,
            nesting_level=self.nesting_level if nesting_level is None else nesting_level,
            inner_max_num_threads=self.inner_max_num_threads,
        )
        made._initializer = self._initializer
        return made

    def _client(self) -> tuple[Client, bool]:
        return (self._given, False) if self._given is not None else embedded.client_for(self._address)

    def __reduce__(self) -> Any:
        return _unpickled, (self._address, self._given, self.nesting_level, self.inner_max_num_threads)


def _unpickled(
    address: str | None, client: Client | None, nesting_level: int | None, threads: int | None
) -> ScalerBackend:
    return ScalerBackend(address, client=client, nesting_level=nesting_level, inner_max_num_threads=threads)


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


class _Batches:
    """The batches of one call of a `Parallel`: at most `limit` at the cluster, the others wait here for their turn.

    Any thread may call the methods.
    """

    def __init__(self, client: Client, limit: int | None, settings: _Settings) -> None:
        self._client = client
        self._limit = limit
        self._settings = settings
        self._lock = threading.Lock()
        self._aborted = False
        #: what the cluster has, with who is told of it
        self._sent: dict[Future, concurrent.futures.Future[Any]] = {}
        #: how many are there or about to be
        self._away = 0
        self._waiting: collections.deque[tuple[Callable[[], Any], _Report | None, concurrent.futures.Future[Any]]] = (
            collections.deque()
        )
        self._reports = Aside("scaler-joblib")

    def submit(self, batch: Callable[[], Any], report: _Report | None) -> concurrent.futures.Future[Any]:
        """See `ScalerBackend.submit`."""
        outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            if self._limit is not None and self._away >= self._limit:
                self._waiting.append((batch, report, outcome))
                return outcome
            self._away += 1
        self._send(batch, report, outcome)
        return outcome

    def _send(self, batch: Callable[[], Any], report: _Report | None, outcome: concurrent.futures.Future[Any]) -> None:
        calls, values = _taken_apart(batch)
        try:
            future = self._client.submit(_Batch(self._settings, name_of(values[0])), calls, *values)
        except Exception as error:
            self._reports.run(functools.partial(self._ended, error, report, outcome))
            return
        with self._lock:
            aborted = self._aborted
            if not aborted:
                self._sent[future] = outcome
        if aborted:
            self._client.cancel([future], force=True)
            return
        ended = functools.partial(self._ended, future, report, outcome)
        future.add_done_callback(lambda _: self._reports.run(ended))

    def _ended(
        self, ended: Future | Exception, report: _Report | None, outcome: concurrent.futures.Future[Any]
    ) -> None:
        with self._lock:
            if self._aborted:
                return
            following = self._waiting.popleft() if self._waiting else None
            if following is None:
                self._away -= 1
            if isinstance(ended, Future):
                del self._sent[ended]
        if following is not None:
            self._send(*following)
        try:
            if not isinstance(ended, Future):
                raise ended
            outcome.set_result(ended.result())
        except BaseException as error:  # whatever the task raised
            outcome.set_exception(error)
        if report is not None:
            report(outcome)

    def abort(self) -> None:
        """See `ScalerBackend.abort_everything`."""
        with self._lock:
            self._aborted = True
            self._waiting.clear()
            sent = list(self._sent)
            self._sent.clear()
        self.close()
        if sent and not self._client.closed:
            self._client.cancel(sent, force=True)

    def anew(self) -> _Batches:
        """Another one for the same cluster."""
        return _Batches(self._client, self._limit, self._settings)

    def close(self) -> None:
        """End the thread that reports; what it has to do is done first."""
        self._reports.close()


class _Value(NamedTuple):
    """Stands, among the arguments of a call, for a value that is an argument of the task."""

    place: int


_Calls = list[tuple[int, tuple[Any, ...], dict[str, Any]]]


def _taken_apart(batch: Callable[[], Any]) -> tuple[_Calls | None, list[Any]]:
    """The calls of a batch, and the functions and values that they name by their place in a list, each there once."""
    items = getattr(batch, "items", None)
    if items is None:
        return None, [batch]
    values: list[Any] = []
    places: dict[int, int] = {}

    def place_of(value: Any) -> int:
        place = places.get(id(value))
        if place is None:
            place = places[id(value)] = len(values)
            values.append(value)
        return place

    def stand_in(value: Any) -> Any:
        kind = type(value)
        if kind in SCALARS and not ((kind is str or kind is bytes) and len(value) > LONG):
            return value
        return _Value(place_of(value))

    calls = [
        (
            place_of(function),
            tuple([stand_in(value) for value in args]),
            {name: stand_in(value) for name, value in kwargs.items()},
        )
        for function, args, kwargs in items
    ]
    return calls, values


class _Settings(NamedTuple):
    """What a worker has to know to run a batch as joblib wants it."""

    #: with the function, since the arguments that are unpickled after it may need it
    key: _ManagerKey | None
    #: of calls inside the batch
    nesting_level: int
    n_jobs: int
    #: threads that libraries may use; None: the cores divided by `n_jobs`
    threads: int | None
    initializer: _Initializer | None


class _Batch:
    """Runs the calls of a batch in a worker: a list of their results. For messages it is the batch's first function."""

    def __init__(self, settings: _Settings, name: str) -> None:
        self._settings = settings
        self.__qualname__ = name
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name

    def __reduce__(self) -> Any:
        return _Batch, (self._settings, self.__qualname__)

    def __call__(self, calls: _Calls | None, *values: Any) -> Any:
        settings = self._settings
        if settings.initializer is not None:
            settings.initializer()

        def value_of(value: Any) -> Any:
            return values[value.place] if type(value) is _Value else value

        nested = ScalerBackend(nesting_level=settings.nesting_level)
        threads = settings.threads or max(_cores() // settings.n_jobs, 1)
        with joblib.parallel_config(backend=nested, n_jobs=None), _limited_threads(threads):
            if calls is None:
                return values[0]()
            return [
                values[function](*map(value_of, args), **{name: value_of(value) for name, value in kwargs.items()})
                for function, args, kwargs in calls
            ]


class _ManagerKey:
    """What proxies of a `multiprocessing.Manager` are opened with: a child has its parent's, and so have workers of the
    parent's own cluster once this has been unpickled there. Workers that others use too are never given it.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __reduce__(self) -> Any:
        return _take_key, (self._key,)


def _take_key(key: bytes) -> None:
    multiprocessing.current_process().authkey = key


@functools.cache
def _cores() -> int:
    return int(joblib.cpu_count())


class _Initializer:
    """What runs once in each worker."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._token = os.urandom(16)

    def __call__(self) -> None:
        if self._token not in _initialized:
            self._function(*self._arguments)
            _initialized.add(self._token)


#: initializers that this worker has run
_initialized: set[bytes] = set()

#: finds the libraries with threads of their own, as of that many imported modules
_libraries: tuple[int, Any] = 0, None


def _limited_threads(threads: int) -> contextlib.AbstractContextManager[Any]:
    """Limit the threads of BLAS and OpenMP, if threadpoolctl is there, as it is wherever scikit-learn is."""
    global _libraries
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return contextlib.nullcontext()
    if len(sys.modules) != _libraries[0]:  # libraries come with modules, and looking for them takes a millisecond
        _libraries = len(sys.modules), ThreadpoolController()
    limited: contextlib.AbstractContextManager[Any] = _libraries[1].limit(limits=threads)
    return limited


register_parallel_backend("scaler", ScalerBackend)

__all__ = ["ScalerBackend"]
