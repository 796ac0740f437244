"""What adapters do with clients and futures beyond what users of these do. Any thread may call the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from scaler.client import Client, Future
from scaler.client.client import parts_of
from scaler.client.core.task_template import TaskTemplate
from scaler.client.waiting.map_job import MapJob

if TYPE_CHECKING:
    from scaler.client.jobs.calls import DurableCalls


def capture_function(client: Client, function: Callable[..., Any]) -> TaskTemplate:
    """A function as it is now, for many calls of `submit_call` in its place. Blocks and raises like `Client.submit`."""
    parts, options = parts_of(client)
    return parts.templates.of(function, options)


def submit_call(
    client: Client, function: Callable[..., Any] | TaskTemplate, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Future:
    """`Client.submit` for adapters: all keywords are the function's.

    Arguments that it can't be called with are the task's failure, as in the standard executors. Otherwise blocks and
    raises like `Client.submit`.
    """
    parts, options = parts_of(client)
    template = function if type(function) is TaskTemplate else parts.templates.of(cast("Any", function), options)
    return parts.submission.submit(template, args, kwargs)


def failed_call(client: Client, error: BaseException) -> Future:
    """The future of a call that was not sent, since `submit_call` has raised this."""
    return parts_of(client)[0].submission.failed(error)


def submit_map(
    client: Client,
    function: Callable[..., Any],
    items: list[Any],
    spread: bool,
    least_together: int = 1,
    fails_apart: bool = False,
) -> MapJob:
    """Send the items of a map, each the only argument (`spread`) or a tuple of arguments: what collects the results.

    At least `least_together` items travel as one task; one that can't be pickled `fails_apart`, or this raises.
    `MapJob.iterate(timeout)` yields the results in order as they come, `results(timeout)` is all of them, `wait()`
    blocks until all have ended, `cancel()` takes back what has not begun. Blocks only while large items are written to
    a store. Raises like `Client.submit`.
    """
    parts, options = parts_of(client)
    return parts.maps.send(function, options, items, spread, least_together, fails_apart)


def durable_calls(client: Client, name: str) -> DurableCalls:
    """Calls that are added to the durable job of this name one by one, each with a standard future.

    `submit(function, args, kwargs)` adds one, `map(function, rows)` many; those that the job has from another run are
    not made again. `close(wait)` ends that. Blocks until the scheduler has answered. Raises `JobError`.
    """
    from scaler.client.jobs import calls  # here, as few want it and all would load it

    parts, options = parts_of(client)
    return calls.durable_calls(parts, options, name)


def fail_future(future: Future, error: BaseException) -> None:
    """End a future with this error, unless it has ended; the task is not taken back, and its result is dropped.

    Does not block, but calls the future's callbacks.
    """
    future.fail(error)


def with_warnings_kept(client: Client) -> Client:
    """A view of a client: warnings that its tasks issue are kept for `issue_warnings`, not logged by their workers."""
    return client.with_options(pass_warnings=True)


def issue_warnings(client: Client) -> None:
    """Issue, in the calling thread, the warnings that have come from tasks of `with_warnings_kept` since the last call.

    All that a task has issued is there when its result is. Does not block. Raises the warnings that the thread's
    filters make errors.
    """
    parts, _ = parts_of(client)
    parts.task_warnings.issue()
