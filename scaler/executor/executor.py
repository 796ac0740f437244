"""`Executor`, what users hold: `submit`, `map` and `shutdown`, with what is checked of their arguments."""

from __future__ import annotations

import concurrent.futures
import operator
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn

from scaler.client import Client, Future
from scaler.cluster import SchedulerClusterCombo
from scaler.errors import SerializationError
from scaler.executor.durable import DurableRunner
from scaler.executor.ending import Ending
from scaler.executor.map_results import chunked, failing, flat, given_up, in_order, rest_of
from scaler.executor.runner import Runner
from scaler.executor.unpicklable import packed_initializer
from scaler.executor.worker_calls import call_each
from scaler.extension import failed_call, is_interrupt

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from scaler.provisioning.cluster import Cluster

#: a map of more rows than this sends them in blocks, whose results come together
ROWS_APART = 1_000


class Executor(concurrent.futures.Executor):
    """Runs calls on the cluster at `address`, or on a local one of `max_workers` processes (default: one for each
    core), which ends with it.

    A `concurrent.futures.Executor` whose futures are standard futures. Any thread may make it and call its methods; so
    may a task, in which it runs on the cluster around it if it is given that address. A context manager: leaving it
    waits for what is under way. Ctrl-C inside it, or while it waits, cancels that and waits for nothing.

    `max_tasks_per_child`: so many tasks run in a worker process of a local cluster before a fresh one takes its place.
    With `provider` ("slurm", ...) hosts come and go as the work needs them, at most for `max_workers`; further options
    are then those of `Cluster`, too.

    `initializer(*initargs)` runs once in each worker before its first task; if it raises, all futures that have not
    ended and all further calls raise `InitializerFailed`, a `concurrent.futures.process.BrokenProcessPool`.
    `durable`: the name of a durable job that the calls belong to, at a scheduler with a journal: what ends is kept
    there, and a program that runs again with the same name and makes the same calls is given their results.
    `mp_context` and `thread_name_prefix` of the standard executors mean nothing here: workers are forked from a process
    of the engine's own, which has none of the program's threads. Other options are those of `Client`.

    Blocks until the cluster is there. Raises like `Client` and `SchedulerClusterCombo`, ValueError for `max_workers`
    below 1, TypeError for one that is no integer, and for an initializer that can't be called, `SerializationError` for
    one that can't be pickled with its arguments; for `max_tasks_per_child` as the standard executor does, and
    ValueError with an address; `JobError` for `durable`.

    >>> with Executor(max_workers=1) as pool:
    ...     list(pool.map(pow, [2, 3], [3, 2]))
    [8, 9]
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        address: str | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
        durable: str | None = None,
        provider: str | None = None,
        mp_context: Any = None,
        thread_name_prefix: str = "",
        **client_options: Any,
    ) -> None:
        if max_workers is not None:
            try:
                max_workers = int(operator.index(max_workers))
            except TypeError:
                hint = "; is it the address=?" if "://" in str(max_workers) else ""
                raise TypeError(f"max_workers must be an integer, not {max_workers!r}{hint}") from None
            if max_workers <= 0:
                raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
            if address is not None:
                raise ValueError(
                    "max_tasks_per_child is for a local cluster: start this one's workers with --max-tasks-per-worker"
                )
        if durable is not None and (initializer is not None or address is None):
            raise ValueError("durable needs the address of a scheduler with a journal, and takes no initializer")
        if provider is None:
            _check_options(client_options)
        custom = client_options.get("serializer") is not None
        first = None if initializer is None else packed_initializer(uuid.uuid4().hex, initializer, initargs, custom)
        cluster: SchedulerClusterCombo | Cluster | None = None
        if provider is not None:
            cluster, client_options = _provided(provider, address, max_workers, client_options)
            address = cluster.address
            client_options.setdefault("security", cluster.security)
        elif address is None:
            cluster = SchedulerClusterCombo(n_workers=max_workers, max_tasks_per_worker=max_tasks_per_child)
            address = cluster.address
            client_options.setdefault("security", cluster.security)
        try:
            client = Client(address, **client_options)
        except BaseException:
            if cluster is not None:
                cluster.shutdown()
            raise
        self._given_workers = cluster.n_workers if isinstance(cluster, SchedulerClusterCombo) else max_workers
        self._runner: Runner | DurableRunner
        self._ending: Ending | DurableRunner
        if durable is not None:
            try:
                self._ending = self._runner = DurableRunner(client, durable)
            except BaseException:
                client.disconnect()
                raise
        else:
            self._runner = Runner(client, cluster, first, custom)
            self._ending = self._runner.ending
        weakref.finalize(self, _finish_in_background, weakref.ref(self._ending)).atexit = False

    @property
    def client(self) -> Client:
        """The client it runs on."""
        return self._runner.client

    @property
    def _max_workers(self) -> int:
        """What dask and others ask the standard executors for."""
        return self._given_workers or max(1, self.client.n_workers)

    @property
    def _broken(self) -> str | bool:
        """What the standard executors are asked: False, or why it is of no use any more."""
        return self._ending.broken or False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Call `fn(*args, **kwargs)` on the cluster: the future of its result.

        Blocks only while a large argument is written to a store. Raises RuntimeError after `shutdown` and at the
        interpreter's end, `InitializerFailed`, and like `Client.submit`; but what can't be pickled is the future's
        failure, as in the standard executors.
        """
        try:
            return self._runner.submit(fn, args, kwargs)
        except SerializationError as error:
            return failed_call(self.client, error)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """The results of `fn(*items)` in order, each when it is there, as the standard executors do it.

        The iterables are read, and everything is sent, at once; with `buffersize` only so many items (or chunks) ahead
        of the results that were taken, so that the iterables may be endless. `chunksize` is the least number of items
        that travel together; more do if there are very many. Raises TimeoutError if a result is not there `timeout`
        seconds after the call of `map`. What has not begun when the iterator ends early is cancelled.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if buffersize is not None and type(buffersize) is not int:
            raise TypeError("buffersize must be an integer or None")
        if buffersize is not None and buffersize < 1:
            raise ValueError("buffersize must be None or > 0")
        deadline = None if timeout is None else time.monotonic() + timeout
        iterators = list(map(iter, iterables))  # each is asked for one once
        rows: Iterable[tuple[Any, ...]] = zip(*iterators, strict=False)
        if isinstance(self._runner, DurableRunner):
            return self._runner.map(fn, rows, deadline, buffersize)
        if buffersize is None:
            single = len(iterators) == 1
            items: list[Any] = list(iterators[0]) if single else list(rows)
            if (chunksize > 1 or len(items) > ROWS_APART) and not self._runner.has_initializer:
                try:
                    return rest_of(self._runner.submit_map(fn, items, single, chunksize), items, deadline)
                except SerializationError as error:  # of the function
                    return failing(error) if items else iter(())
            rows = given_up(items, single)
        if chunksize == 1:
            return in_order(self.client, self._submitting_each(fn), iter(rows), deadline, buffersize)
        chunks = chunked(iter(rows), chunksize)
        submit = self._submitting_each(partial(call_each, fn))
        return flat(in_order(self.client, submit, chunks, deadline, buffersize, True))

    def _submitting_each(self, fn: Callable[..., Any]) -> Callable[..., Future]:
        """`submit` of a function as it is when the first call is made."""
        assert isinstance(self._runner, Runner)
        submit_row = self._runner.submit_each(fn)

        def submit(*args: Any) -> Future:
            try:
                return submit_row(*args)
            except SerializationError as error:
                return failed_call(self.client, error)

        return submit

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `wait`, block until those under way have ended; `cancel_futures` those not begun.

        Without `wait` what is under way ends in the background, and the interpreter does not end before it.
        """
        self._runner.end(cancel_futures)
        if wait:
            self._ending.finish()
        else:
            self._ending.finish_in_background()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Executor can't be pickled: make scaler.Client() in the task, or give it the executor's `client`"
        )

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if is_interrupt(error):
            self._ending.abandon()
        else:
            self.shutdown()


def _finish_in_background(known: weakref.ref[Ending | DurableRunner]) -> None:
    """An executor is forgotten. What is not closed is kept for the end of the interpreter, and only there."""
    ending = known()
    if ending is not None:
        ending.finish_in_background()


#: what `Client` is told; whatever else is said beside a provider is for its cluster
_OF_CLIENT = ("profiling", "name", "timeout", "serializer", "stream_output", "reconnect", "security")


def _check_options(options: dict[str, Any]) -> None:
    """Raise TypeError, before anything is started, for what no client takes."""
    for name in options:
        if name not in _OF_CLIENT and name not in Client.__signature__.parameters:
            raise TypeError(f"Executor() got an unexpected keyword argument {name!r}")


def _provided(
    provider: str, address: str | None, max_workers: int | None, options: dict[str, Any]
) -> tuple[Cluster, dict[str, Any]]:
    """A cluster of hosts from this provider, and what is left for its client. Raises like `Cluster`."""
    from scaler.provisioning.cluster import Cluster

    of_client = {name: options[name] for name in _OF_CLIENT if name in options}
    of_cluster = {name: value for name, value in options.items() if name not in of_client}
    if max_workers is not None:
        of_cluster.setdefault("maximum", -(-max_workers // of_cluster.get("workers", 1)))
    security = of_client.get("security")
    return Cluster(provider, address=address, security=security, **of_cluster), of_client
