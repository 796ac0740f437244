"""What a key of a client stands for: the state that all futures of this key share."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from scaler.extension import Future as EngineFuture
from scaler.extension import task_root
from scaler_dask.sources import NoValue, SentValue, Source, TaskValue


class Dependents(Protocol):
    """One or several states that need the values of others."""

    def needing(self, state: FutureState) -> Iterable[FutureState]:
        """Those that need this one's."""
        ...


class FutureState:
    """A value under a key, some time: of a task that was submitted, or of an object that was sent.

    Any thread may call the methods.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_dependents",
        "_source",
        "_submit_again",
        "_watched",
        "_watched_in",
        "_watchers",
        "graph",
        "key",
        "root",
    )

    def __init__(
        self,
        key: Any,
        source: Source,
        submit_again: Callable[[], EngineFuture] | None = None,
        arguments: tuple[FutureState, ...] = (),
    ) -> None:
        self.key = key
        #: whose leaving ends it, if it was made by a task
        self.root = task_root()
        #: another one after `cancel` and `retry`
        self._source = source
        #: makes the same call; kept until it is known that the task has succeeded
        self._submit_again = submit_again
        #: what its arguments stand for; kept as long
        self._arguments = arguments
        #: to be called when it has ended; taken out by who calls them
        self._watchers: list[Callable[[], None]] = []
        #: the source that has been told to call them
        self._watched: Source | None = None
        #: the process that has told it: a forked child is never called, and has to hear of it
        self._watched_in = 0
        #: what needs its value; None if nothing has come to need it while it was under way
        self._dependents: weakref.WeakSet[Dependents] | None = None
        #: of whose keys this is one, if that was given other futures; kept as long as the arguments
        self.graph: Dependents | None = None
        if arguments:  # a chain of states would keep all its values
            known = weakref.ref(self)
            source.call_when_done(lambda: _look_at(known()))
            for argument in arguments:
                argument.note_dependents(self)

    @property
    def task(self) -> EngineFuture | None:
        """The engine's future, if the value is that of a task."""
        return self._source.future if isinstance(self._source, TaskValue) else None

    @property
    def sent(self) -> SentValue | None:
        """Where the value comes from, if it was sent to the cluster."""
        return self._source if isinstance(self._source, SentValue) else None

    @property
    def argument(self) -> Any:
        """What the engine's tasks are given for the value. Raises what has been instead of it."""
        return self._source.argument

    @property
    def status(self) -> str:
        """One of pending, finished, error, cancelled. Does not block."""
        status = self._source.status
        if status == "finished":
            self._forget_call()
        return status

    @property
    def done(self) -> bool:
        """Whether it has ended, however it did."""
        return self._source.done

    def value(self, timeout: float | None = None) -> Any:
        """The value, which nobody else has; blocks, and raises like `result` of the engine's futures."""
        value = self._source.value(timeout)
        self._forget_call()
        return value

    def _forget_call(self) -> None:
        self._submit_again, self._arguments, self.graph = None, (), None

    def error(self, timeout: float | None = None) -> BaseException | None:
        """What the task has raised, or None; blocks. Raises CancelledError and TimeoutError."""
        return self._source.error(timeout)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call this once, from any thread, when it has ended; at once if it has. Raises `scaler.ForkedClient`."""
        watchers, source = self._watchers, self._source
        watchers.append(callback)
        if source.done:
            _call_all(watchers)
        elif self._watched is not source or self._watched_in != os.getpid():
            source.call_when_done(lambda: _call_all(watchers))
            self._watched, self._watched_in = source, os.getpid()

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Do not call this, unless it has been called."""
        with contextlib.suppress(ValueError):
            self._watchers.remove(callback)

    def note_dependents(self, dependents: Dependents) -> None:
        """This needs the value."""
        if not self._source.done:
            if self._dependents is None:
                self._dependents = weakref.WeakSet()
            self._dependents.add(dependents)

    def dependents(self) -> list[FutureState]:
        """What needs its value, as far as that came while it was under way."""
        return [state for each in list(self._dependents or ()) for state in each.needing(self)]

    def needing(self, _: FutureState) -> list[FutureState]:
        """What needs the value of one of its arguments: this."""
        return [self]

    def cancel(self) -> None:
        """Nobody wants the value any more: let go of it. A task that runs goes on to its end."""
        self._source = NoValue(self.key)
        _call_all(self._watchers)

    def retry(self) -> None:
        """Submit the task anew if it has failed, after those of its arguments that have. Does not block.

        Raises ValueError if it is not known any more what to call.
        """
        for state in self._failed_first():
            if state._submit_again is None:
                raise ValueError(f"{state.key!r} can't be run again: its call is not known any more; submit it anew")
            state._source = TaskValue(state._submit_again())

    def _failed_first(self) -> list[FutureState]:
        """Those that failed, of this and of its arguments, each after its own arguments."""
        found: dict[FutureState, None] = {}
        stack = [self]
        while stack:
            state = stack.pop()
            if state.status == "error":
                found.pop(state, None)
                found[state] = None
                stack += state._arguments
        return list(reversed(found))


def _look_at(state: FutureState | None) -> None:
    """Let go of what it takes to run a task again, if it has succeeded: asking for the status does."""
    if state is not None:
        state.status  # noqa: B018


def _call_all(watchers: list[Callable[[], None]]) -> None:
    while True:
        try:
            callback = watchers.pop(0)
        except IndexError:  # none is left, or somebody else calls it
            return
        callback()
