"""What a running task can know of itself: for clients made inside a task, and for those who wait inside one.

Only the main thread of a worker runs tasks, so only there is a current task; other threads of the user, and processes
that a task forks, have none, but know the `surroundings`, which is what a client needs to connect.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scaler.common.interrupts import Uninterrupted
from scaler.protocol import error_record
from scaler.protocol.codes import INLINE_LIMIT, NESTINGS
from scaler.serialize.call import AnySerializer
from scaler.worker_protocol.messages import Blocked, FromWorker, Unblocked
from scaler.worker_protocol.socketpair import LARGEST_PAYLOAD


@dataclasses.dataclass(frozen=True, slots=True)
class TaskContext:
    """The task that the calling code is part of."""

    #: client session and row id: together the key of the row
    client: int
    row: int
    #: of the function, for messages
    name: str
    #: tasks made inside inherit it
    priority: int = 0
    #: how many tasks around this one wait in the same thread; 0 for a row the agent handed out
    depth: int = 0
    #: the client wants to see what is printed
    stream: bool = False
    #: its client's, if that has one of the user's: clients made inside inherit it
    serializer: AnySerializer | None = None
    #: says which client's leaving ends this task: tasks made inside have the same
    root: int = 0
    #: how many tasks it was submitted in, one inside the other, wherever those run
    nesting: int = 0
    #: it may run in its own stack what is submitted in fewer tasks than so many: such a row has ended a worker before
    claims_below: int = NESTINGS


class _Worker:
    """The worker that this process is."""

    def __init__(
        self,
        task: Callable[[], TaskContext | None],
        root: Callable[[], int],
        send: Callable[[FromWorker], None],
        give_back: Callable[[], None],
        note_claimed: Callable[[int], None],
    ) -> None:
        self.main = threading.get_ident()
        #: the row that the main thread runs for the agent
        self.task = task
        #: the root of that row, or of the one that it ran last
        self.root = root
        self.send = send
        #: gives back all rows that have not begun
        self.give_back = give_back
        #: is told which row runs inside the wait of another one, as `CLAIMED_CELL` has it
        self.note_claimed = note_claimed
        #: rows that run inside the wait of another one, innermost last
        self.inline: list[TaskContext] = []
        self.lock = threading.RLock()
        #: what `blocked` was told, without their `unblocked`
        self.waits: set[object] = set()
        #: the row that runs is to leave to others what it waits for next
        self.is_to_yield = False


class _Acting(threading.local):
    """For whom callbacks of futures act that a thread calls."""

    root: int | None = None


_worker: _Worker | None = None
_acting = _Acting()
_surroundings: Mapping[str, Any] | None = None
#: of a process that is no worker: that of the task which has forked it
_root = 0


def install(
    task: Callable[[], TaskContext | None],
    root: Callable[[], int],
    send: Callable[[FromWorker], None],
    give_back: Callable[[], None],
    note_claimed: Callable[[int], None] = lambda cell: None,
) -> None:
    """Make this process a worker whose main thread is the calling one.

    `task` says which row it runs for the agent, `root` that row's root or that of the last one, `send` tells the agent
    something, `give_back` gives it the rows that have not begun, `note_claimed` lets it know what it should if this
    process dies.
    """
    global _worker
    _worker = _Worker(task, root, send, give_back, note_claimed)


def uninstall() -> None:
    """Make this process one like any other: it was forked from a worker."""
    global _worker, _root
    _root, _worker = root(), None


def set_surroundings(surroundings: Mapping[str, Any]) -> None:
    """Keep what the agent said about the cluster, and be what it says: a local cluster's worker has its program's
    `sys.argv` and opens its `multiprocessing.Manager`s, as a child of the program would.
    """
    global _surroundings
    _surroundings = surroundings
    sys.argv[:] = surroundings.get("arguments", sys.argv)
    authkey = surroundings.get("authkey")
    if authkey is not None:
        import multiprocessing  # here, as programs that only connect do without

        multiprocessing.current_process().authkey = authkey


def largest_result() -> int:
    """Return how many bytes one result may take inside a message."""
    return int((_surroundings or {}).get("limit", LARGEST_PAYLOAD))


def largest_exception() -> int:
    """Return how many bytes an exception may take to come back as itself."""
    return error_record.largest_exception(largest_result())


def store() -> str | None:
    """Return the directory of this host's store, or None if it has none."""
    path: str | None = (_surroundings or {}).get("store")
    return path


def inline_limit() -> int:
    """Return how many bytes a value takes that is stored."""
    return int((_surroundings or {}).get("inline", INLINE_LIMIT))


def live_limit() -> int:
    """Return how many bytes of values may stay in this worker."""
    return int((_surroundings or {}).get("live", 0))


def is_logged() -> bool:
    """Say whether the agent puts what tasks print into a log, where it names the task."""
    return bool((_surroundings or {}).get("log_output"))


def surroundings() -> Mapping[str, Any] | None:
    """Return what a client made in this process needs to join the cluster around it, or None outside of workers."""
    return _surroundings


def current() -> TaskContext | None:
    """Return the task that the calling thread runs, or None."""
    worker = _worker
    if worker is None or threading.get_ident() != worker.main:
        return None
    return innermost()


def innermost() -> TaskContext | None:
    """Return the task that the main thread runs, whatever thread asks, or None."""
    worker = _worker
    if worker is None:
        return None
    inline = worker.inline
    return inline[-1] if inline else worker.task()


def root() -> int:
    """Return the root of what any thread of this process submits: that of the task which the main thread runs.

    Between tasks that of the last one, whose threads may go on; in a callback that of who has added it; in a process
    that a task has forked that task's; 0 outside of workers.
    """
    worker = _worker
    if worker is None:
        return _root
    if _acting.root is not None:
        return _acting.root
    inline = worker.inline
    return inline[-1].root if inline else worker.root()


def acting_for(root: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that acts for this root, whatever task runs meanwhile, and return what it does."""
    before, _acting.root = _acting.root, root
    try:
        return function(*args)
    finally:
        _acting.root = before


def is_beside_task() -> bool:
    """Say whether the calling thread is another one of a worker whose main thread runs a task."""
    worker = _worker
    return worker is not None and threading.get_ident() != worker.main and innermost() is not None


def blocked(wait: object) -> None:
    """Tell the agent that this worker waits, from the first of its waits on, each of which is an object of its own.

    Thread-safe; nothing outside of workers.
    """
    _change(lambda waits: waits.add(wait))


def unblocked(wait: object) -> None:
    """This wait has ended, if it was told of; the last one tells the agent."""
    _change(lambda waits: waits.discard(wait))


def note_yield(is_wanted: bool) -> None:
    """The agent says whether the task that runs is to leave what it waits for to others."""
    if _worker is not None:
        _worker.is_to_yield = is_wanted


def take_yield() -> bool:
    """Say whether the task that runs is to leave what it waits for to others; one wait that does so is enough."""
    worker = _worker
    if worker is None or not worker.is_to_yield:
        return False
    worker.is_to_yield = False
    return True


def end_waits() -> None:
    """A row has failed, or all of a dispatch have ended: what was left waiting, in threads or so, holds nothing up.

    Nor does a later one yield for what those were asked to.
    """
    if _worker is not None:
        _worker.is_to_yield = False
        if _worker.waits:
            _change(lambda waits: waits.clear())


def give_back_unbegun() -> None:
    """Give back all rows this worker was handed and has not begun, since the task that runs is going to wait.

    The agent gets a `Returned` that it has not asked for. Does nothing outside of workers.
    """
    if _worker is not None:
        _worker.give_back()


def _change(change: Callable[[set[object]], None]) -> None:
    worker = _worker
    if worker is None:
        return
    with Uninterrupted(), worker.lock:  # no handler leaves the agent with another belief
        waits = worker.waits
        was_waiting = bool(waits)
        change(waits)
        if bool(waits) != was_waiting:
            worker.send(Blocked() if waits else Unblocked())


@contextlib.contextmanager
def entered(task: TaskContext) -> Iterator[None]:
    """Make `task` the current one of the main thread, inside the one that waits there."""
    worker = _worker
    if worker is None:
        yield
        return
    inline = worker.inline
    depth = len(inline) + 1
    inline.append(dataclasses.replace(task, depth=depth))
    worker.note_claimed(task.nesting + 1)
    try:
        yield
    finally:
        del inline[depth - 1 :]
        if worker is _worker:  # else this is a process that the row has forked
            worker.note_claimed(inline[-1].nesting + 1 if inline else 0)
