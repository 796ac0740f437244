"""Results, and values that rows need, go in as many messages as they take, however small those have to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from simulator.scripted import FakeAgent, FakeScheduler, as_heard, graph, result, task

from scaler.protocol.messages import VALUES_EACH, VALUES_LIST, Task, TaskResult, u32
from scaler.protocol.results import SpanResult, parts_within, spans_of, values_of

LIMIT = 1 << 16


def each(batch: int, lo: int, *values: bytes) -> SpanResult:
    """Rows with a payload for each."""
    return SpanResult(batch, lo, lo + len(values), VALUES_EACH, 100, 0, u32(map(len, values)), b"".join(values))


def rows_in(messages: list[TaskResult]) -> int:
    """How many rows these tell of."""
    return sum(span.hi - span.lo for message in messages for span in spans_of(message))


def test_a_span_is_parted_as_far_as_its_rows_can_be() -> None:
    whole = each(10, 4, b"a" * 30, b"b" * 30, b"c" * 90, b"d")
    parts = parts_within(whole, 60)
    assert [(part.lo, part.hi) for part in parts] == [(4, 6), (6, 7), (7, 8)]
    assert [bytes(value) for part in parts for value in values_of(part)] == [b"a" * 30, b"b" * 30, b"c" * 90, b"d"]
    assert [part.duration for part in parts] == [50, 25, 25]
    listed = result(10, 0, 100)
    assert [(part.lo, part.hi) for part in parts_within(listed, len(listed.body) - 1)] == [(0, 50), (50, 100)]
    none = SpanResult(10, 0, 2, VALUES_LIST, 0, 0, u32([9]), b"no list!!")
    assert parts_within(none, 5) == [none]


def many_results(give: Callable[..., None]) -> None:
    give(each(10, 0, *[b"v" * 30_000] * 10), each(20, 0, b"w" * 60_000), each(30, 0, b"x" * 60_000))


def test_an_agent_says_results_in_messages_that_fit() -> None:
    fake = FakeAgent(message=LIMIT)
    out = fake.core.out
    many_results(lambda *ended: [out.result(7, span) for span in ended])
    messages = [cast("TaskResult", effect.message) for effect in out.flush()]  # type: ignore[union-attr]
    assert all(len(message.bodies[0]) <= LIMIT for message in messages)
    assert rows_in(messages) == 12
    again = fake.core.state.unsettled.say_again({}, (), LIMIT)
    assert all(len(message.bodies[0]) <= LIMIT for message in again)
    assert rows_in(again) == 12


@pytest.mark.parametrize("together", [True, False])
def test_a_scheduler_tells_results_in_messages_that_fit(together: bool) -> None:
    fake = FakeScheduler(max_message_bytes=LIMIT)
    client, agent = fake.client(), fake.agent(12)
    fake.say(client, task(10, 10), task(20, 1), task(30, 1))
    assert fake.holds(agent) == 12
    if together:
        many_results(lambda *ended: fake.report(agent, client, *ended))
    else:
        many_results(lambda *ended: [fake.report(agent, client, span) for span in ended])
    messages = fake.heard(client, TaskResult)
    assert all(len(message.bodies[0]) <= LIMIT for message in messages)
    assert rows_in(messages) == 12
    assert not fake.core.state.clients[client].batches


def test_values_that_fit_no_message_together_go_before_the_rows_that_need_them() -> None:
    fake = FakeScheduler(max_message_bytes=LIMIT)
    client, agent = fake.client(), fake.agent(4)
    fake.say(client, graph(10, [[], [], [], [0, 1, 2]], [3]))
    (given,) = fake.heard(agent, Task)
    assert list(given.spans) == [0, 3]
    fake.report(agent, client, *[each(10, row, b"v" * 40_000) for row in range(3)])
    messages = fake.heard(agent, Task)
    assert [list(message.spans) for message in messages] == [[], [], [], [3, 4]]
    assert [list(message.objects) for message in messages] == [[10], [11], [12], []]
    assert all(sum(map(len, message.bodies)) <= LIMIT for message in messages)
    host = FakeAgent(4)
    for message in (given, *messages):
        host.tell(as_heard(message))
    assert host.core.state.running == 4
    assert {value for _, value in host.core.state.objects.inline} == {10, 11, 12, 2_000_010}
