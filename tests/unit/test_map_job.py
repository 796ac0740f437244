"""The results of a map as they come in, without a connection."""

import pickle
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from simulator.scripted import task

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.map_job import MapBlock, MapJob
from scaler.protocol.messages import CANCELLED, ERROR, SIZE, STORED, VALUES_EACH, VALUES_LIST, u32
from scaler.protocol.results import SpanResult
from scaler.serialize.record import exception_record


class Map:
    """A map of so many rows, whose scheduler is the test."""

    def __init__(self, rows: int) -> None:
        self.released: list[int] = []
        self.told: list[Any] = []
        driver = SimpleNamespace(release=self.released.append, tell=self.told.append)
        #: values in stores, by the id of their row
        self.stored: dict[int, Any] = {}
        stored_results = SimpleNamespace(add=lambda row_id, size, name: self.stored[row_id])
        nested_waits: Any = SimpleNamespace(
            wait=lambda token, is_done, timeout: timeout, lend_slot=lambda: lambda: None
        )
        self.job = MapJob(rows, driver, ValueCodec(None), stored_results, nested_waits)  # type: ignore[arg-type]

    def block(self, start: int, size: int, arguments: int = 0) -> MapBlock:
        """Send rows together, as batch `start + 100`."""
        return self.job.add_block(start, size, arguments)

    @property
    def cancelled(self) -> list[Any]:
        """What was cancelled, each time."""
        return [event.tokens for event in self.told if isinstance(event, ev.Cancel)]


def end(block: MapBlock, lo: int, hi: int, outcome: int = VALUES_LIST, body: bytes | None = None) -> None:
    """Rows of a block end; unless it is said otherwise with their numbers in the map."""
    if body is None:
        body = pickle.dumps(list(range(block.start + lo, block.start + hi)), 5)
    block.deliver(SpanResult(block.start + 100, lo, hi, outcome, 0, 0, u32([len(body)]), body), task(1, block.size))


def test_results_are_in_order_whatever_order_they_come_in() -> None:
    made = Map(6)
    first, second = made.block(0, 4), made.block(4, 2)
    end(second, 0, 2)
    end(first, 2, 4)
    end(first, 0, 2)
    assert made.job.results(0) == list(range(6))
    assert made.cancelled == []


def test_a_row_by_itself_brings_its_result_as_a_future() -> None:
    made = Map(3)
    end(made.block(0, 2), 0, 2)
    future = Future(Mock())
    made.job.add_row(2, future)
    future.fulfil("third")
    assert made.job.results(0) == [0, 1, "third"]


def test_the_first_row_that_failed_is_raised_and_the_rest_is_not_wanted() -> None:
    made = Map(6)
    first, second, third = made.block(0, 2), made.block(2, 2), made.block(4, 2)
    end(first, 0, 2)
    end(second, 1, 2, ERROR, exception_record(KeyError("second"), "f"))
    end(second, 0, 1, ERROR, exception_record(ValueError("first"), "f"))
    with pytest.raises(ValueError, match="first"):
        made.job.results(0)
    assert made.cancelled == [[third]]


def test_results_are_given_as_they_come_and_kept_no_longer() -> None:
    made = Map(3)
    block = made.block(0, 3)
    end(block, 0, 1, VALUES_EACH, pickle.dumps(["a"]))
    results = made.job.iterate(20)
    assert next(results) == ["a"]
    assert made.job._values == [None] * 3
    timer = threading.Timer(0.05, end, [block, 1, 3])
    timer.start()
    assert list(results) == [1, 2]
    timer.join()


def test_a_map_that_is_not_read_to_its_end_is_cancelled() -> None:
    made = Map(2)
    block = made.block(0, 2)
    end(block, 0, 1)
    results = made.job.iterate()
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert made.cancelled == [[block]]


def test_a_map_that_is_late_says_how_many_rows_are_missing() -> None:
    made = Map(5)
    end(made.block(0, 3), 0, 1)
    made.job.add_row(3, Future(Mock()))
    made.block(4, 1)
    with pytest.raises(TimeoutError, match="4 rows are missing"):
        made.job.results(0.01)


def test_values_in_stores_are_loaded_when_they_are_asked_for() -> None:
    made = Map(2)
    block = made.block(0, 2)
    made.stored = {100: Mock(load=Mock(return_value="large")), 101: Mock(load=Mock(side_effect=OSError("gone")))}
    end(block, 0, 2, STORED, SIZE.pack(200_000) * 2)
    results = made.job.iterate()
    assert next(results) == "large"
    with pytest.raises(OSError, match="gone"):
        next(results)
    assert made.job._stored == {}


@pytest.mark.parametrize("how", ["values", "errors", "cancelled", "lost"])
def test_stored_arguments_are_released_when_all_rows_that_need_them_have_ended(how: str) -> None:
    made = Map(4)
    block = made.block(0, 4, arguments=7)
    end(block, 0, 2)
    assert made.released == [], "a row that is claimed may need them"
    if how == "lost":
        block.fail(ConnectionError("the scheduler is gone"))
        assert made.job._missing() == 0
    elif how == "errors":
        for row in (2, 3):
            end(block, row, row + 1, ERROR, exception_record(ValueError(), "f"))
    elif how == "cancelled":
        end(block, 2, 4, CANCELLED, b"")
    else:
        end(block, 2, 4)
    assert made.released == [7]
    made.job.wait()


def test_a_list_that_is_too_short_fails_its_rows_and_nobody_waits() -> None:
    made = Map(3)
    end(made.block(0, 3), 0, 3, VALUES_LIST, pickle.dumps([1], 5))
    with pytest.raises(Exception, match="3 rows"):
        made.job.results(0)
