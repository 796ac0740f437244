"""The results of an `Executor.map` of few items, whose rows are sent one by one, in order."""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from scaler.client import Client, Future
from scaler.executor.worker_calls import item_of
from scaler.extension import MapJob, abandon, kept_for_note, note_item, take_result


def in_order(
    client: Client,
    submit: Callable[..., Future],
    rows: Iterator[tuple[Any, ...]],
    deadline: float | None,
    ahead: int | None,
    is_chunked: bool = False,
) -> Iterator[Any]:
    """Submit rows, at once or only so many (`ahead`) before the results that were taken; what yields these.

    What has not begun when that ends early is cancelled, after Ctrl-C also what runs. Raises TimeoutError after
    `deadline` (of `time.monotonic`).
    An error has a note of its item, unless workers see to that: `is_chunked`.
    """
    first = collections.deque(itertools.islice(rows, ahead))
    futures: collections.deque[Future] = collections.deque()
    #: what is noted of the arguments of those
    arguments: collections.deque[tuple[Any, ...]] = collections.deque()

    def send(row: tuple[Any, ...]) -> None:
        futures.append(submit(*row))
        if not is_chunked:
            arguments.append(tuple([kept_for_note(item) for item in row]))

    while first:
        send(first.popleft())  # whatever is large is in the cluster then, and need not be here as well

    def results() -> Iterator[Any]:
        taken = 0
        try:
            while futures:
                row = next(rows, None)
                if row is not None:
                    send(row)
                del row
                yield _first_of(futures, arguments, taken, deadline)
                taken += 1
        except KeyboardInterrupt:
            abandon(client, futures)
            raise
        finally:
            unfinished = [future for future in futures if not future.done()]
            if unfinished and not client.closed:
                client.cancel(unfinished)

    return results()


def _first_of(
    futures: collections.deque[Future],
    arguments: collections.deque[tuple[Any, ...]],
    taken: int,
    deadline: float | None,
) -> Any:
    """Return the first future's result, and take it out. Nothing keeps it, as a variable of a generator would."""
    try:
        result = take_result(futures[0], None if deadline is None else max(0.0, deadline - time.monotonic()))
    except Exception as error:
        if futures[0].done():  # else it is late
            if arguments:
                note_item(error, taken, item_of(arguments[0]))
            futures.popleft()  # it has the error, which has this frame
        raise
    futures.popleft()
    if arguments:
        arguments.popleft()
    return result


def given_up(items: list[Any], single: bool) -> Iterator[tuple[Any, ...]]:
    """Yield items as rows of arguments, and keep none that was yielded: the list gets empty. `single`: one an item."""
    items.reverse()
    while items:
        yield (items.pop(),) if single else items.pop()


def rest_of(job: MapJob, items: list[Any], deadline: float | None) -> Iterator[Any]:
    """Yield the results of items that were sent in blocks."""
    yield from job.iterate(None if deadline is None else max(0.0, deadline - time.monotonic()), items)


def failing(error: BaseException) -> Iterator[Any]:
    """Yield nothing: raise this where the first result would be."""
    yield from ()
    raise error


def chunked(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[list[tuple[Any, ...]], int]]:
    """Yield rows in lists of a length, each with the number of its first one: the arguments of `call_each`."""
    first = 0
    while chunk := list(itertools.islice(rows, size)):
        yield chunk, first
        first += len(chunk)


def flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    """Yield the items of lists, and keep none that was yielded."""
    for chunk in chunks:
        chunk.reverse()
        while chunk:
            yield chunk.pop()
