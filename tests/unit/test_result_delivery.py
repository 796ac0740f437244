"""Rows that ended, told to what stands for them."""

from unittest.mock import Mock

import pytest

from scaler.client.values.claimed_rows import RowRelay
from scaler.client.values.delivery import ResultDelivery
from scaler.client.waiting.map_job import MapBlock, MapJob
from scaler.errors import ProtocolError
from scaler.protocol.messages import ERROR, VALUES_LIST, u32
from scaler.protocol.results import SpanResult
from scaler.serialize import payload
from scaler.serialize.record import exception_record

TASK = Mock(flags=0)
TASK.name = "f"


class MapOfFour:
    """A map whose rows 1 to 3 were taken out of their block and sent again, as the rows of batch 50."""

    def __init__(self) -> None:
        codec = Mock(load=payload.loads)
        self.job = MapJob(4, Mock(), codec, Mock(), Mock())
        self.block: MapBlock = self.job.add_block(0, 4)
        self.relays = [RowRelay(self.block, row) for row in (1, 2, 3)]
        self.delivery = ResultDelivery(codec, Mock())
        self.delivery.deliver([self.block], self._span(7, 0, [0]), TASK)

    @staticmethod
    def _span(batch: int, lo: int, values: list[object]) -> SpanResult:
        body = payload.dumps(values)
        return SpanResult(batch, lo, lo + len(values), VALUES_LIST, 0, 0, u32([len(body)]), body)

    def end(self, values: object) -> None:
        """The rows of batch 50 end together."""
        body = payload.dumps(values)
        span = SpanResult(50, 0, len(self.relays), VALUES_LIST, 0, 0, u32([len(body)]), body)
        self.delivery.deliver(self.relays, span, TASK)


def test_rows_of_a_map_that_were_sent_again_and_end_together_are_told_one_by_one() -> None:
    made = MapOfFour()
    made.end([10, "twenty", 30.5])
    assert made.job.results() == [0, 10, "twenty", 30.5]


def test_one_that_fails_is_the_only_one() -> None:
    made = MapOfFour()
    record = exception_record(KeyError("mine"), "f", 1000)
    made.delivery.deliver(made.relays[1:2], SpanResult(50, 1, 2, ERROR, 0, 0, u32([len(record)]), record), TASK)
    made.delivery.deliver(made.relays[:1], made._span(50, 0, [1]), TASK)
    made.delivery.deliver(made.relays[2:], made._span(50, 2, [3]), TASK)
    assert not made.block.left
    with pytest.raises(KeyError, match="mine"):
        made.job.results()


def test_a_list_that_is_none_fails_all_of_them_and_what_comes_later_is_no_harm() -> None:
    made = MapOfFour()
    made.end(5)
    made.delivery.deliver(made.relays[:1], made._span(50, 0, [1]), TASK)
    assert made.block.left == 0
    with pytest.raises(ProtocolError):
        made.job.results()


def test_a_map_that_is_not_wanted_any_more_cancels_what_was_sent_again_too() -> None:
    made = MapOfFour()
    made.block.moved += made.relays
    made.job.cancel()
    ((event,), _) = made.job._driver.tell.call_args
    assert event.tokens == [made.block, *made.relays]
