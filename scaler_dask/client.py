"""`Client`: what programs use of dask.distributed's client, on Scaler.

Every key that a client's futures have is a `Work` in its table for as long as somebody holds a future of it; so the
same call, submitted again meanwhile, is the same work. Everything else is the engine's: `engine` is its client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import math
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

import dask.config
from dask.base import is_dask_collection, tokenize
from dask.callbacks import Callback
from dask.delayed import delayed
from dask.utils import funcname, parse_timedelta

from scaler import Client as Engine
from scaler import Executor, SchedulerClusterCombo
from scaler.extension import surrounding_address
from scaler_dask import absent, defaults, external
from scaler_dask.control import Control
from scaler_dask.futures import Future, futures_of, gathered, held
from scaler_dask.get import scaler_get
from scaler_dask.graphs import Graphs, futures_of_collections, is_called_by_persist, persisted
from scaler_dask.report import TaskStream
from scaler_dask.waiting import as_completed, wait
from scaler_dask.work import Work, settled
from scaler_dask.workers import Workers

#: those that are connected
clients: weakref.WeakSet[Client] = weakref.WeakSet()


def find_work(key: Any) -> tuple[Client, Work] | None:
    """The work that some client of this process knows under this key, and the client."""
    for client in list(clients):
        work = client.work_of(key)
        if work is not None:
            return client, work
    return None


class Client(Control):
    """A client of the cluster at `address`; without one: of dask's setting `scaler.address`, of the surrounding task,
    of SCALER_ADDRESS, or of a local cluster of its own with `n_workers` processes, which ends with it.

    `address` is one of Scaler's ("tcp://host:port"), or a `SchedulerClusterCombo`. While it lives it is dask's default
    scheduler, with shuffles and rechunks by tasks; `set_as_default=False` prevents that. A context manager.
    `threads_per_worker` and the like are ignored: a worker is a process that runs one task at a time.

    With `asynchronous=True` it connects in `async with` or `await`; what would block is awaited then: `gather`,
    `scatter`, `wait`, `cancel`, `close`, ... `submit`, `map`, `compute` and `persist` return their futures at once in
    any case. Blocks until the scheduler has answered, at most `timeout` seconds; raises like `scaler.Client`.
    """

    def __init__(
        self,
        address: Any = None,
        *,
        n_workers: int | None = None,
        timeout: float | str | None = None,
        set_as_default: bool = True,
        asynchronous: bool = False,
        name: str | None = None,
        security: Any = None,
        **ignored: Any,
    ) -> None:
        unknown = ignored.keys() - absent.IGNORED
        if unknown:
            raise TypeError(f"Client() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        self.asynchronous = asynchronous
        self.name = name or f"Client-{uuid.uuid4()}"
        self.id = self.name
        self._set_as_default = set_as_default
        self._cluster: SchedulerClusterCombo | None = None
        self._engine: Engine | None = None
        #: keys and such, if they are not those of the environment
        self._security: Any = None
        self._works: weakref.WeakValueDictionary[Any, Work] = weakref.WeakValueDictionary()
        self._workers = Workers()
        self._streams: list[TaskStream] = []
        #: what nobody waits for, and what the end of this waits for
        self.forgotten: set[Work] = set()
        seconds: float = parse_timedelta(timeout) or 5.0
        self._connect = functools.partial(self._start, address, n_workers, seconds, security)
        self._status = "newly-created"
        if not asynchronous:
            self._connect()

    def _start(self, address: Any, n_workers: int | None, timeout: float, security: Any) -> None:
        if self._engine is not None:
            return
        if address is not None and not isinstance(address, str):
            security = security or getattr(address, "security", None)
            address = address.address
        if address is None and n_workers is None:
            address = dask.config.get("scaler.address", None) or surrounding_address()
        if address is None:
            self._cluster = SchedulerClusterCombo(n_workers=n_workers)
            address, security = self._cluster.address, self._cluster.security
        self._security = security
        try:
            self._engine = Engine(address, timeout=timeout, security=security)
        except BaseException:
            if self._cluster is not None:
                self._cluster.shutdown()
            raise
        self._status = "running"
        clients.add(self)
        if self._set_as_default:
            defaults.enter(self)

    @property
    def engine(self) -> Engine:
        """The client of Scaler below. Raises RuntimeError before an asynchronous client was awaited."""
        if self._engine is None:
            raise RuntimeError("this client is not connected yet: use `async with Client(...)`, or await it")
        return self._engine

    @property
    def status(self) -> str:
        """One of newly-created, running, closed."""
        return self._status

    @property
    def cluster(self) -> SchedulerClusterCombo | None:
        """The local cluster that this client has started, if it has."""
        return self._cluster

    @classmethod
    def current(cls, allow_global: bool = True) -> Client:
        """The default client. Raises ValueError if there is none."""
        client: Client | None = defaults.current()
        if client is None:
            raise ValueError("No clients found: make one with scaler_dask.Client(address)")
        return client

    # ---- tasks -----------------------------------------------------------------------------------------------------
    def submit(
        self,
        func: Callable[..., Any],
        *args: Any,
        key: Any = None,
        workers: Any = None,
        resources: Mapping[str, Any] | None = None,
        retries: int | None = None,
        priority: float = 0,
        fifo_timeout: Any = None,
        allow_other_workers: bool = False,
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        **kwargs: Any,
    ) -> Future:
        """Call `func(*args, **kwargs)` on the cluster. Futures in the arguments stand for their values.

        With `pure`, the same call whose future is still held is not made again. `resources`: the names are
        capabilities that the host must have; amounts are ignored. `workers` and `allow_other_workers` are ignored:
        all workers of a capability are equal. Raises SerializationError, StoreFull, ClientClosed.
        """
        _check_call(func, "submit", actor or actors)
        if key is None:
            key = f"{funcname(func)}-{_token(func, kwargs, *args) if pure else uuid.uuid4()}"
        return self._submit(self._session(resources, retries, priority), func, args, kwargs, key)

    def map(
        self,
        func: Callable[..., Any],
        *iterables: Iterable[Any],
        key: Any = None,
        workers: Any = None,
        retries: int | None = None,
        resources: Mapping[str, Any] | None = None,
        priority: float = 0,
        allow_other_workers: bool = False,
        fifo_timeout: Any = None,
        actor: bool = False,
        actors: bool = False,
        pure: bool = True,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[Future]:
        """The futures of `func(*items, **kwargs)` for the items of the iterables, which end with the shortest.

        `key`: of the futures a list, or how they begin. `batch_size` is ignored: calls are sent in batches anyway.
        Everything else as for `submit`.
        """
        _check_call(func, "map", actor or actors)
        rows = list(zip(*iterables, strict=False))
        if isinstance(key, list):
            if len(key) != len(rows):
                raise ValueError(f"map() got {len(key)} keys for {len(rows)} calls")
            keys = key
        else:
            prefix = key or funcname(func)
            common = _token(func, kwargs) if pure else uuid.uuid4()
            tokens = (_token(common, *row) if pure else f"{common}-{number}" for number, row in enumerate(rows))
            keys = [f"{prefix}-{token}" for token in tokens]
        session = self._session(resources, retries, priority)
        return [self._submit(session, func, row, kwargs, name) for row, name in zip(rows, keys, strict=True)]

    def _submit(
        self, session: Engine, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: Any
    ) -> Future:
        known = self._works.get(key)
        if known is not None and known.status != "cancelled":
            return Future(known, self)

        def again() -> Any:
            return external.submit_call(session, key, self._workers.prepared(func), args, kwargs)

        needs = external.works_in([*args, *kwargs.values()])
        return self.future_of(Work(key, again(), self.engine, again, needs))

    def future_of(self, work: Work) -> Future:
        """Take a work into the table of those known, and return a future of it."""
        self._works[work.key] = work
        for stream in self._streams:
            stream.watch(work)
        return Future(work, self)

    def work_of(self, key: Any) -> Work | None:
        """The work known under this key, as long as somebody holds a future of it."""
        return self._works.get(key)

    def _session(self, resources: Any, retries: Any, priority: Any) -> Engine:
        """The engine's client with these options; those that are given for each key are taken at their highest."""
        options: dict[str, Any] = {}
        if resources:
            options["capabilities"] = sorted(map(str, resources))
        if retries:
            options["retries"] = int(max(retries.values()) if isinstance(retries, Mapping) else retries)
        if priority:
            options["priority"] = math.floor(max(priority.values()) if isinstance(priority, Mapping) else priority)
        return self.engine.with_options(**options) if options else self.engine

    def _graphs(self, session: Engine) -> Graphs:
        def find(key: Any) -> Work | None:
            work = self.work_of(key)
            if work is None:  # of another client: the engine says what is wrong with that
                work = (find_work(key) or (None, None))[1]
            return work

        def live() -> list[Work]:
            return list(self._works.values())

        return Graphs(session, find, live, self._workers.prepared if self._workers.have_setups else None)

    # ---- collections -----------------------------------------------------------------------------------------------
    def get(
        self,
        dsk: Any,
        keys: Any,
        workers: Any = None,
        allow_other_workers: Any = None,
        resources: Any = None,
        sync: bool = True,
        retries: Any = None,
        priority: Any = 0,
        **kwargs: Any,
    ) -> Any:
        """Compute keys of a graph, in lists as they are given: what dask calls. Futures in the graph are dependencies.

        With `sync=False` their futures, nested in the same way. Blocks, or is awaited. Raises like `scaler_get`.
        """
        session = self._session(resources, retries, priority)
        by_persist = is_called_by_persist()
        if sync and not by_persist:
            graphs = self._graphs(session)
            if Callback.active or kwargs.get("callbacks"):
                dsk = graphs.completed(dsk)
            return self._sync(lambda: _as_lists(scaler_get(dsk, keys, client=graphs, **kwargs), keys))
        futures = self._graphs(session).futures(self, dsk, keys)
        return held(futures) if by_persist else futures

    def compute(
        self,
        collections: Any,
        sync: bool = False,
        optimize_graph: bool = True,
        workers: Any = None,
        allow_other_workers: bool = False,
        resources: Any = None,
        retries: Any = 0,
        priority: Any = 0,
        fifo_timeout: Any = None,
        actors: Any = None,
        traverse: bool = True,
        **kwargs: Any,
    ) -> Any:
        """The future of a collection's value; of several, given as a list, a list. With `sync` their values.

        What is not a collection is returned as it is; with `traverse`, collections inside lists, tuples, sets and dicts
        count as well. Options as for `submit`. Does not block without `sync`.
        """
        _check_no_actors(actors)
        single = not isinstance(collections, (list, tuple, set, frozenset))
        values = [collections] if single else list(collections)
        if traverse:
            values = [delayed(value) if _holds_collection(value) else value for value in values]
        graphs = self._graphs(self._session(resources, retries, priority))
        futures = futures_of_collections(self, graphs, values, optimize_graph)
        result = futures[0] if single else futures
        return self.gather(result) if sync else result

    def persist(
        self,
        collections: Any,
        optimize_graph: bool = True,
        workers: Any = None,
        allow_other_workers: Any = None,
        resources: Any = None,
        retries: Any = None,
        priority: Any = 0,
        fifo_timeout: Any = None,
        actors: Any = None,
        **kwargs: Any,
    ) -> Any:
        """The same collections, whose parts are futures that are being computed. Does not block.

        The parts stay in the cluster, large ones in the stores of the hosts that made them, for as long as a collection
        needs them. Options as for `submit`.
        """
        _check_no_actors(actors)
        single = not isinstance(collections, (list, tuple, set, frozenset))
        values = [collections] if single else list(collections)
        wrong = [value for value in values if not is_dask_collection(value)]
        if wrong:
            raise TypeError(f"persist() takes dask collections, not {wrong[0]!r}")
        graphs = self._graphs(self._session(resources, retries, priority))
        made = persisted(self, graphs, values, optimize_graph)
        return made[0] if single else made

    # ---- values ----------------------------------------------------------------------------------------------------
    def gather(self, futures: Any, errors: str = "raise", direct: bool | None = None, asynchronous: Any = None) -> Any:
        """The value with every future in it, at any depth of lists, tuples, sets and dicts, replaced by its value.

        Blocks, or is awaited. Raises what a task raised; with `errors="skip"` those are left out. Of an iterator, an
        iterator.
        """
        if errors not in ("raise", "skip"):
            raise ValueError(f"errors must be 'raise' or 'skip', not {errors!r}")
        if isinstance(futures, Iterator):
            return (self.gather(future, errors) for future in futures)
        skip = errors == "skip"
        if not (self.asynchronous if asynchronous is None else asynchronous):
            return gathered(futures, lambda future: future.work.value(), skip)
        return self._gather(futures, skip)

    async def _gather(self, futures: Any, skip: bool) -> Any:
        works = [future.work for future in futures_of(futures)]
        await settled(works, "ALL_COMPLETED" if skip else "FIRST_EXCEPTION")
        if not skip:
            for work in works:
                if work.status in ("error", "cancelled"):
                    work.value(0)
        return await asyncio.to_thread(gathered, futures, lambda future: future.work.value(), skip)

    def scatter(
        self,
        data: Any,
        workers: Any = None,
        broadcast: Any = False,
        direct: Any = None,
        hash: bool = True,
        timeout: Any = None,
        asynchronous: Any = None,
    ) -> Any:
        """Send values to the cluster: their futures, in a list, tuple or set, or in a dict by key; or one future.

        Blocks while large ones are written to a store, or is awaited. `broadcast`, `workers` and `hash` are ignored:
        values travel to where they are used, and one given again unchanged is written once in any case.
        """
        return self._sync(lambda: self._scatter(data), asynchronous)

    def _scatter(self, data: Any) -> Any:
        if isinstance(data, Iterator):
            raise TypeError("scatter() takes values, not an iterator: give list(iterator)")
        if type(data) is dict:
            return {key: self._sent(value, key) for key, value in data.items()}
        if type(data) in (list, tuple, set, frozenset):
            return type(data)(self._sent(value) for value in data)
        return self._sent(data)

    def _sent(self, value: Any, key: Any = None) -> Future:
        if isinstance(value, Future):
            return value
        if key is None:
            key = f"{type(value).__name__}-{uuid.uuid4().hex}"
        return self.future_of(Work(key, self.engine.send_object(value), self.engine))

    # ---- control ---------------------------------------------------------------------------------------------------
    def cancel(
        self, futures: Any, asynchronous: Any = None, force: bool = False, reason: Any = None, msg: Any = None
    ) -> Any:
        """Take tasks back, and let go of their values; a collection counts as its futures. Blocks, or is awaited.

        Those that run go on to their ends; with `force` they are ended with their workers, which are replaced.
        """
        works = [future.work for future in futures_of(futures)]

        def cancel() -> None:
            self.engine.cancel([work.inner for work in works if not work.done], force=force)
            for work in works:
                work.cancel()
                if self._works.get(work.key) is work:
                    del self._works[work.key]

        return self._sync(cancel, asynchronous)

    def retry(self, futures: Any, asynchronous: Any = None) -> Any:
        """Run tasks that failed again, and those of their arguments that did. Blocks shortly, or is awaited."""
        works = [future.work for future in futures_of(futures)]

        def retry() -> None:
            for work in works:
                work.retry()

        return self._sync(retry, asynchronous)

    def restart(self, timeout: Any = None, wait_for_workers: bool = True) -> Any:
        """Cancel everything and forget all values. Blocks, or is awaited.

        A local cluster that this client started is started anew; the workers of any other keep their processes, and
        with them the modules that they have imported.
        """

        def restart() -> Client:
            known = list(self._works.values())
            self.engine.clear()
            for work in known:
                work.cancel()
            self._works.clear()
            if self._cluster is not None:
                n_workers = self._cluster.n_workers
                self.engine.disconnect()
                self._cluster.shutdown()
                self._cluster = SchedulerClusterCombo(n_workers=n_workers)
                self._security = self._cluster.security
                self._engine = Engine(self._cluster.address, security=self._security)
            return self

        return self._sync(restart)

    def get_executor(self, **ignored: Any) -> Executor:
        """A `concurrent.futures.Executor` on this client's cluster, with a connection of its own."""
        return Executor(address=self.engine.address, security=self._security)

    # ---- the end ---------------------------------------------------------------------------------------------------
    def close(self, timeout: Any = None) -> Any:
        """Leave the cluster, end one that was started here, and restore dask's settings. Blocks, or is awaited."""
        return self._sync(self._close)

    def _close(self) -> None:
        if self._status == "closed":
            return
        self._status = "closed"
        defaults.leave(self)
        clients.discard(self)
        if self._engine is not None:
            if self._cluster is None and not self._engine.closed:
                concurrent.futures.wait([work.inner for work in self.forgotten if not work.done])
            self._engine.disconnect()
        if self._cluster is not None:
            self._cluster.shutdown()

    def shutdown(self) -> Any:
        """End the whole cluster, and close. Raises ShutdownRefused by a scheduler in protected mode."""

        def shutdown() -> None:
            if self._cluster is None:
                self.engine.shutdown()
            self._close()

        return self._sync(shutdown)

    def _sync(self, function: Callable[[], Any], asynchronous: Any = None) -> Any:
        if self.asynchronous if asynchronous is None else asynchronous:
            return asyncio.to_thread(function)
        return function()

    # ---- Python ----------------------------------------------------------------------------------------------------
    def __enter__(self) -> Client:
        if self.asynchronous:
            raise TypeError("an asynchronous client is entered with `async with`")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()

    def __await__(self) -> Generator[Any, None, Client]:
        async def started() -> Client:
            await asyncio.to_thread(self._connect)
            return self

        return started().__await__()

    async def __aenter__(self) -> Client:
        return await self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self._close)

    def __getattr__(self, name: str) -> Any:
        instead = absent.ABSENT.get(name)
        if instead is not None:
            raise AttributeError(f"Scaler has no counterpart to distributed's Client.{name}: {instead}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __copy__(self) -> Client:
        return self

    def __deepcopy__(self, memo: Any) -> Client:
        return self

    def __reduce__(self) -> Any:
        from scaler_dask.inside import get_client

        return get_client, (self.engine.address,)

    def __repr__(self) -> str:
        if self._engine is None:
            return f"<Client: {self._status}>"
        return f"<Client: {self._engine.address!r} workers={self._engine.n_workers}, {self._status}>"

    # as methods, too
    as_completed = staticmethod(as_completed)
    futures_of = staticmethod(futures_of)
    wait = staticmethod(wait)


# ---- helpers ---------------------------------------------------------------------------------------------------------
def _token(*values: Any) -> str:
    try:
        return str(tokenize(*values))
    except Exception:  # what can't be told apart from others is its own
        return uuid.uuid4().hex


def _as_lists(values: Any, keys: Any) -> Any:
    """Values in tuples as lists, where their keys are in lists."""
    return [_as_lists(*pair) for pair in zip(values, keys, strict=True)] if isinstance(keys, list) else values


def _holds_collection(value: Any) -> bool:
    if is_dask_collection(value) or isinstance(value, Future):
        return False
    if type(value) in (list, tuple, set, frozenset):
        return any(is_dask_collection(item) or _holds_collection(item) for item in value)
    if type(value) is dict:
        return any(is_dask_collection(item) or _holds_collection(item) for item in value.values())
    return False


def _check_call(func: Any, method: str, actor: bool) -> None:
    if not callable(func):
        raise TypeError(f"The first input to {method} must be a callable function, not {func!r}")
    _check_no_actors(actor)


def _check_no_actors(actors: Any) -> None:
    if actors:
        raise NotImplementedError("Scaler has no actors: keep the state in your program, or in a service of its own")
