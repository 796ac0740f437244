"""Submitting graphs: they are planned, sent, and each key that is wanted has its future."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from scaler.client.core.options import Options
from scaler.client.future import Future
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.client.submitting.graph_batches import GraphBatches
from scaler.client.submitting.submission import Submission
from scaler.client.submitting.templates import Templates
from scaler.client.waiting.owner import ClientOwner
from scaler.graph import Node, Order, RemoteValue, itself, plan


class Graphs:
    """Of one client and all its views. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        owner: ClientOwner,
        templates: Templates,
        submission: Submission,
        batches: GraphBatches,
    ) -> None:
        self._driver = driver
        self._liveness = liveness
        self._owner = owner
        self._templates = templates
        self._submission = submission
        self._batches = batches

    def submit(
        self,
        nodes: Mapping[Any, Node],
        keys: Sequence[Any],
        order: Order | None,
        changes: Mapping[Any, Mapping[str, Any]],
        options: Options,
    ) -> list[Future]:
        """The futures of these keys; `options`, with the `changes` for some keys, hold for their tasks.

        Blocks and raises like `Client.submit_nodes`.
        """
        self._liveness.check()
        options = self._templates.rooted(options)
        changed = _options_by_key(changes, options)
        workers: int | None = self._driver.session.workers or None
        # calls that end or run again by themselves stay by themselves
        lone: Container[Any] = {key for key, its in changed.items() if its.timeout or its.retries}
        if options.timeout or options.retries:
            workers, lone = None, nodes
        if options.threads:
            workers = None  # fewer rows run at a time than there are workers
        made = plan(nodes, keys, order, workers=workers, options=changed, lone=lone)
        for value in made.shared:
            if isinstance(value, RemoteValue):
                self._owner.check_own(value)
        by_row = {row: Future(self._owner) for row in dict.fromkeys(made.rows_of_keys.values())}
        futures = [
            by_row[made.rows_of_keys[key]]
            if key in made.rows_of_keys
            else self._future_of(made.constants[key], options)
            for key in keys
        ]
        if made.runs:
            # now: calls with these futures may be queued next, and go before events that are
            self._driver.flush(*self._batches.events_of(made, by_row, options))
            self._driver.check_sent()
        return futures

    def _future_of(self, value: Any, options: Options) -> Future:
        """A future of a constant, or of what stands for a value."""
        if isinstance(value, RemoteValue):
            self._owner.check_own(value)
            if isinstance(value, Future):
                return value
            return self._submission.submit(self._templates.of(itself, options), (value,), None)
        future = Future(self._owner)
        future.fulfil_given(value)
        return future


def _options_by_key(changes: Mapping[Any, Mapping[str, Any]], options: Options) -> dict[Any, Options]:
    """The options of the keys that have changes; each of the different changes is looked at once."""
    made: dict[tuple[tuple[str, str], ...], Options] = {}
    found = {}
    for key, changed in changes.items():
        name = tuple((option, repr(value)) for option, value in changed.items())
        if name not in made:
            made[name] = options.changed(**changed)
        found[key] = made[name]
    return found
