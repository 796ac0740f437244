"""`Client`: the session of a program with a cluster."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any
from weakref import WeakValueDictionary

from scaler.client import events as ev
from scaler.client import nesting
from scaler.client.batches import batches_of
from scaler.client.future import Future
from scaler.client.link import Link
from scaler.client.mapping import MapJob, argument_rows
from scaler.client.outbox import Call, Options, Recipe, check_size
from scaler.client.reference import ObjectRef
from scaler.client.resolve import Reactor
from scaler.client.sent import Stored
from scaler.errors import ClientClosed, ConnectionFailed, ForkedClient, SerializationError, ShutdownRefused
from scaler.graph import Order, RemoteValue, from_tuples, itself
from scaler.graph import plan as plan_graph
from scaler.protocol.messages import INLINE_LIMIT, PROFILE, STREAM, WARN, ClientClear, ClientShutdown, DisconnectRequest
from scaler.serialize.call import AnySerializer, Slot
from scaler.serialize.function import Captured, FunctionCache
from scaler.serialize.outofband import joined
from scaler.serialize.payload import SCALARS
from scaler.transport import Security

#: strings and bytes longer than this are not pickled together with other rows' arguments
LONG = 16_384
#: recipes remembered; each keeps its function at the scheduler
RECIPES = 1_024
#: seconds that `cancel`, `disconnect` and `shutdown` wait for an answer
ANSWER_TIMEOUT = 5.0
#: seconds for which leaving waits for results that nobody has looked at
FETCH_TIMEOUT = 30.0

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """A session with the scheduler at `address`. Blocks until it has answered, at most `timeout` seconds.

    Without an address: that of the cluster around the running task, else that in `SCALER_ADDRESS`.
    All methods may be called from any thread. A context manager: leaving it disconnects.

    `serializer`: a `Serializer` class used for functions, arguments and results one by one.
    `stream_output`: print here what tasks print. `reconnect`: seconds for which a lost scheduler is looked for.

    Raises `AddressError`, or `ConnectionFailed` (no scheduler there), `ConnectionTimeout`, `HandshakeRefused`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        timeout: float = 5.0,
        serializer: AnySerializer | None = None,
        stream_output: bool = False,
        reconnect: float = 10.0,
        security: Security | None = None,
    ) -> None:
        target, security = nesting.where(address, security)
        self._address = target
        self._serializer = serializer
        self._owner = os.getpid()
        self._closed = False
        task = nesting.current()
        #: what is submitted inside a task comes before its siblings, so that trees are worked off depth first
        self._options = Options(priority=task.priority + 1 if task else 0, flags=STREAM if stream_output else 0)
        self._functions = FunctionCache(serializer, large=INLINE_LIMIT)
        self._recipes: dict[tuple[int, Options], Recipe] = {}
        #: of large functions, by object id: no longer than calls or the cache of stored values need them
        self._stored_recipes: WeakValueDictionary[tuple[int, Options], Recipe] = WeakValueDictionary()
        self._reactor = Reactor(serializer)
        self._link = Link(
            target,
            security,
            name or f"{os.uname().nodename}-{os.getpid()}",
            timeout,
            reconnect,
            self._reactor.react,
            self._reactor.fail,
        )
        self._reactor.attach(self._link, security)
        _clients.add(self)

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
        argument, and `ClientClosed`. To set options use `with_options`.
        """
        if kwargs or profiling or stream_output:
            flags = self._options.flags | (PROFILE if profiling else 0) | (STREAM if stream_output else 0)
            options = dataclasses.replace(self._options, flags=flags)
            return self._submit(self._recipe(function, options), args, kwargs)
        return self._submit(self._recipe(function, self._options), args, None)

    def _recipe(self, function: Callable[..., Any], options: Options) -> Recipe:
        captured = self._functions.capture(function)
        recipe = self._recipes.get((captured.token, options))
        if recipe is None:
            recipe = self._new_recipe(captured, function, options)
        return recipe

    def _new_recipe(self, captured: Captured, function: Callable[..., Any], options: Options) -> Recipe:
        self._check_open()
        if captured.packed is not None:
            what = f"the function {captured.name}"
            stored = self._reactor.calls.keep(function, captured.packed, self._functions.pack, what)
            if stored is not None:
                return self._stored_recipe(captured, function, options, stored)
            check_size(captured.packed.size, self._link.welcome.limit, what)
            captured = self._functions.in_message(captured, function)
            known = self._recipes.get((captured.token, options))
            if known is not None:
                return known
        check_size(len(captured.payload), self._link.welcome.limit, f"the function {captured.name}")
        if len(self._recipes) >= RECIPES:
            oldest = next(iter(self._recipes))
            used = self._recipes.pop(oldest)
            if used.object_id:
                self._link.tell(ev.Release([used.object_id]))
        recipe = self._recipes[captured.token, options] = Recipe(captured, function, options)
        return recipe

    def _stored_recipe(
        self, captured: Captured, function: Callable[..., Any], options: Options, stored: Stored
    ) -> Recipe:
        captured.packed = None
        recipe = self._stored_recipes.get((stored.id, options))
        if recipe is None:
            recipe = self._stored_recipes[stored.id, options] = Recipe(captured, function, options, stored)
        return recipe

    def _submit(self, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Future:
        if self._link.failure is not None:
            self._check_open()
        future = Future()
        future.client = self
        if not kwargs and self._serializer is None:
            for value in args:
                kind = type(value)
                if kind not in SCALARS or ((kind is str or kind is bytes) and len(value) > LONG):
                    break
            else:
                self._link.submit((recipe, args, future))
                return future
        self._submit_own(recipe, args, kwargs or {}, future)
        return future

    def _submit_own(self, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any], future: Future) -> None:
        if os.getpid() != self._owner:
            self._check_open()
        needs: list[Any] = []
        try:
            args = tuple([self._slot(value, needs, future) for value in args])
            kwargs = {name: self._slot(value, needs, future) for name, value in kwargs.items()}
        except _FailedArgument:
            return
        limit = self._link.welcome.limit
        payload = self._reactor.calls.encode(args, kwargs, recipe.captured.name, needs, limit)
        self._link.submit(Call(recipe, payload, needs, future))

    def _slot(self, value: Any, needs: list[Any], future: Future) -> Any:
        """An argument as it travels: what stands for another value becomes a Slot."""
        if isinstance(value, RemoteValue):
            self._check_own(value)
            if isinstance(value, Future) and value.done() and not value.is_stored:
                error = CancelledError() if value.cancelled() else value.exception()
                if error is not None:
                    future.fail(error)
                    raise _FailedArgument
                return value.value_or_self()
            needs.append(value)
            return Slot(len(needs) - 1)
        return value

    def _check_own(self, value: RemoteValue) -> None:
        if value.client._root is not self._root:
            raise ValueError(
                f"{value!r} belongs to another client ({value.client!r}); only that one's tasks can use it"
            )

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None) -> list[Any]:
        """The results of calling `function` with each item, in order; blocks until all are there.

        With one iterable, items that are tuples are the arguments: `map(f, [(1, 2)])` calls `f(1, 2)`. Several
        iterables are zipped, and end with the shortest, as with the builtin. Raises what the first failing call raised,
        and TimeoutError. Items are sent in blocks, and a block that is waiting is divided when a worker has nothing to
        do.
        """
        return self.map_job(function, *argument_rows(iterables)).results(timeout)

    def starmap(
        self, function: Callable[..., Any], iterable: Iterable[Sequence[Any]], *, timeout: float | None = None
    ) -> list[Any]:
        """`map` whose items are sequences of arguments, whatever their type."""
        return self.map_job(function, [tuple(item) for item in iterable], False).results(timeout)

    def map_job(self, function: Callable[..., Any], items: list[Any], spread: bool, block_rows: int = 1) -> MapJob:
        """Send the items of a map, each the only argument (`spread`) or a tuple of arguments. Does not block.

        At least `block_rows` items travel together. What is returned collects the results.
        """
        self._check_open()
        recipe = self._recipe(function, self._options)
        return MapJob(self, self._link, self._reactor, recipe, items, spread, block_rows)

    # ---- graphs ----------------------------------------------------------------------------------------------------
    def get(self, graph: Mapping[Any, Any], keys: Sequence[Any], block: bool = True) -> dict[Any, Any]:
        """The values of these keys of a graph `{"a": 2, "c": (inc, "a")}`; with `block=False` their futures.

        Futures and references stand for their values, as nodes and as arguments of their own.

        Only what the keys need is run. Raises `CycleError` naming the cycle, KeyError for a missing key, and what a
        task raised.
        """
        futures = dict(zip(keys, self.submit_graph(graph, keys), strict=True))
        if not block:
            return futures
        return {key: future.result() for key, future in futures.items()}

    def submit_graph(self, graph: Mapping[Any, Any], keys: Sequence[Any]) -> list[Future]:
        """Futures of these keys of a graph, in the keys' order. Does not block; raises like `get`."""
        return self.submit_nodes(from_tuples(graph), keys)

    def submit_nodes(
        self,
        nodes: Mapping[Any, Any],
        keys: Sequence[Any],
        order: Order | None = None,
        options: Mapping[Any, Mapping[str, Any]] | None = None,
    ) -> list[Future]:
        """`submit_graph` for nodes: objects with `.dependencies` (keys) that are called with a mapping of their values.

        `order` gives each key a priority, smallest first; or it is a function that does if it is asked. `options`: for
        some keys what `with_options` takes, on top of this client's; they hold for the tasks of these keys alone.
        """
        self._check_open()
        own = self._options
        # rows that end or run again by themselves stay by themselves
        workers = None if own.timeout or own.retries else self.n_workers or None
        made = plan_graph(nodes, keys, order, workers=workers, options=self._options_by_key(options or {}))
        for value in made.shared:
            if isinstance(value, RemoteValue):
                self._check_own(value)
        by_row: dict[int, Future] = {}
        for row in made.rows_of_keys.values():
            if row not in by_row:
                by_row[row] = self._new_future()
        futures = []
        for key in keys:
            future = (
                by_row[made.rows_of_keys[key]] if key in made.rows_of_keys else self._future_of(made.constants[key])
            )
            futures.append(future)
        if made.runs:
            self._link.tell(*batches_of(made, by_row, self._link, self._reactor.calls, own))
        return futures

    def _options_by_key(self, options: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Options]:
        made: dict[tuple[tuple[str, str], ...], Options] = {}
        found = {}
        for key, changes in options.items():
            name = tuple((option, repr(value)) for option, value in changes.items())
            if name not in made:
                made[name] = self.with_options(**changes)._options
            found[key] = made[name]
        return found

    def _future_of(self, value: Any) -> Future:
        """A future of a constant, or of what stands for a value."""
        if isinstance(value, RemoteValue):
            self._check_own(value)
            return value if isinstance(value, Future) else self.submit(itself, value)
        future = self._new_future()
        future._is_given = type(value) not in SCALARS
        future.fulfil(value)
        return future

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
        self._check_open()
        calls, what = self._reactor.calls, f"the object {name or type(obj).__name__}"
        packed = calls.pack(obj)
        object_id = calls.store(obj, packed, calls.pack, what) if packed.size >= INLINE_LIMIT else None
        if object_id is None:
            payload = joined(packed, obj)
            check_size(len(payload), self._link.welcome.limit, what)
            object_id = self._link.take_id()
            self._link.flush(ev.Announce(object_id, payload))
        return ObjectRef(self, object_id, packed.size, name)

    def release_object(self, object_id: int) -> None:
        """An `ObjectRef` is gone. Called by the garbage collector, on any thread at any point: must not take a lock."""
        self._link.release(object_id)

    # ---- control ---------------------------------------------------------------------------------------------------
    def with_options(
        self,
        *,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
        pass_warnings: bool = False,
    ) -> Client:
        """A view of this client whose tasks have these options; everything else is shared.

        `priority`: larger runs earlier. `retries`: how often a task that raised is run again. `timeout`: seconds a task
        may run before its worker is ended and it fails with `TaskTimeout`. `capabilities`: names that the agent must
        have. `pass_warnings`: warnings of its tasks come here, for `issue_warnings`, instead of to their workers' log.
        """
        changes: dict[str, Any] = {}
        if priority is not None:
            changes["priority"] = self._options.priority + priority
        if retries is not None:
            if retries < 0:
                raise ValueError(f"retries must be 0 or more, not {retries}")
            changes["retries"] = retries
        if timeout is not None:
            if timeout <= 0:
                raise ValueError(f"timeout must be a positive number of seconds, not {timeout}")
            changes["timeout"] = float(timeout)
        if capabilities is not None:
            changes["capabilities"] = tuple(
                sorted({capabilities} if isinstance(capabilities, str) else set(capabilities))
            )
        if pass_warnings:
            changes["flags"] = self._options.flags | WARN
        view = object.__new__(Client)
        view.__dict__ = {
            **self.__dict__,
            "_options": dataclasses.replace(self._options, **changes),
            "_whole": self._root,
        }
        return view

    def issue_warnings(self) -> None:
        """Issue, in this thread, the warnings that came from tasks with `pass_warnings` since the last time.

        All that a task has issued is there when its result is.
        """
        self._reactor.warned.issue()

    @property
    def _root(self) -> Client:
        return self.__dict__.get("_whole", self)  # type: ignore[no-any-return]

    def cancel(self, futures: Iterable[Future], force: bool = False) -> int:
        """Cancel many futures in one exchange; how many of them are cancelled. Blocks until the scheduler has answered.

        Tasks that run are cancelled only with `force`, by ending their workers; fresh ones take their place.
        """
        waiting = [future for future in futures if not future.done()]
        if waiting:
            self._check_open()
            answers = self._reactor.expect_withdrawal(waiting)
            self._link.tell(ev.Cancel(waiting, force))
            answers.wait(ANSWER_TIMEOUT if not force else 2 * ANSWER_TIMEOUT)
        return sum(future.cancelled() for future in futures)

    def clear(self) -> None:
        """Cancel everything that is under way and forget all objects and functions at the cluster."""
        self._check_open()
        self._reactor.holds.fetch_all(FETCH_TIMEOUT)
        with self._link.lock:
            futures = self._reactor.abandon(self._link.session)
            self._link.tell(ev.Say(ClientClear()))
            self._recipes.clear()
            self._stored_recipes.clear()
        self._reactor.sent.clear()
        for future in futures:
            future.withdrawn()

    def disconnect(self) -> None:
        """Leave the cluster; what is under way is cancelled. Blocks shortly. A second call does nothing.

        Results that have come can be asked for afterwards, also those in stores, which are fetched now.
        """
        self._disconnect(True)

    def _disconnect(self, fetch: bool) -> None:
        root = self._root
        if root._closed or os.getpid() != root._owner:
            return
        root._closed = True
        if self._link.failure is None:
            if fetch:
                self._reactor.holds.fetch_all(FETCH_TIMEOUT)
            answer = self._reactor.expect_answer()
            self._link.leaving = answer
            self._link.tell(ev.Say(DisconnectRequest()))
            answer.wait(ANSWER_TIMEOUT)
        self._leave()

    def _leave(self) -> None:
        root = self._root
        root._closed = True
        self._link.failure = self._link.failure or ClientClosed("this client is disconnected: make a new Client")
        self._reactor.close()
        self._link.close()
        self._reactor.cancel_all(self._link)

    close = disconnect

    def shutdown(self) -> None:
        """End the whole cluster, and disconnect. Raises `ShutdownRefused` if the scheduler runs in protected mode."""
        self._check_open()
        self._reactor.holds.fetch_all(FETCH_TIMEOUT)
        answer = self._reactor.expect_answer()
        self._link.tell(ev.Say(ClientShutdown()))
        if not answer.wait(ANSWER_TIMEOUT):
            raise ConnectionFailed(f"the scheduler at {self._address} did not answer the request to shut down")
        response = self._reactor.answer
        if response is not None and not getattr(response, "accepted", True):
            raise ShutdownRefused(response.reason)
        self._leave()

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._address.url

    @property
    def n_workers(self) -> int:
        """Workers in the cluster, as last heard."""
        return self._link.session.workers

    def _check_open(self) -> None:
        if os.getpid() != self._owner:
            raise ForkedClient("this client was made before this process was forked: make a new Client here")
        if self._root._closed:
            raise ClientClosed("this client is disconnected: make a new Client")
        failure = self._link.failure
        if failure is not None:
            raise ConnectionFailed(str(failure)) from failure

    def _new_future(self) -> Future:
        future = Future()
        future.client = self
        return future

    @property
    def closed(self) -> bool:
        """It was disconnected."""
        return self._root._closed

    def wait_for(self, future: Future, timeout: float | None) -> float | None:
        """Called by a future that is going to wait: a task may run it itself. What is left of `timeout`."""
        if os.getpid() != self._owner:
            raise ForkedClient(
                "this future belongs to the parent of this forked process: only there can it be waited for"
            )
        if nesting.current() is not None:
            return nesting.wait(self._link, self._reactor, future, future.done, timeout)
        return timeout

    def unpickled(self, body: bytes) -> Any:
        """Called by a future: a value as it came in a message."""
        return self._reactor.load(body)

    def copied(self, value: Any) -> Any:
        """Called by a future: a value as it would have come; itself if it can't be pickled."""
        try:
            return self._reactor.load(joined(self._reactor.calls.pack(value), value))
        except SerializationError:
            return value

    def lead(self, future: Future, timeout: float | None) -> None:
        """Called by a future that is going to wait: its thread may watch the connection itself."""
        self._link.lead(future.done, timeout)

    def call_later(self, callback: Callable[[], object]) -> None:
        """Called by a future whose callbacks may take their time: another thread than the I/O thread runs this."""
        self._reactor.caller.run(callback)

    def being_awaited(self, future: Future) -> None:
        """Somebody made the Condition of a pending future: inside a task, its worker may be about to block."""
        if nesting.current() is not None:
            nesting.note_wait(future)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        state = "closed" if self._root._closed else f"{self.n_workers} workers"
        return f"<Client {self._address.url}, {state}>"

    def __reduce__(self) -> Any:
        return nesting.shared_client, (self._address.url, self._serializer)


class _FailedArgument(Exception):
    """A future given as an argument has failed, and so has the call."""


def _at_exit() -> None:
    """Say goodbye, so that the scheduler need not find out by itself that this process is gone."""
    for client in list(_clients):
        with contextlib.suppress(Exception):
            client._disconnect(False)


atexit.register(_at_exit)
__all__ = ["Client"]
