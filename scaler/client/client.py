"""`Client`: the session of a program with a cluster."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from scaler.client.cluster import ClusterQuestions
from scaler.client.core.options import DEEPEST, Options, seconds_of
from scaler.client.future import Future
from scaler.client.parts import ClientParts, connect
from scaler.client.reference import ObjectRef
from scaler.client.scope import PartOfSession, Scope, WholeSession
from scaler.client.submitting.map_sending import items_of
from scaler.client.surroundings import Cluster, address_around, is_around, patience_with, target_of
from scaler.common import advance, dashboards
from scaler.common.renewed_lock import RenewedLock
from scaler.compatibility.client_arguments import IN_ORDER, ClientArguments, MapArguments, iterables_of, reconnect_of
from scaler.compatibility.signatures import WithOriginals, takes_in_order
from scaler.graph import Node, Order, from_tuples
from scaler.greenlets import refuse_patched
from scaler.protocol.messages import PROFILE, STREAM
from scaler.serialize.call import AnySerializer, check_serializer, key_of
from scaler.transport import Address, Security
from scaler.worker import context

if TYPE_CHECKING:
    from scaler.client.jobs.job import Job, JobState
    from scaler.client.jobs.jobs import Jobs


class Client:
    """A session with the scheduler at `address`, or that of a `SchedulerClusterCombo`. Blocks until it has answered.

    Without an address: that of the cluster around the running task, else that in `SCALER_ADDRESS`. `Client()` in a task
    shares its worker's session: to disconnect it takes back what it has submitted, and nothing else. With `timeout`,
    seconds, a scheduler that is not there yet is waited for; without it nobody at the address is an error at once, and
    one that does not answer after 5 s.
    All methods may be called from any thread. A context manager: leaving it disconnects. One that nobody has any more,
    nor a future or reference of it, disconnects by itself once nothing is under way.

    `serializer`: a `Serializer` class used for functions, arguments and results one by one. Without an address and a
    serializer: that of the running task's client.
    `stream_output`: print here what tasks print. `profiling`: of all tasks, as of those submitted with it. `reconnect`:
    seconds for which a lost scheduler is looked for; by default 10, and in a task of its cluster as long as that task's
    host does, which has no bound. Arguments of the original: `scaler.compatibility`.
    `security`: the keys to connect with, that of a cluster object (`cluster.security`), say. By default those of the
    address's cluster object or of the surrounding task, else the key in `SCALER_KEY`, none if `SCALER_INSECURE` is 1,
    else the key file that `SCALER_KEY_FILE` names, or the user's own.

    Raises `AddressError`, or `ConnectionFailed` (no scheduler there), `ConnectionTimeout`, `HandshakeRefused`,
    `KeyFileError`; `ScalerError` if gevent has replaced threads.
    """

    __signature__ = WithOriginals("scaler.compatibility.client_arguments", "ClientArguments")

    #: shared with all views
    _parts: ClientParts
    #: of the tasks that are submitted through this one
    _options: Options
    #: what it ends by leaving
    _scope: Scope

    @takes_in_order(IN_ORDER, lambda given: len(given) > 2)
    def __init__(
        self,
        address: str | Cluster | None = None,
        profiling: bool = False,
        *,
        name: str | None = None,
        timeout: float | None = None,
        serializer: AnySerializer | None = None,
        stream_output: bool = False,
        reconnect: float | None = None,
        security: Security | None = None,
        **originals: Unpack[ClientArguments],
    ) -> None:
        advance.dismiss()
        refuse_patched()
        check_serializer(serializer)
        reconnect = reconnect_of(type(self), originals, reconnect)
        timeout = None if timeout is None else seconds_of("timeout", timeout)
        reconnect = None if reconnect is None else seconds_of("reconnect", reconnect)
        task = context.current()
        if task is not None and address is None and serializer is None:
            serializer = task.serializer
        flags = (STREAM if stream_output else 0) | (PROFILE if profiling else 0)
        options = Options.make(flags=flags, **_inherited(task))
        says_more = originals or any(given is not None for given in (address, name, timeout, reconnect, security))
        around = None if says_more else address_around()
        if around is not None:
            parts = shared_client(around, serializer)._parts
            self._share(parts, options, PartOfSession(parts))
            return
        target, security = target_of(address, security)
        if timeout is None and is_around(target):
            # the scheduler was there a moment ago: if it is gone it may be about to come back
            timeout = patience_with(target, reconnect)
        name = name or f"{os.uname().nodename}-{os.getpid()}"
        parts = connect(target, security, name, timeout, reconnect, serializer)
        self._share(parts, options, WholeSession(parts))

    def _share(self, parts: ClientParts, options: Options, scope: Scope) -> None:
        self._parts, self._options, self._scope = parts, options, scope
        self._template_of, self._submit = parts.templates.of, scope.submit

    # ---- tasks -----------------------------------------------------------------------------------------------------
    def submit(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        profiling: bool = False,
        stream_output: bool = False,
        **kwargs: Any,
    ) -> Future:
        """Call `function(*args, **kwargs)` on the cluster; a `concurrent.futures.Future` of its result.

        Futures and references among the arguments stand for their values. Blocks only while a large argument is written
        to a store; the same one, unchanged, is written once. Raises `SerializationError` and `StoreFull` naming the
        argument, `ClientClosed`, and TypeError for what can't be called, or not with these arguments as far as a Python
        function says. To set options use `with_options`.
        """
        if kwargs or profiling or stream_output:
            options = self._options
            if profiling or stream_output:
                flags = options.flags | (PROFILE if profiling else 0) | (STREAM if stream_output else 0)
                options = options.replace(flags=flags) if flags != options.flags else options
            template = self._template_of(function, options)
            if len(args) != template.count_before_names or kwargs.keys() != template.names:
                template.check(function, args, kwargs)
            return self._submit(template, args, kwargs)
        template = self._template_of(function, self._options)
        if len(args) != template.count:
            template.check(function, args, kwargs)
        return self._submit(template, args, None)

    def submit_verbose(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        capabilities: Iterable[str] | None = None,
        reserialize: bool = False,
    ) -> Future:
        """`submit` as the original spells it out; of `capabilities` the names count, as in `with_options`.

        `reserialize` changes nothing: an argument that was changed in place is noticed, and sent as it is now.
        """
        client = self if capabilities is None else self.with_options(capabilities=capabilities)
        return client.submit(fn, *args, **kwargs)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
        **originals: Unpack[MapArguments],
    ) -> list[Any]:
        """The results of calling `fn` with each item, in order; blocks until all are there.

        With one iterable, items that are tuples are the arguments: `map(f, [(1, 2)])` calls `f(1, 2)`; those of
        subclasses, as namedtuples, are one argument each. Several iterables are zipped, and end with the shortest, as
        with the builtin. Raises what the first failing call raised, with a note of its item, and TimeoutError if they
        are not there `timeout` seconds after the call. What has not begun is taken back then; what runs goes on, unless
        it is limited by `with_options(timeout=...)`. Items are sent in blocks, and a block that is waiting is divided
        when a worker has nothing to do. Ctrl-C takes back all of them, those that run too. `capabilities`: as in
        `with_options`.
        """
        self._scope.check()
        items = items_of(iterables_of(self.map, originals, iterables) if originals else iterables)
        options = self._options.changed(capabilities=capabilities)
        return self._parts.maps.send(fn, options, items).results(timeout, items)

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Sequence[Any]],
        *,
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
    ) -> list[Any]:
        """`map` whose items are sequences of arguments, whatever their type."""
        self._scope.check()
        items = [tuple(item) for item in iterable]
        options = self._options.changed(capabilities=capabilities)
        return self._parts.maps.send(fn, options, items, False).results(timeout, items)

    # ---- graphs ----------------------------------------------------------------------------------------------------
    def get(
        self,
        graph: Mapping[Any, Any],
        keys: Sequence[Any],
        block: bool = True,
        capabilities: Iterable[str] | None = None,
    ) -> dict[Any, Any]:
        """The values of these keys of a graph `{"a": 2, "c": (inc, "a")}`; with `block=False` their futures.

        Futures and references stand for their values, as nodes and as arguments of their own. `capabilities`: as in
        `with_options`, for all tasks.

        Only what the keys need is run. Ctrl-C takes it back. Raises `CycleError` naming the cycle, KeyError for a
        missing key, and what a task raised.
        """
        client = self if capabilities is None else self.with_options(capabilities=capabilities)
        futures = dict(zip(keys, client.submit_graph(graph, keys), strict=True))
        if not block:
            return futures
        try:
            values = {}
            for key in futures:
                values[key] = futures[key].result()
            return values
        except KeyboardInterrupt:
            self._parts.owner.abandon(futures.values())
            raise
        finally:
            del futures  # a task's error has this frame, and its future has the error

    def submit_graph(self, graph: Mapping[Any, Any], keys: Sequence[Any]) -> list[Future]:
        """Futures of these keys of a graph, in the keys' order. Does not block; raises like `get`."""
        return self.submit_nodes(from_tuples(graph), keys)

    def submit_nodes(
        self,
        nodes: Mapping[Any, Node],
        keys: Sequence[Any],
        order: Order | None = None,
        options: Mapping[Any, Mapping[str, Any]] | None = None,
    ) -> list[Future]:
        """`submit_graph` for nodes: objects with `.dependencies` (keys) that are called with a mapping of their values.

        `order` gives each key a priority, smallest first; without it few values are kept at a time. `options`: for some
        keys what `with_options` takes, on top of this client's; they hold for the tasks of these keys alone.
        """
        self._scope.check()
        futures = self._parts.graphs.submit(nodes, keys, order, options or {}, self._options)
        self._scope.note(futures)
        return futures

    # ---- objects ---------------------------------------------------------------------------------------------------
    def send_object(self, obj: Any, name: Any = None) -> ObjectRef:
        """Send an object once, for use by many tasks: pass the reference as an argument.

        Blocks while a large one is written to a store. Raises `SerializationError`, `StoreFull` or `ObjectTooLarge`.
        """
        if isinstance(obj, str) and name is not None and not isinstance(name, str):
            import warnings

            warnings.warn(
                "send_object(name, obj) is the old order: use send_object(obj, name=...)",
                DeprecationWarning,
                stacklevel=2,
            )
            obj, name = name, obj
        self._scope.check()
        return self._parts.submission.send_object(obj, name)

    # ---- durable jobs ----------------------------------------------------------------------------------------------
    def submit_job(
        self,
        function: Callable[..., Any],
        rows: Iterable[Any],
        name: str | None = None,
        *,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
    ) -> Job:
        """Call `function` with each of `rows` as a job that outlives this program: it is in the scheduler's journal.

        Rows that are tuples are the arguments, as in `map`. Options that are not given, and others, are this client's
        (`with_options`). `name`: what others attach by; made up if it is not given. Needs a scheduler with `--journal`;
        returns once all is on disk.

        Raises `JobError` (no journal there, or a job of this name), `SerializationError`, `ObjectTooLarge`, TypeError
        for futures and references, which do not outlive their client, and `ConnectionFailed`.
        """
        options = self._options.changed(priority, retries, timeout)
        return self._jobs().submit(function, rows, name, options)

    def submit_job_graph(self, graph: Mapping[Any, Any], keys: Sequence[Any], name: str | None = None) -> Job:
        """These keys of a graph as a durable job: `job.result()` is the dict that `get` would return.

        Blocks and raises like `submit_job`, and `CycleError` and KeyError like `get`.
        """
        return self._jobs().submit_graph(graph, keys, name, self._options)

    def attach(self, name: str) -> Job:
        """The durable job of this name, whoever submitted it. Blocks; raises `JobError` if there is none."""
        return self._jobs().attach(name)

    def jobs(self) -> list[JobState]:
        """The durable jobs that the scheduler has. Blocks; raises `JobError` if it keeps no journal."""
        return self._jobs().all()

    def _jobs(self) -> Jobs:
        from scaler.client.jobs.jobs import jobs_of  # here, as few want it and all would load it

        self._scope.check()
        return jobs_of(self._parts)

    # ---- control ---------------------------------------------------------------------------------------------------
    def with_options(
        self,
        *,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
        pass_warnings: bool = False,
        threads: int | None = None,
        fresh_worker: bool | None = None,
    ) -> Client:
        """A view of this client whose tasks have these options; everything else is shared.

        `priority`: larger runs earlier. `retries`: how often a task that raised is run again. `timeout`: seconds a task
        may run before its worker is ended and it fails with `TaskTimeout`. `capabilities`: names that the agent must
        have. `pass_warnings`: warnings of its tasks come here, for `scaler.extension.issue_warnings`, instead of to
        their workers' log. `threads`: how many of a host's workers a task stands for while it runs, since its libraries
        use as many threads; it waits until so many are free, and they are left without tasks meanwhile.
        `fresh_worker`: each task runs in a worker process that has run none before and ends after it.
        """
        return _View(
            self._parts,
            self._options.changed(priority, retries, timeout, capabilities, pass_warnings, threads, fresh_worker),
            self._scope,
        )

    def cancel(self, futures: Iterable[Future] | Future, force: bool = False) -> int:
        """Cancel many futures in one exchange; how many of them are cancelled. Blocks until the scheduler has answered.

        Tasks that run are cancelled only with `force`, by ending their workers; fresh ones take their place. Without an
        answer it gives up when `Future.cancel` does, and more of them may yet be cancelled. Raises `ClientClosed`, and
        ValueError for a future of another client.
        """
        return self._parts.owner.cancel([futures] if isinstance(futures, Future) else futures, force)

    def clear(self) -> None:
        """Cancel everything that is under way and forget all objects and functions at the cluster.

        One that a task was given, or made by `Client()`, cancels what it has submitted itself.
        """
        self._scope.check()
        self._scope.clear()

    def disconnect(self, fetch_results: bool = True) -> None:
        """Leave the cluster; what is under way is cancelled. Blocks shortly. A second call does nothing.

        Results that have come can be asked for afterwards. Large ones that nobody has looked at yet are fetched for
        that, which takes as long as their bytes take, half a minute at most; with `fetch_results=False` they are
        given up, and raise `ConnectionFailed`. In a task, whose worker's session goes on, neither is needed.
        """
        self._scope.leave(fetch_results)

    close = disconnect

    def shutdown(self) -> None:
        """End the whole cluster, and disconnect. Raises `ShutdownRefused` if the scheduler runs in protected mode.

        Blocks until the scheduler has answered; while it is away for the next one, which is asked again, for as long as
        `reconnect` says. Raises `ConnectionFailed` if none comes, or one is there and does not answer for 5 s or more:
        that one may do it all the same, and no later one is asked.
        """
        self._parts.lifetime.shut_down(str(self._parts.address))

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._parts.address.url

    @property
    def identity(self) -> bytes:
        """What no other client of the cluster has, as bytes; views share it."""
        return self._parts.identity

    @property
    def cluster(self) -> ClusterQuestions:
        """What the cluster can be asked: `client.cluster.status()`, `.workers()`, `.explain(future)` and others."""
        parts = self._parts
        return ClusterQuestions(parts.address, parts.security, parts.liveness)

    @property
    def n_workers(self) -> int:
        """Workers in the cluster, as last heard."""
        return self._parts.driver.session.workers

    @property
    def closed(self) -> bool:
        """It was disconnected."""
        return self._scope.is_closed

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._scope.leave_at_once()
        else:
            self.disconnect()

    @property
    def dashboard_link(self) -> str | None:
        """What to open in a browser, if this program has started the cluster with `dashboard=True`, or
        SCALER_DASHBOARD_LINK says it; None else. Does not block."""
        return dashboards.link_of(self.address)

    def __repr__(self) -> str:
        return repr(self._parts.owner)

    def _repr_html_(self) -> str:
        rows = {"state": "disconnected"} if self.closed else {"workers": self.n_workers}
        return dashboards.as_html("Client", {"scheduler": self.address, **rows}, self.dashboard_link)

    def __reduce__(self) -> Any:
        parts = self._parts
        return _in_task, (self.address, parts.serializer, self._options.values, parts.reconnect)


class _View(Client):
    """A client whose tasks have other options; everything else is shared."""

    def __init__(self, parts: ClientParts, options: Options, scope: Scope) -> None:
        self._share(parts, options, scope)


def parts_of(client: Client) -> tuple[ClientParts, Options]:
    """What a client is made of, and the options of its tasks: for the modules that adapters stand on."""
    return client._parts, client._options


_shared: dict[tuple[int, str, Any], Client] = {}
#: for each of these: held by who connects it, so that one scheduler that is not there holds no other client up
_connecting: defaultdict[tuple[int, str, Any], RenewedLock] = defaultdict(RenewedLock)
_connecting_lock = RenewedLock()


def shared_client(address: str, serializer: AnySerializer | None = None, reconnect: float | None = None) -> Client:
    """The client whose views pickled ones become: one for each process, address and serializer. Do not close it.

    Any thread may call this. One that has given its scheduler up is followed by another. Blocks until there is a
    connection, and raises like `Client`. In a task, whose scheduler was there a moment ago, one that is gone is looked
    for as long as by a client that had it.
    """
    key = (os.getpid(), address, key_of(serializer))
    with _connecting_lock.lock:
        connecting = _connecting[key]
    with connecting.lock:
        client = _shared.get(key)
        if client is None or client._parts.liveness.is_lost:
            in_task = context.surroundings() is not None
            timeout = patience_with(Address.parse(address), reconnect) if in_task else None
            client = _shared[key] = Client(address, serializer=serializer, timeout=timeout, reconnect=reconnect)
        return client


def client_around(address: str, serializer: AnySerializer | None = None) -> Client:
    """`shared_client`; inside a task a view of it, whose tasks are made in that one. Blocks and raises like that."""
    client, inherited = shared_client(address, serializer), _inherited(context.current())
    if not inherited:
        return client
    return _View(client._parts, client._options.replace(**inherited), PartOfSession(client._parts))


def _inherited(task: context.TaskContext | None) -> dict[str, int]:
    """What a task's tasks have of it: they go before its siblings, so that trees are worked off depth first."""
    return {} if task is None else {"priority": task.priority, "nesting": min(task.nesting + 1, DEEPEST)}


def _in_task(
    address: str, serializer: AnySerializer | None, options: tuple[Any, ...], reconnect: float | None = None
) -> Client:
    """What a pickled client becomes: one that shares a session, with its options and those of a task within a task."""
    client, own, task = shared_client(address, serializer, reconnect), Options(*options), context.current()
    inherited = _inherited(task)
    if task is not None:
        inherited["priority"] = max(own.priority, task.priority)
    return _View(client._parts, own.replace(**inherited), PartOfSession(client._parts))


__all__ = ["Client", "client_around", "parts_of", "shared_client"]
