"""Sending a map: many rows in few blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.options import Options
from scaler.client.core.task_template import TaskTemplate, check_size
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.client.submitting.block_sizes import BlockSizes
from scaler.client.submitting.shared_arguments import SharedArguments
from scaler.client.submitting.submission import Submission
from scaler.client.submitting.templates import Templates
from scaler.client.values.uploads import Uploads
from scaler.client.waiting.map_job import MapJob
from scaler.common.interrupts import Uninterrupted
from scaler.errors import SerializationError
from scaler.protocol.messages import INLINE_LIMIT, SPREAD, TOGETHER, u64
from scaler.serialize.outofband import Packed, joined, pack, pack_large

#: blocks for each worker, so that the fast ones can take more
BLOCKS_PER_WORKER = 4
#: rows in a block, at most
BLOCK_ROWS = 100_000


def items_of(iterables: Sequence[Iterable[Any]]) -> Sequence[Any]:
    """An item for each call of `Client.map`: its arguments, if it is a tuple, or the only one. Nobody changes them."""
    if not iterables:
        raise TypeError("map() needs at least one iterable")
    if len(iterables) > 1:
        return list(zip(*iterables, strict=False))
    items: Any = iterables[0]
    return items if type(items) in (range, tuple) else list(items)


def argument_rows(items: Iterable[Any]) -> tuple[list[Any], bool]:
    """Items of a map as they are sent, and whether they are the arguments themselves (else tuples of arguments)."""
    rows = list(items)
    types = set(map(type, rows))
    if tuple not in types:
        return rows, True
    return rows if len(types) == 1 else list(map(_arguments, rows)), False


def _arguments(item: Any) -> tuple[Any, ...]:
    return item if type(item) is tuple else (item,)


class MapSender:
    """Of one client and all its views. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        uploads: Uploads,
        templates: Templates,
        submission: Submission,
        new_job: Callable[[int], MapJob],
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._uploads = uploads
        self._templates = templates
        self._submission = submission
        #: what collects the results of a map of so many rows
        self._new_job = new_job

    def send(
        self,
        function: Callable[..., Any],
        options: Options,
        items: Sequence[Any],
        spread: bool | None = None,
        least_together: int = 1,
        fails_apart: bool = False,
    ) -> MapJob:
        """Send the items of a map, each the only argument (`spread`) or a tuple of arguments, by default what it looks
        like; returns what collects the results.

        At least `least_together` items travel as one task; one that can't be pickled `fails_apart`, or all with it.
        Blocks only while large items are written to a store. Raises like `Client.submit`.
        """
        self._liveness.check()
        template = self._templates.of(function, options)
        job = self._new_job(len(items))
        workers = max(1, self._driver.session.workers)
        most = max(least_together, min(BLOCK_ROWS, -(-len(items) // (BLOCKS_PER_WORKER * workers))))
        try:
            sent = 0
            if self._submission.is_pickling:
                sent = self._send_blocks(job, template, items, spread, least_together, most, fails_apart)
            # The rest row by row: a custom serializer wants that, references among the items need it, and what can't
            # be pickled is named.
            for row, item in enumerate(items[sent:], sent):
                self._send_row(job, template, row, (item,) if spread else _arguments(item), fails_apart)
        except BaseException as error:
            job.cancel(force=isinstance(error, KeyboardInterrupt))
            raise
        return job

    def _send_row(
        self, job: MapJob, template: TaskTemplate, row: int, args: tuple[Any, ...], fails_apart: bool
    ) -> None:
        try:
            future = self._submission.submit(template, args, None)
        except SerializationError as error:
            if not fails_apart:
                raise
            future = self._submission.failed(error)
        job.add_row(row, future)

    def _send_blocks(
        self,
        job: MapJob,
        template: TaskTemplate,
        items: Sequence[Any],
        spread: bool | None,
        least: int,
        most: int,
        fails_apart: bool,
    ) -> int:
        """Send rows in blocks of `least` to `most`; how many, all unless something can't be pickled.

        All that is to be done for an item is done block by block: workers begin with the first one meanwhile. Where a
        block would be as large as `INLINE_LIMIT` for each of its rows, for arguments that other rows have as well, it
        is cheaper to write these once and to send its rows by themselves.
        """
        shared: SharedArguments | None = None  # not looked for yet
        start, sizes = 0, BlockSizes(least, most)
        while start < len(items):
            some = items[start : start + sizes.rows]
            block, is_spread = argument_rows(some) if spread is None else (list(some), spread)
            try:
                payload = pack_large(block, INLINE_LIMIT)
                if shared is None and isinstance(payload, Packed) and payload.size >= INLINE_LIMIT * len(block):
                    shared = SharedArguments(items, spread, self._uploads, template.captured.name)
            except SerializationError:
                return start
            if isinstance(payload, bytes):
                sizes.fits(len(block), len(payload))
                self._send(job, template, start, len(block), payload, is_spread)
            elif shared is not None and shared.are_in(block, is_spread):
                for row, item in enumerate(block, start):
                    args = shared.in_row((item,) if is_spread else item)
                    self._send_row(job, template, row, args, fails_apart)
            elif sizes.fits(len(block), payload.size):
                self._send_large(job, template, start, block, payload, is_spread)
            else:
                continue
            start += len(block)
        return len(items)

    def _send_large(
        self, job: MapJob, template: TaskTemplate, start: int, items: list[Any], packed: Packed, spread: bool
    ) -> None:
        what = f"a block of {len(items):,} arguments of {template.captured.name}"
        arguments = self._uploads.store(items, packed, pack, what)
        if arguments is None:
            self._send(job, template, start, len(items), joined(packed, items), spread)
        else:
            self._send(job, template, start, len(items), None, spread, arguments)

    def _send(
        self,
        job: MapJob,
        template: TaskTemplate,
        start: int,
        rows: int,
        payload: bytes | None,
        spread: bool,
        arguments: int = 0,
    ) -> None:
        """Send a block with its arguments, or with the id of the object that they are stored in."""
        driver = self._driver
        if payload is not None:
            check_size(len(payload), driver.welcome.limit, f"a block of arguments of {template.captured.name}")
        with Uninterrupted(), driver.lock:  # a function that has an id is sent
            driver.announce(template)
            task = template.task(driver.take_ids(rows), rows, TOGETHER)
            task.flags |= SPREAD if spread else 0
            task.arguments = arguments or driver.take_ids(1)
            if payload is not None:
                task.objects = u64([task.arguments])
                task.bodies = [payload]
            block = job.add_block(start, rows, arguments)
            driver.tell(ev.Submit(task, [block], whole=True, template=template))
        driver.check_sent()
