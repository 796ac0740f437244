"""How fast objects come to an agent."""

import pytest
from simulator.scripted import FakeAgent

from scaler.agent.core import events as ev
from scaler.agent.state.bandwidth import ENOUGH, MUCH, Bandwidth
from scaler.protocol.messages import Heartbeat, Neighbours, u32

MB = 1 << 20


def test_it_is_the_bytes_by_the_time_while_any_were_on_their_way() -> None:
    known = Bandwidth()
    known.begin(10.0)
    known.begin(10.5)
    known.end(11.0, 10 * MB)
    assert known.learnt == 0.0
    known.end(12.0, 30 * MB)
    assert known.learnt == 20 * MB
    known.begin(50.0)
    known.end(51.0, 10 * MB)
    assert known.learnt == pytest.approx(17 * MB), "an average that follows"


def test_much_is_counted_while_more_is_on_its_way() -> None:
    known = Bandwidth()
    known.begin(0.0)
    known.begin(0.0)
    known.end(2.0, MUCH)
    assert known.learnt == MUCH / 2


@pytest.mark.parametrize(("seconds", "size"), [(1.0, 0), (1.0, ENOUGH - 1), (0.0, MUCH)])
def test_little_or_what_took_no_time_tells_nothing(seconds: float, size: int) -> None:
    known = Bandwidth()
    known.begin(1.0)
    known.end(1.0 + seconds, size)
    assert known.learnt == 0.0


@pytest.mark.parametrize("error", [None, "nobody has it"])
def test_an_agent_tells_with_its_heartbeats(error: str | None) -> None:
    fake = FakeAgent(1)
    fake.tell(Neighbours(u32([9]), ("tcp://there:1",)))
    fake.give_dependents(30, [[5]], holders=[9], size=8 * MB)
    (key,) = fake.asked(ev.Fetch)
    fake.now += 0.5
    fake.handle(ev.Fetched(key, error))
    fake.now += 2.0
    fake.handle(ev.Tick())
    assert fake.heard(Heartbeat)[-1].bandwidth == (0.0 if error else 16 * MB)
    assert not any(record.state == "fetching" for record in fake.core.state.objects.records.values())
