"""A standard future that costs next to nothing until somebody waits for it.

`concurrent.futures.Future` makes a Condition and two lists at once. Here they are made when first looked at, which is
when somebody adds a callback or hands the future to `wait` or `as_completed`; `result` makes do with a bare lock. The
I/O thread that fulfils a future writes the value, looks whether it is `_watched`, and writes the state; who waits sets
`_watched`, then looks at the state. No other thread gets in between such a look and the write. One that is watched ends
with its Condition held: `wait` and `as_completed` hold those of all their futures while they look which have ended and
leave word at all of them, and must not be told of one that they have seen.

A future is done, too, when its value lies in a store of the cluster. The thread that asks for the value loads it.

A future has no `__dict__` until somebody asks for it: nothing here does, and Python has a place for each attribute, see
`_have_places`. Else it makes one when it needs it, which takes longer than all else that is done with the future; and
Python 3.11 may lose what another thread writes meanwhile, the state, say, or crash.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from scaler.client.callbacks import call_back, callback_of_task, callbacks_collected
from scaler.client.waiters import Waiters, check_process
from scaler.common.gate import Gate
from scaler.common.interrupts import wait_in_steps
from scaler.common.process_limits import is_lack
from scaler.common.renewed_lock import RenewedLock
from scaler.errors import ObjectLost
from scaler.graph import RemoteValue
from scaler.serialize.payload import SCALARS
from scaler.serialize.record import note_unpickling

#: nothing that comes afterwards changes these
_ENDED = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED})


class _Condition(threading.Condition):
    """`with` takes its lock itself: a signal's handler that raises within Condition's methods leaves that taken."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


_first_look = RenewedLock()
_LAZY: dict[str, Callable[[Future], Any]] = {
    "_condition": lambda _: _Condition(),
    "_waiters": lambda future: Waiters(future),
    "_done_callbacks": lambda _: [],
    "_gates": lambda _: [],
}


class FutureOwner(Protocol):
    """What a future asks of the client that made it. Any thread."""

    def wait(self, future: Future, timeout: float | None) -> None:
        """Wait for a pending future, by something useful or by its `wait_at_gate`. Ctrl-C takes the task back."""

    def prepare_to_block(self, future: Future) -> None:
        """Somebody is going to wait for a pending future by its Condition, which nobody can help with."""

    def note_poll(self, future: Future) -> None:
        """Somebody has asked whether a pending future is done, and perhaps will do so until it is."""

    def copy(self, value: Any, body: bytes | None) -> Any:
        """A value in an object that nobody else has; `body`: as it came, if it did."""

    def cancel(self, futures: Iterable[Future], force: bool) -> int:
        """Take tasks back; how many of these are cancelled. Blocks until the scheduler has answered, for seconds."""


class StoredValue(Protocol):
    """A value in a store, which is kept there for as long as this lives."""

    def held(self, timeout: float | None) -> AbstractContextManager[float | None]:
        """Nobody else loads the value meanwhile; what is left of a limit in seconds. Blocks; raises TimeoutError."""

    def load(self, timeout: float | None = None) -> Any:
        """The value, a new one each time. Blocks; raises TimeoutError, and why it can't be had."""

    def defer(self, callback: Callable[[], object]) -> None:
        """Have a thread call this that may block. Does not block itself."""


@dataclass(frozen=True, slots=True)
class ProfilingInfo:
    """What a task took."""

    #: microseconds in the function
    duration_us: int
    #: the most memory its worker had while it ran, bytes; 0 if not measured
    peak_memory: int
    #: microseconds of processor that its worker took meanwhile, threads of its libraries included
    cpu_time_us: int = 0

    @property
    def duration_s(self) -> float:
        """Seconds in the function."""
        return self.duration_us / 1e6

    @property
    def cpu_time_s(self) -> float:
        """Seconds of processor."""
        return self.cpu_time_us / 1e6

    @property
    def memory_peak(self) -> int:
        """`peak_memory`, as the original calls it."""
        return self.peak_memory


class Future(concurrent.futures.Future, RemoteValue):  # type: ignore[type-arg]
    """The result of a task, some time. Everything `concurrent.futures.Future` does, and `await`.

    Any thread may use it. `result` and `exception` block, inside a task also: the task's worker then runs the awaited
    task itself if nobody has begun it, or gives its place to another worker. Ctrl-C in one of these takes the task
    back, also if it runs, unless another thread waits for it; so it does in the standard library's `wait` and
    `as_completed`, for all futures that these wait for.
    """

    _state = PENDING
    _result = None
    _exception: BaseException | None = None
    #: of its row, set by the session when it is sent
    id = 0
    _profiling: ProfilingInfo | None = None
    #: somebody waits, or wants to be called
    _watched = False
    #: of `_LAZY`, what has been looked at
    _made: frozenset[str] = frozenset()
    #: of a value in a store: keeps it there
    _stored: StoredValue | None = None
    #: the same until the value has been loaded
    _unread: StoredValue | None = None
    #: load the value before callbacks are called
    _eager = False
    #: a value that may be changed, as it came
    _body: bytes | None = None
    #: the value is an object of the user's, not one that came
    _is_given = False
    #: what is said of it, where it was cancelled with others
    _why_cancelled: str | None = None

    def __init__(self, owner: FutureOwner) -> None:
        """Made by clients only."""
        self.owner = owner

    def __getattr__(self, name: str) -> Any:
        make = _LAZY.get(name)
        if make is None:
            raise AttributeError(name)
        with _first_look.lock:
            if name in self._made:
                with contextlib.suppress(AttributeError):  # whoever began to make it was interrupted
                    return super().__getattribute__(name)  # another thread was faster
            made = make(self)
            self._watched = True
            self._made |= {name}  # first, so that whoever finds it is told
            setattr(self, name, made)
        if name == "_condition" and self._state in (PENDING, RUNNING):
            self.owner.prepare_to_block(self)
        return made

    # ---- for users -------------------------------------------------------------------------------------------------
    def result(self, timeout: float | None = None) -> Any:
        """The task's value; blocks until it is there, at most `timeout` seconds.

        Raises what the task raised, `CancelledError`, `TimeoutError`, or `WorkerLost`, `ObjectLost` and the like.
        """
        if self._state is not FINISHED:
            timeout = self.wait_until_done(timeout)
        if self._unread is not None:
            self._load(timeout)
        if self._state is FINISHED and self._exception is None:
            return self._result
        self._check_cancelled()
        try:
            return super().result(0)
        finally:
            del self  # the error has this frame: with the future, which has the error, it would wait for the collector

    def add_done_callback(self, fn: Callable[[Future], object]) -> None:
        """Have this called with the future once it has ended, or now if it has. Does not block; any thread may call it.

        What a task's callback submits ends with the program whose task has added it. Raises `ForkedClient` where it
        would never be called.
        """
        check_process([self])
        super().add_done_callback(callback_of_task(fn))

    def done(self) -> bool:
        """It has a result, or ended otherwise. A task that asks this again and again counts as waiting for it."""
        if self._state in (PENDING, RUNNING):
            self.owner.note_poll(self)
            return False
        return True

    def has_ended(self) -> bool:
        """As `done`, for who does not wait by asking."""
        return self._state not in (PENDING, RUNNING)

    def cancelled(self) -> bool:
        """It was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        """It is known to run: it has done so for a tenth of a second or longer, or could not be cancelled any more."""
        if self._state is PENDING:
            self.owner.note_poll(self)
        return self._state is RUNNING

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None; blocks like `result`."""
        if self._state is not FINISHED:
            timeout = self.wait_until_done(timeout)
        if self._unread is not None:
            self._load(timeout)
        self._check_cancelled()
        return super().exception(0)

    def _check_cancelled(self) -> None:
        """Raise CancelledError if more can be said about that than the standard library does."""
        if self._why_cancelled is not None and self._state is CANCELLED_AND_NOTIFIED:
            raise CancelledError(self._why_cancelled)

    def _get_snapshot(self) -> Any:
        """What asyncio reads, since Python 3.14, in the place of `result` and `exception`."""
        if self._unread is not None:
            self._load(None)
        return super()._get_snapshot()  # type: ignore[misc]

    def _load(self, timeout: float | None) -> None:
        """Get the value from the store it is in."""
        stored = self._unread
        if stored is None:
            return
        with stored.held(timeout) as left:
            if self._unread is None:
                return  # another thread was faster
            try:
                self._result = stored.load(left)
            except Exception as error:
                if (timeout is not None and isinstance(error, TimeoutError)) or is_lack(error):
                    raise  # whoever asks again may get it
                self._exception = error
            self._unread = None

    @property
    def is_stored(self) -> bool:
        """Its value is in a store, where tasks can use it."""
        return self._stored is not None and self._exception is None

    @property
    def is_unread(self) -> bool:
        """Its value is in a store, and did not come here."""
        return self._unread is not None

    def held_result(self) -> Any:
        """As `fresh_result`, made of what came here: no store is asked. For one that is done and not `is_unread`."""
        return self.owner.copy(self._result, None) if self.is_stored else self.fresh_result()

    def fresh_result(self, timeout: float | None = None) -> Any:
        """The task's value in an object that nobody else has, as it was returned; blocks and raises like `result`.

        `result` gives the same object each time, which somebody may have changed.
        """
        if self._state is not FINISHED:
            timeout = self.wait_until_done(timeout)
        stored = self._stored
        if stored is not None and self._exception is None:
            with stored.held(timeout) as left:
                try:
                    return stored.load(left)
                except ObjectLost:
                    if self._unread is not None:
                        raise
            return self.owner.copy(self._result, None)  # it came here before it was lost
        self._check_cancelled()
        try:
            value = super().result(0)
        except BaseException:
            del self  # as in `result`
            raise
        return self.owner.copy(value, self._body) if self._body is not None or self._is_given else value

    def value_or_self(self) -> Any:
        """The value as it came, if it came here in a message, else the future itself."""
        if self._state is FINISHED and self._stored is None and self._exception is None:
            return self._result if self._is_given else self.fresh_result()
        return self

    def wait_until_done(self, timeout: float | None) -> float | None:
        """Wait until it has ended; what is left of `timeout` seconds. Raises TimeoutError after these."""
        began = time.monotonic()
        self.owner.wait(self, timeout)
        if timeout is None:
            return None
        if not self.has_ended():
            raise TimeoutError(f"not done within {timeout:g} s: client.cluster.explain(future) says what it waits for")
        return max(0.0, timeout - (time.monotonic() - began))

    def wait_at_gate(self, timeout: float | None) -> None:
        """For the client: wait until it has ended, at most so many seconds."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        try:
            if self._state in (PENDING, RUNNING):
                wait_in_steps(lambda seconds: gate.acquire(timeout=seconds), timeout)
        finally:
            self._gates.remove(gate)

    def ring_at_end(self, bell: _Bell) -> None:
        """Have this rung once it has ended; now if it has."""
        if self._state in (PENDING, RUNNING):
            self._gates.append(bell)
        if self._state not in (PENDING, RUNNING):  # by now
            bell.release()

    def is_awaited(self, waiter: object = None) -> bool:
        """Some thread waits for it: in `result`, `exception`, or by another waiter of the standard library's."""
        if "_gates" in self._made and self._gates:
            return True
        return "_waiters" in self._made and any(other is not waiter for other in self._waiters)

    def cancel(self, force: bool = False) -> bool:
        """Take the task back; False if it runs or has ended. With `force` a running one is ended with its worker.

        Blocks until the scheduler has answered, which takes about a round trip. Without an answer for 5 seconds, 10
        with `force`, it is False as well, and the log says so: the task may yet be cancelled.
        """
        if self._state in (CANCELLED, CANCELLED_AND_NOTIFIED):
            return True
        if self._state is FINISHED:
            return False
        self.owner.cancel([self], force)
        return self.cancelled()

    def _repr_html_(self) -> str:
        from scaler.common.dashboards import as_html

        error = self._exception if self._state is FINISHED else None
        state = "failed" if error is not None else "cancelled" if self.cancelled() else self._state.lower()
        return as_html("Future", {"state": state} | ({"error": type(error).__name__} if error is not None else {}))

    def profiling_info(self) -> ProfilingInfo:
        """What a task submitted with `profiling=True` took, also one that raised, and in callbacks.

        Raises ValueError before it has ended, and if it never ran or was not to be profiled.
        """
        if self._profiling is None:
            raise ValueError(f"no profiling information: the task {self._why_unprofiled()}")
        return self._profiling

    def _why_unprofiled(self) -> str:
        if not self.done():
            return "is not done yet"
        if self.cancelled():
            return "was cancelled"
        return "was not submitted with profiling=True" if self.id else "never ran"

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        self._eager = True
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(tell)
        try:
            yield from ended
        except asyncio.CancelledError:
            self.cancel()
            raise
        try:
            return self.result()
        except CancelledError as error:
            raise asyncio.CancelledError(*error.args) from None
        except StopIteration as error:  # `asyncio.wrap_future` would wait for ever
            raise RuntimeError("the task raised StopIteration, which a coroutine can't raise") from error
        finally:
            del self  # as in `result`

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Future can't be pickled: pass it to a task as an argument of its own, not inside another value"
        )

    # ---- for the I/O thread ----------------------------------------------------------------------------------------
    def fulfil(self, value: Any) -> None:
        """The task returned this."""
        self._result = value
        del value
        self._finish()

    def fulfil_given(self, value: Any) -> None:
        """The value is the user's own object, which was not sent anywhere."""
        self._is_given = type(value) not in SCALARS
        self.fulfil(value)

    def fulfil_from(self, body: Any, load: Callable[[Any], Any], name: str) -> None:
        """The task of this name returned what `load` makes of this. Fails with what that raises."""
        try:
            self._result = load(body)  # by no name here, which would keep it
            if type(self._result) not in SCALARS:
                self._body = bytes(body)
        except BaseException as error:  # the user's classes may do anything while they are unpickled
            note_unpickling(error, name)
            self.fail(error)
            return
        self._finish()

    def fulfil_stored(self, stored: StoredValue) -> None:
        """The task has returned; its value is in a store."""
        if self._state in _ENDED:
            return
        self._stored = self._unread = stored
        self._finish()

    def _finish(self) -> None:
        if self._state in _ENDED:  # it has failed, or was cancelled, meanwhile
            return
        if not self._watched:
            self._state = FINISHED
        else:
            self.end_watched()

    def profile(self, duration_us: int, peak_memory: int, cpu_time_us: int) -> None:
        """What the task took; before it ends."""
        self._profiling = ProfilingInfo(duration_us, peak_memory, cpu_time_us)

    @property
    def has_callbacks(self) -> bool:
        """Somebody may be called when it ends."""
        return "_done_callbacks" in self._made

    def fail(self, error: BaseException) -> None:
        """The task ended with this."""
        if self._state in _ENDED:
            return
        self._exception = error
        self._finish()

    def mark_running(self) -> None:
        """The task runs and can't be cancelled."""
        if self._state is PENDING:
            self._state = RUNNING

    def mark_cancelled(self, why: str | None = None) -> None:
        """The task was cancelled; `why`, if that was with others."""
        if why is not None:
            self._why_cancelled = why
        if not self._watched and self._state in (PENDING, RUNNING):
            self._state = CANCELLED_AND_NOTIFIED
            if not self._watched:
                return
            self._state = PENDING  # type: ignore[unreachable]  # somebody began to watch just now
        with self._condition:
            if self._state in (PENDING, RUNNING):
                self._state = CANCELLED_AND_NOTIFIED
                for waiter in self._waiters:
                    waiter.add_cancelled(self)
                self._condition.notify_all()
            else:
                return
        self._open_gates()
        callbacks_collected.call(self._invoke_callbacks)

    def end_watched(self) -> None:
        """It has its outcome: end, and tell those who wait."""
        if "_condition" not in self._made:
            self._state = FINISHED
            self._open_gates()
            return
        with self._condition:
            if self._state in _ENDED:  # another thread was faster: that of clear(), say
                self._stored = self._unread = None
                return
            self._state = FINISHED
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            self._condition.notify_all()
        self._open_gates()
        if not self.has_callbacks:
            return
        unread = self._unread
        if unread is None:
            callbacks_collected.call(self._invoke_callbacks)
        else:  # they will want the value, and that may take its time
            unread.defer(self._load_and_call_back)

    def _invoke_callbacks(self) -> None:
        if self.has_callbacks:
            call_back(self)

    def _load_and_call_back(self) -> None:
        if self._eager:
            self._load(None)
        self._invoke_callbacks()

    def _open_gates(self) -> None:
        if "_gates" not in self._made:
            return
        for gate in list(self._gates):  # those that wake take theirs out meanwhile
            with contextlib.suppress(RuntimeError):  # opened by another thread as well
                gate.release()


def _have_places() -> None:
    """Let Python know what attributes futures have besides that with which they are made.

    It keeps places for those that the first thirty were given, and for one more: the others would have a dict each.
    """
    future = Future(None)  # type: ignore[arg-type]
    kept = [name for name, value in vars(Future).items() if not name.startswith("__") and not hasattr(value, "__get__")]
    for name in (*kept, *_LAZY):
        setattr(future, name, None)


_have_places()


def fulfil_all(futures: Iterable[Future], values: Iterable[Any]) -> None:
    """`fulfil` for many futures, without a call for each."""
    for future, value in zip(futures, values, strict=True):
        future._result = value
        if not future._watched:
            future._state = FINISHED
        elif future._state not in _ENDED:
            future.end_watched()


class _Bell:
    """At the gate of a future for a thread that waits for many: rung once, when that ends."""

    __slots__ = ("_ended", "_future", "_gate")

    def __init__(self, future: Future, ended: deque[Future], gate: Gate) -> None:
        #: None: it was rung
        self._future: Future | None = future
        self._ended = ended
        self._gate = gate

    def release(self) -> None:
        """It has ended; called as that of a lock would be."""
        future, self._future = self._future, None
        if future is not None:
            self._ended.append(future)
            self._gate.open()


def as_ended(futures: Iterable[Future]) -> Iterator[Future]:
    """Each of these as it ends, as `concurrent.futures.as_completed` does, without a Condition for each. Blocks.

    Ctrl-C takes no task back: that is left to whoever waits. Raises `ForkedClient`.
    """
    left = dict.fromkeys(futures)
    del futures  # who has been told is kept by nobody here
    ended: deque[Future] = deque()
    gate, noted = Gate(), None
    _hang_bells(left, ended, gate)
    while left:
        if not ended:
            if noted is None:
                check_process(left)
                noted = next(reversed(left))  # mostly the last to end, so that one is enough
                noted.owner.prepare_to_block(noted)
            gate.wait_for(lambda: ended, None)
        elif ended[0] in left:
            del left[ended[0]]
            if ended[0] is noted:
                noted = None
            yield ended.popleft()  # by no name here, which would keep it
        else:  # two threads have rung at the same time
            ended.popleft()


def _hang_bells(futures: Iterable[Future], ended: deque[Future], gate: Gate) -> None:
    for future in futures:
        future.ring_at_end(_Bell(future, ended, gate))


def take_result(future: Future, timeout: float | None = None) -> Any:
    """`result` of a future that nobody else asks for it: the value is kept no longer.

    The thread that fulfilled it may have the future in hand a moment longer than whoever waited for it.
    """
    try:
        value = future.result(timeout)
        future._result = None
        return value
    finally:
        del future  # as in `Future.result`


#: what the original calls it
ScalerFuture = Future

__all__ = ["CancelledError", "Future", "ProfilingInfo", "ScalerFuture", "as_ended", "fulfil_all", "take_result"]
