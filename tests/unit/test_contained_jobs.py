"""A defect of durable jobs ends them, and nothing else."""

from random import Random

import pytest
from simulator.scripted import task
from support.enemies import jobs
from support.enemies.jobs import UNTIL_LOST, Peer, Server, end_all, submission

from scaler.protocol import messages as m
from scaler.scheduler.jobs import at_core
from scaler.scheduler.jobs.keeper import JobKeeper


class Shop:
    """A scheduler with durable jobs, an agent, a client, and somebody with a job."""

    def __init__(self) -> None:
        self.server = Server()
        self.agent, self.client, self.user = (Peer(self.server, role, 2) for role in ("agent", "client", "monitor"))
        for number, key in enumerate(("0", "1"), 1):
            self.user.say(submission(key, number, is_last=key == "1"))
        self.server.wait(0.1, is_synced=True)
        self.server.wait(0.1, is_synced=True)

    def answers(self) -> list[m.JobAnswer]:
        heard, self.user.heard = self.user.heard, []
        return [each for each in heard if isinstance(each, m.JobAnswer)]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(jobs, "StrictKeeper", JobKeeper)
    return Shop()


def test_a_defect_of_durable_jobs_costs_them_and_nobody_else(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client, user = shop.server, shop.client, shop.user
    assert [answer.error for answer in shop.answers()] == ["", ""]
    job = max(server.core.state.clients)
    user.say(m.JobQuestion(7, "ordered", "decent", wait=30.0))
    assert shop.answers() == [], "it waits"

    def fail(*arguments: object) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(at_core, "hear", fail)
    end_all(server, shop.agent, Random(0))
    (answer,) = shop.answers()
    assert answer.number == 7
    assert answer.error == ("durable jobs met a defect of the scheduler (KeyError: 'defect'), whose log says more")
    assert job not in server.core.state.clients, "its rows are of no use to anybody"
    (said,) = [line for line in server.log if "a defect of the scheduler, met by durable jobs" in line]
    assert "KeyError: 'defect'" in said
    assert server.keeper.wake is None
    user.say(m.JobQuestion(8, "list"))
    assert [(each.number, each.error) for each in shop.answers()] == [(8, answer.error)]
    client.say(m.ObjectAnnounce(m.u64([1]), m.u8([0]), [b"function"]))
    client.say(task(10, 4))
    end_all(server, shop.agent, Random(0))
    assert any(isinstance(each, m.TaskResult) for each in client.heard)


def test_the_next_scheduler_goes_on_with_them(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(at_core, "hear", lambda *arguments: 1 / 0)
        end_all(shop.server, shop.agent, Random(0))
        assert not shop.server.keeper.wake
    shop.server.start()
    for peer in (shop.agent, shop.user):
        peer.connect()
    for _ in range(12):
        shop.server.wait(UNTIL_LOST / 6, is_synced=True)
        shop.agent.say(m.Heartbeat(shop.server.now, 2))
        end_all(shop.server, shop.agent, Random(0))
    shop.server.wait(1.0, is_synced=True)
    shop.user.heard.clear()
    shop.user.say(m.JobQuestion(9, "state", "decent"))
    (answer,) = shop.answers()
    assert '"state": "done"' in answer.text
