"""What code that runs in workers may use: doing something once in each of them, and telling that a task waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from scaler.serialize import class_states
from scaler.worker import context, leftovers

#: keys of what has been run in this process, or is being run
_keys: set[str] = set()


def run_once(key: str, function: Callable[..., Any], *args: Any) -> None:
    """Call `function(*args)` unless that was done in this process under this key; what it returns is dropped.

    For what workers are to do before some tasks, such as the initializer of an executor: each task brings it along.
    Tasks that run in here while it is called, since it waits for them, find it done. Blocks as long as the function
    does. What it changes in the process lasts: the directory, the environment, handlers of signals, which are put back
    after tasks otherwise. Classes of a script that it brings along in another version than they are here are put back.
    Raises what it raises, and then counts as not run. Called by tasks; not by several threads at once.
    """
    if key in _keys:
        return
    _keys.add(key)
    try:
        with class_states.here.aside():
            function(*args)
    except BaseException:
        _keys.discard(key)
        raise
    leftovers.keep()


def forget_run(key: str) -> bool:
    """Let `run_once` run something again under this key; whether it had been run in this process."""
    was_run = key in _keys
    _keys.discard(key)
    return was_run


def task_root() -> int:
    """A number of the program on whose behalf this process runs a task, or ran the last one; 0 outside of workers.

    What tasks submit is cancelled when that program leaves, and so is of no use to tasks of others. Does not block.
    """
    return context.root()


@contextlib.contextmanager
def worker_slot_lent() -> Iterator[None]:
    """Within this context the calling task only waits: its worker's slot is another worker's meanwhile.

    For libraries that wait for tasks by polling, or in threads of their own. Waiting for Scaler's futures needs none of
    this: they tell the engine themselves. Does nothing outside of tasks; does not block.
    """
    if context.current() is None:
        yield
        return
    wait = object()
    try:
        context.blocked(wait)
        yield
    finally:
        context.unblocked(wait)
