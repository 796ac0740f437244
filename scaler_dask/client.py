"""`Client`: what programs use of dask.distributed's client, on Scaler.

Here is what users call and what it means; each part of it is done elsewhere:

    engine_connection    the engine's client below, and a local cluster
    registry             which key stands for what, as long as somebody holds a future of it
    call_futures         submit, map
    collection_futures   get, compute, persist
    plugins              what workers are set up with; every_worker calls something in each of them
    cluster_info         what is known of the cluster
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from dask.base import is_dask_collection
from dask.callbacks import Callback
from dask.delayed import delayed

from scaler import Client as Engine
from scaler import ClientClosed, Executor
from scaler.extension import serializer_of, shared_client
from scaler_dask import absent, cluster_info, default_scheduler, every_worker, worker_functions
from scaler_dask.call_futures import future_of_call, key_of_call, keys_of_map
from scaler_dask.collection_futures import CollectionFutures, holds_collection
from scaler_dask.completion import as_completed, wait
from scaler_dask.dask_versions import is_called_by_persist
from scaler_dask.dependents import with_dependents
from scaler_dask.engine_connection import EngineConnection
from scaler_dask.future_state import FutureState
from scaler_dask.gathering import futures_of, gather, gather_later
from scaler_dask.get import computed
from scaler_dask.graph_session import GraphSession
from scaler_dask.interrupts import tasks_under_way
from scaler_dask.keyed_future import Future, as_parts
from scaler_dask.own_cluster import SchedulerAddress
from scaler_dask.plugins import Plugins
from scaler_dask.registry import Registry
from scaler_dask.scattering import scattered
from scaler_dask.task_options import options_of_call
from scaler_dask.task_stream import TaskStream
from scaler_dask.timeouts import seconds_of

#: seconds for which a scheduler is given to answer, by programs for dask that do not say
ANSWER = 5.0


class Client:
    """A client of the cluster at `address`; without one: of dask's setting `scaler.address`, of the surrounding task,
    of SCALER_ADDRESS, or of a local cluster of its own with `n_workers` processes, which ends with it; the names in
    `resources` are the capabilities of that.

    `address` is one of Scaler's ("tcp://host:port", "host:port"), or a `SchedulerClusterCombo`, or a `scaler.Client`:
    that one is used, and closing this does nothing. While it lives it is dask's default scheduler, with shuffles and
    rechunks by tasks; `set_as_default=False` prevents that. A context manager. `threads_per_worker` and the like are
    ignored: a worker is a process that runs one task at a time.

    Any thread may call the methods, and so may tasks: waiting inside them never deadlocks. With `asynchronous=True` it
    connects in `async with` or `await`; what would block is awaited then: `gather`, `scatter`, `wait`, `cancel`,
    `close`, ... `submit`, `map`, `compute` and `persist` return their futures at once in any case.

    Blocks until the scheduler has answered, at most `timeout` seconds (default 5). Raises like `scaler.Client` and
    `SchedulerClusterCombo`, and TypeError for `scheduler_file`, for what is no address, and for an argument that
    neither this nor distributed's client has.
    """

    def __init__(
        self, address: Any = None, *, n_workers: int | None = None, timeout: float | str | None = None,
        set_as_default: bool = True, asynchronous: bool = False, name: str | None = None, security: Any = None,
        resources: Mapping[str, Any] | None = None, scheduler_file: Any = None, **ignored: Any,
    ) -> None:  # fmt: skip
        unknown = ignored.keys() - absent.ARGUMENTS
        if unknown:
            raise TypeError(f"Client() got an unexpected keyword argument {sorted(unknown)[0]!r}")
        if scheduler_file is not None:
            raise TypeError("Scaler writes no scheduler_file: give Client the address of scaler_scheduler")
        self.asynchronous = asynchronous
        self.name = name or f"Client-{uuid.uuid4()}"
        self.id = self.name
        self._set_as_default = set_as_default
        seconds = seconds_of(timeout) or ANSWER
        self._connection = EngineConnection(address, n_workers, tuple(map(str, resources or ())), seconds, security)
        #: one of newly-created, running, closed
        self._status = "newly-created"
        self._registry = Registry(self)
        self._plugins = Plugins()
        #: of `get_task_stream`, from its first call on
        self._stream: TaskStream | None = None
        #: what nobody waits for, and what the end of this waits for
        self._awaited_at_close: set[FutureState] = set()
        if not asynchronous:
            self._connect()

    def _connect(self) -> None:
        if self._status != "newly-created":
            return
        self._connection.open()
        try:
            self._status = "running"
            self._registry.open()
            if self._set_as_default:
                default_scheduler.enter(self)
        except BaseException:  # of a signal's handler: nobody has this client
            default_scheduler.leave(self)
            self._close()
            raise

    @property
    def engine(self) -> Engine:
        """The client of Scaler below. Raises RuntimeError before an asynchronous client was awaited."""
        return self._connection.engine

    @property
    def status(self) -> str:
        """One of newly-created, running, closed."""
        return self._status

    @property
    def cluster(self) -> Any:
        """The local cluster that this client has started, a `SchedulerClusterCombo`, or the cluster that it was given.

        None if it has only an address.
        """
        return self._connection.cluster or self._connection.cluster_given

    @property
    def scheduler(self) -> SchedulerAddress:
        """Where its scheduler is, as `scheduler.address`. Raises RuntimeError like `engine`."""
        return SchedulerAddress(self.engine.address)

    @property
    def security(self) -> Any:
        """The keys that it has connected with, for another client; None if they are those of the environment."""
        return self._connection.security

    @property
    def futures(self) -> dict[Any, FutureState]:
        """What the keys stand for whose futures are held: each with a `status`."""
        return {state.key: state for state in self._registry.states()}

    @classmethod
    def current(cls, allow_global: bool = True) -> Client:
        """The default client. Raises ValueError if there is none."""
        client: Client | None = default_scheduler.current()
        if client is None:
            raise ValueError("No clients found: make one with scaler_dask.Client(address)")
        return client

    # ---- calls -----------------------------------------------------------------------------------------------------
    def submit(
        self, func: Callable[..., Any], *args: Any, key: Any = None, workers: Any = None,
        resources: Mapping[str, Any] | None = None, retries: int | None = None, priority: float = 0,
        fifo_timeout: Any = None, allow_other_workers: bool = False, actor: bool = False, actors: bool = False,
        pure: bool = True, **kwargs: Any,
    ) -> Future:  # fmt: skip
        """Call `func(*args, **kwargs)` on the cluster. Futures in the arguments stand for their values.

        With `pure`, the same call whose future is still held is not made again. `resources`: the names are
        capabilities that the host must have; amounts are ignored. `retries`: how often the task is run again if it
        raises. `priority`: larger ones run earlier. `workers` and `allow_other_workers` are ignored: all workers of a
        capability are equal. Blocks only while a large argument is written to a store. Raises TypeError if `func` can't
        be called, SerializationError, StoreFull, ClientClosed.
        """
        _check_call(func, "submit", actor or actors)
        engine = self._engine_with(resources, retries, priority)
        if key is None:
            key = key_of_call(func, args, kwargs, pure)
        return future_of_call(self._registry, self._plugins, engine, key, func, args, kwargs)

    def map(
        self, func: Callable[..., Any], *iterables: Iterable[Any], key: Any = None, workers: Any = None,
        retries: int | None = None, resources: Mapping[str, Any] | None = None, priority: float = 0,
        allow_other_workers: bool = False, fifo_timeout: Any = None, actor: bool = False, actors: bool = False,
        pure: bool = True, batch_size: int | None = None, **kwargs: Any,
    ) -> list[Future]:  # fmt: skip
        """The futures of `func(*items, **kwargs)` for the items of the iterables, which end with the shortest.

        `key`: of the futures a list, or how they begin. `batch_size` is ignored: calls are sent in batches anyway.
        Everything else as for `submit`; also raises ValueError for a list of keys of another length.
        """
        _check_call(func, "map", actor or actors)
        engine = self._engine_with(resources, retries, priority)
        rows = list(zip(*iterables, strict=False))
        keys = keys_of_map(func, rows, kwargs, pure, key)
        future_of = partial(future_of_call, self._registry, self._plugins, engine)
        return [future_of(name, func, row, kwargs) for row, name in zip(rows, keys, strict=True)]

    def _engine_with(self, resources: Any, retries: Any, priority: Any) -> Engine:
        self._check_open()
        options = options_of_call(resources, retries, priority)
        return self.engine.with_options(**options) if options else self.engine

    def _check_open(self) -> None:
        """What is known of keys serves nobody any more who would get an error for others."""
        if self._status == "closed" or self.engine.closed:
            raise ClientClosed("this client is closed: make a new Client")

    def _collections(self, resources: Any, retries: Any, priority: Any) -> CollectionFutures:
        engine = self._engine_with(resources, retries, priority)
        return CollectionFutures(GraphSession(engine, self._registry, self._plugins.wrap), self._registry)

    # ---- graphs and collections ------------------------------------------------------------------------------------
    def get(
        self, dsk: Any, keys: Any, workers: Any = None, allow_other_workers: Any = None, resources: Any = None,
        sync: bool = True, retries: Any = None, priority: Any = 0, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Compute keys of a graph, in lists as they are given: what dask calls. Futures in the graph are dependencies.

        With `sync=False` their futures, nested in the same way. Blocks, or is awaited. Raises like `scaler_get`.
        """
        by_persist = is_called_by_persist()
        made = self._collections(resources, retries, priority)
        if sync and not by_persist:
            callbacks = kwargs.get("callbacks")
            if Callback.active or callbacks:
                dsk = made.session.completed(dsk)
            compute = partial(computed, made.session, dsk, keys, callbacks, kwargs.get("initializer"))
            return self._blocking(lambda: _shaped(compute(), keys))
        futures = made.of_keys(dsk, keys)
        return as_parts(futures) if by_persist else futures

    def compute(
        self, collections: Any, sync: bool = False, optimize_graph: bool = True, workers: Any = None,
        allow_other_workers: bool = False, resources: Any = None, retries: Any = 0, priority: Any = 0,
        fifo_timeout: Any = None, actors: Any = None, traverse: bool = True, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """The future of a collection's value; of several, given as a list, a list. With `sync` their values.

        What is not a collection is returned as it is; with `traverse`, collections inside lists, tuples, sets and dicts
        count as well. Options as for `submit`. Does not block without `sync`. Raises `CycleError`, KeyError and
        SerializationError for a graph that can't be sent; with `sync` what a task raises.
        """
        _check_no_actors(actors)
        values, single = _as_list(collections)
        if traverse:
            values = [delayed(value) if holds_collection(value) else value for value in values]
        futures = self._collections(resources, retries, priority).of_values(values, optimize_graph)
        result = futures[0] if single else futures
        return self.gather(result) if sync else result

    def persist(
        self, collections: Any, optimize_graph: bool = True, workers: Any = None, allow_other_workers: Any = None,
        resources: Any = None, retries: Any = None, priority: Any = 0, fifo_timeout: Any = None, actors: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """The same collections, whose parts are futures that are being computed. Does not block.

        The parts stay in the cluster, large ones in the stores of the hosts that made them, for as long as a collection
        needs them. Options as for `submit`. Raises TypeError for what is no collection, and like `compute`.
        """
        _check_no_actors(actors)
        values, single = _as_list(collections)
        wrong = [value for value in values if not is_dask_collection(value)]
        if wrong:
            raise TypeError(f"persist() takes dask collections, not {wrong[0]!r}")
        made = self._collections(resources, retries, priority).persisted(values, optimize_graph)
        return made[0] if single else made

    # ---- values ----------------------------------------------------------------------------------------------------
    def gather(self, futures: Any, errors: str = "raise", direct: bool | None = None, asynchronous: Any = None) -> Any:
        """The value with every future in it, at any depth of lists, tuples, sets and dicts, replaced by its value.

        Blocks, or is awaited. Raises what a task raised; with `errors="skip"` those are left out of a list, and None
        in what else they are in, also lists within it. Of an iterator, an iterator.
        """
        if errors not in ("raise", "skip"):
            raise ValueError(f"errors must be 'raise' or 'skip', not {errors!r}")
        if isinstance(futures, Iterator):
            return (self.gather(future, errors) for future in futures)
        skip = errors == "skip"
        is_awaited = self.asynchronous if asynchronous is None else asynchronous
        return gather_later(futures, skip) if is_awaited else gather(futures, skip)

    def scatter(
        self, data: Any, workers: Any = None, broadcast: Any = False, direct: Any = None, hash: bool = True,
        timeout: Any = None, asynchronous: Any = None,
    ) -> Any:  # fmt: skip
        """Send values to the cluster: their futures, in a list, tuple or set, or in a dict by key; or one future.

        Blocks while large ones are written to a store, or is awaited. `broadcast`, `workers` and `hash` are ignored:
        values travel to where they are used, and one given again unchanged is written once in any case. Raises
        TypeError for an iterator, SerializationError, StoreFull, ClientClosed.
        """
        self._check_open()
        return self._blocking(lambda: scattered(self._registry, self.engine, data), asynchronous)

    # ---- control ---------------------------------------------------------------------------------------------------
    def cancel(
        self, futures: Any, asynchronous: Any = None, force: bool = False, reason: Any = None, msg: Any = None
    ) -> Any:
        """Take tasks back, and let go of their values; a collection counts as its futures. Blocks, or is awaited.

        So are those under way that need these values. Tasks that run go on to their ends; with `force` they are ended
        with their workers, which are replaced. Raises ClientClosed.
        """
        found = futures_of(futures)
        clients = {future.state: future.client for future in found}
        states = with_dependents(clients)

        def cancel() -> None:
            under_way = tasks_under_way(Future(state.key, clients[of], state) for state, of in states.items())
            for engine, tasks in under_way.items():
                engine.cancel(tasks, force=force)
            for state in states:
                state.cancel()
                self._registry.remove(state)

        return self._blocking(cancel, asynchronous)

    def retry(self, futures: Any, asynchronous: Any = None) -> Any:
        """Run tasks that failed again, and those of their arguments that did. Blocks shortly, or is awaited.

        Raises ValueError for one whose call is not known any more.
        """
        states = [future.state for future in futures_of(futures)]

        def retry() -> None:
            for state in states:
                state.retry()

        return self._blocking(retry, asynchronous)

    def wait_at_close(self, state: FutureState) -> None:
        """Have `close` wait until this has ended; see `fire_and_forget`."""
        self._awaited_at_close.add(state)
        state.watch(partial(self._awaited_at_close.discard, state))

    def restart(self, timeout: Any = None, wait_for_workers: bool = True) -> Any:
        """Cancel everything and forget all values. Blocks, or is awaited.

        A local cluster that this client started is started anew; the workers of any other keep their processes, and
        with them the modules that they have imported.
        """

        def restart() -> Client:
            known = self._registry.states()
            self.engine.clear()
            for state in known:
                state.cancel()
            self._registry.clear()
            self._connection.restart_cluster()
            return self

        return self._blocking(restart)

    def get_executor(self, **ignored: Any) -> Executor:
        """A `concurrent.futures.Executor` on this client's cluster, with a connection of its own. Blocks shortly."""
        return Executor(address=self.engine.address, security=self._connection.security)

    # ---- workers ---------------------------------------------------------------------------------------------------
    def run(
        self, function: Callable[..., Any], *args: Any, workers: Any = None, wait: bool = True, nanny: bool = False,
        on_error: str = "raise", **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Call a function once in each worker: a dict of worker to value. Blocks, or is awaited.

        As good as it gets: tasks can't be sent to one worker, so short ones are sent until every worker has had one. A
        worker that is busy for 10 s is left out, and so is what joins later. An argument named `dask_worker` is given
        the worker's name. `on_error`: "raise", or "return" the exceptions in the values' places, or "ignore" them.
        """
        if on_error not in ("raise", "return", "ignore"):
            raise ValueError(f"on_error must be 'raise', 'return' or 'ignore', not {on_error!r}")
        return self._blocking(lambda: every_worker.run_on_each(self.engine, function, args, kwargs, on_error))

    def upload_file(self, filename: str | Path, load: bool = True) -> Any:
        """Let workers import a module (.py), or what is in an archive (.zip, .egg). Blocks, or is awaited.

        Each worker gets it, and those that join later before their next task; it goes with the worker. Raises OSError
        if the file can't be read.
        """
        path = Path(filename)
        return self._register(f"upload-{path.name}", worker_functions.FileUpload(path.name, path.read_bytes()))

    def register_plugin(self, plugin: Any, name: str | None = None, **kwargs: Any) -> Any:
        """Call `plugin.setup(worker)` in each worker, and in those that join later before their next task.

        `worker` has a name, an address and a local_directory, no more. Other methods than `setup` and `teardown`, which
        may be `async def`, are never called. Plugins of schedulers are refused: the scheduler runs no code of users.
        Blocks, or is awaited. Raises NotImplementedError for a plugin without `setup`, and what `setup` raises.
        """
        name = name or getattr(plugin, "name", None) or f"{type(plugin).__name__}-{uuid.uuid4().hex}"
        if not hasattr(plugin, "setup"):
            raise NotImplementedError(f"{plugin!r} has no setup(worker), which is all that plugins do on Scaler")
        setup, teardown = (worker_functions.PluginCall(plugin, method) for method in ("setup", "teardown"))
        return self._register(name, setup, teardown)

    def register_worker_plugin(self, plugin: Any = None, name: str | None = None, nanny: Any = None) -> Any:
        """The old name of `register_plugin`."""
        return self.register_plugin(plugin, name)

    def register_worker_callbacks(self, setup: Callable[..., Any] | None = None) -> Any:
        """Call `setup()` in each worker, and in those that join later before their next task. As `register_plugin`.

        An argument named `dask_worker` is given what plugins get as `worker`.
        """
        if setup is None:
            return self._blocking(dict)
        return self._register(f"callback-{uuid.uuid4().hex}", every_worker.call_in_worker(setup, (), {}))

    def unregister_worker_plugin(self, name: str, nanny: Any = None) -> Any:
        """Call the plugin's `teardown(worker)` in each worker, and `setup` no more. ValueError for an unknown name.

        Blocks, or is awaited.
        """
        return self._blocking(lambda: self._plugins.unregister(self.engine, name))

    def _register(self, name: str, setup: Callable[[], Any], teardown: Callable[[], Any] | None = None) -> Any:
        return self._blocking(lambda: self._plugins.register(self.engine, name, setup, teardown))

    def wait_for_workers(self, n_workers: int = 1, timeout: float | str | None = None) -> Any:
        """Block, or be awaited, until there are so many workers. Raises TimeoutError after `timeout` seconds."""
        seconds = seconds_of(timeout)
        return self._blocking(lambda: cluster_info.wait_for_workers(self.engine, n_workers, seconds))

    # ---- what there is to know -------------------------------------------------------------------------------------
    def who_has(self, futures: Any = None, **kwargs: Any) -> Any:
        """For each key whether it has a value: the cluster's address in a tuple, or an empty tuple. Does not block.

        Which host has it is the stores' own business; values travel to where they are used.
        """
        states = self._registry.states() if futures is None else [future.state for future in futures_of(futures)]
        return self._blocking(lambda: cluster_info.who_has(self.engine, states))

    def has_what(self, workers: Any = None, **kwargs: Any) -> Any:
        """The keys that have values, under the cluster's address; see `who_has`."""
        return self._blocking(lambda: cluster_info.has_what(self.engine, self._registry.states()))

    def nthreads(self, workers: Any = None) -> Any:
        """How many tasks each worker runs at a time, which is 1; the workers are numbered. Does not block."""
        return self._blocking(lambda: cluster_info.nthreads(self.engine))

    ncores = nthreads

    def scheduler_info(self, n_workers: int = -1, **kwargs: Any) -> dict[str, Any]:
        """The scheduler's address, and its workers as far as a client knows them: how many there are. Never blocks."""
        return cluster_info.scheduler_info(self.engine)

    @property
    def dashboard_link(self) -> str | None:
        """What to open in a browser, as `scaler.Client.dashboard_link` says; None if there is no dashboard."""
        return self.engine.dashboard_link if self._connection.is_open else None

    def _repr_html_(self) -> str:
        if not self._connection.is_open:
            return f"<table><caption>Client</caption><tr><th>state</th><td>{self._status}</td></tr></table>"
        return self.engine._repr_html_()

    def get_versions(self, check: bool = False, packages: Sequence[str] = ()) -> Any:
        """Versions of Python and packages here and in each worker. Blocks, or is awaited.

        With `check` raises ValueError naming those that differ. Scheduler and client agree when they connect.
        """
        return self._blocking(lambda: every_worker.compared_versions(self.engine, check))

    def get_task_stream(
        self, start: Any = None, stop: Any = None, count: int | None = None, plot: bool = False, filename: str = ""
    ) -> Any:
        """What is known of tasks since the first call of this: dicts with key, status, and seconds begun and ended.

        Of the last 100,000 tasks. The times are the client's own: when the task was submitted, and when its end was
        heard of. Does not block.
        """
        if self._stream is None:
            self._stream = TaskStream()
            self._registry.observers.append(self._stream.watch)
        records = self._stream.records()
        return records[-count:] if count is not None else records

    @contextlib.contextmanager
    def recorded(self) -> Iterator[TaskStream]:
        """Within this context, note when tasks are submitted and end."""
        watch = (stream := TaskStream()).watch
        self._registry.observers.append(watch)
        try:
            yield stream
        finally:
            self._registry.observers.remove(watch)

    # ---- nothing to do ---------------------------------------------------------------------------------------------
    def replicate(self, futures: Any = None, n: Any = None, workers: Any = None, **kwargs: Any) -> Any:
        """Do nothing: a value is copied to each host that uses it, once, when it is used."""
        return self._blocking(lambda: None)

    def rebalance(self, futures: Any = None, workers: Any = None, **kwargs: Any) -> Any:
        """Do nothing: the stores spill to disk what does not fit, and values travel to where they are used."""
        return self._blocking(lambda: None)

    # ---- the end ---------------------------------------------------------------------------------------------------
    def close(self, timeout: Any = None) -> Any:
        """Leave the cluster, end one that was started here, and restore dask's settings. Blocks, or is awaited.

        Waits for what `fire_and_forget` was given, for `timeout` at most: seconds, or text such as "5s". A second call
        does nothing, and neither does any for a client that was made from a `scaler.Client`.
        """
        return self._blocking(partial(self._close, seconds_of(timeout)))

    def _close(self, seconds: float | None = None) -> None:
        if self._status == "closed" or self._connection.is_shared:
            return
        try:
            default_scheduler.leave(self)  # first: dask would go on asking one that is closed
            self._status = "closed"
            self._registry.close()
            if self._connection.is_open and self._connection.cluster is None and not self.engine.closed:
                left = [state.task for state in self._awaited_at_close.copy() if state.task is not None]
                concurrent.futures.wait(left, None if seconds == math.inf else seconds)
        finally:
            default_scheduler.leave(self)  # if a signal's handler came in the way of that
            self._connection.close()

    def shutdown(self) -> Any:
        """End the whole cluster, and close. Raises ShutdownRefused by a scheduler in protected mode.

        Blocks, or is awaited.
        """

        def shutdown() -> None:
            if self._connection.cluster is None:
                self.engine.shutdown()
            self._close()

        return self._blocking(shutdown)

    def _blocking(self, function: Callable[[], Any], asynchronous: Any = None) -> Any:
        """Do what may block, or with an asynchronous client give what is to be awaited for it."""
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

    def __getattr__(self, name: str) -> NoReturn:
        absent.refuse(self, "Client", name, absent.OF_CLIENT)

    def __copy__(self) -> Client:
        return self

    def __deepcopy__(self, memo: Any) -> Client:
        return self

    def __reduce__(self) -> Any:
        return client_of_process, (self.engine.address, serializer_of(self.engine))

    def __repr__(self) -> str:
        if not self._connection.is_open:
            return f"<Client: {self._status}>"
        return f"<Client: {self.engine.address!r} workers={self.engine.n_workers}, {self._status}>"

    # as methods, too
    as_completed = staticmethod(as_completed)
    futures_of = staticmethod(futures_of)
    wait = staticmethod(wait)


#: those that all in this process share, by the engine's client that all share
_of_engine: dict[Engine, Client] = {}


def client_of_process(address: str, serializer: Any = None) -> Client:
    """The client of this process that all share who use the scheduler at `address`; it is never closed.

    Blocks until there is a connection; raises like `scaler.Client`.
    """
    engine = shared_client(address, serializer)
    client = _of_engine.get(engine)
    if client is None:
        client = _of_engine[engine] = Client(engine, set_as_default=False)
    return client


def _check_call(func: Any, method: str, actor: bool) -> None:
    if not callable(func):
        raise TypeError(f"The first input to {method} must be a callable function, not {func!r}")
    _check_no_actors(actor)


def _check_no_actors(actors: Any) -> None:
    if actors:
        raise NotImplementedError("Scaler has no actors: keep the state in your program, or in a service of its own")


def _as_list(collections: Any) -> tuple[list[Any], bool]:
    """One value, or several in a list, tuple or set, as a list; and whether it was one."""
    single = not isinstance(collections, (list, tuple, set, frozenset))
    return [collections] if single else list(collections), single


def _shaped(values: Any, keys: Any) -> Any:
    """Values in tuples as lists, where their keys are in lists."""
    return [_shaped(*pair) for pair in zip(values, keys, strict=True)] if isinstance(keys, list) else values
