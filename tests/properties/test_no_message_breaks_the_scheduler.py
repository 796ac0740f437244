"""Whatever well-formed message a peer sends, the scheduler goes on; at worst that peer is thrown out."""

from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import checks
from simulator.random_messages import strategy_of
from simulator.scripted import FakeScheduler, some_work
from simulator.world import World

from scaler.protocol import messages as m
from scaler.protocol.codec import MESSAGE_CLASSES

SENT = [cls for cls in MESSAGE_CLASSES if cls is not m.ClientShutdown]


def small(message: Any) -> Any:
    """Ids as the peers' own, so that the message is about something."""
    for name in ("client", "batch", "function", "arguments"):
        if hasattr(message, name):
            setattr(message, name, getattr(message, name) % 24)
    for name in ("batches", "ids", "dependencies", "objects", "clients"):
        column = getattr(message, name, None)
        for i in range(len(column) if isinstance(column, array) else 0):
            column[i] %= 24
    return message


@settings(max_examples=4 * settings().max_examples)
@given(
    said=st.lists(st.tuples(st.booleans(), st.sampled_from(SENT).flatmap(strategy_of)), min_size=1, max_size=6),
    order=st.permutations(range(4)),
)
def test_no_message_breaks_the_scheduler(said: list[tuple[bool, Any]], order: list[int]) -> None:
    fake = FakeScheduler(1)
    (agent,) = fake.agents
    client, other = fake.client("/store"), fake.client()
    for number in (client, other):
        fake.say(number, *some_work())
    for by_agent, message in said:
        fake.say(agent if by_agent else client, small(message))
        checks.check_scheduler(World(0), fake.core)
    # the other one's work goes on, with an agent that behaves
    decent = fake.agent(8)
    fake.lose(agent)
    for _ in range(10):
        fake.end_all(decent, other, m.VALUES_EACH)
    left = [batch for batch in fake.core.state.clients[other].batches.values() if batch.id in (10, 14, 18)]
    assert not left
