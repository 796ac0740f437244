"""What is called for one row of each form of batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaler.protocol.codes import GRAPH, SPREAD, TOGETHER
from scaler.serialize.call import AnySerializer, decode_call
from scaler.worker.assignment import Assignment
from scaler.worker.inputs import Failed, Inputs, undecodable


def caller(
    assignment: Assignment, inputs: Inputs, function: Any, serializer: AnySerializer | None
) -> Callable[[int], Any]:
    """Return what calls the function for one row. Raises Failed."""
    run, name, needs = assignment.run, assignment.run.name, assignment.needs
    if run.form == TOGETHER:
        items = inputs.arguments(run)
        if run.flags & SPREAD:
            return lambda row: function(items[row])
        return lambda row: function(*items[row])
    if run.form == GRAPH:

        def entry_of(row: int) -> Any:
            try:
                return function[row]
            except Exception as error:
                raise undecodable("the function", name, error) from None

        first = assignment.next_row()
        if first < assignment.end:  # it may have been taken back
            entry_of(first)  # what its modules take to be imported is no row's time
        return lambda row: entry_of(row).run(inputs.shared_values(needs(row), serializer, name))

    def call(row: int) -> Any:
        try:
            values = inputs.values(needs(row), serializer, name) if run.needs else ()
            args, kwargs = decode_call(assignment.payload(row), values, serializer)
        except Failed:
            raise
        except Exception as error:
            raise undecodable("an argument of", name, error) from None
        return function(*args, **kwargs)

    return call


def failing(failure: Failed) -> Callable[[int], Any]:
    """Return what fails in the place of a call."""

    def call(row: int) -> Any:
        raise Failed(failure.record, failure.lacking, failure.is_doubtful)

    return call
