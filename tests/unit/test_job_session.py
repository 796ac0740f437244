"""Asking about durable jobs, of schedulers that come, go and stand by."""

from collections import deque

import pytest

from scaler.client.jobs import session as sessions
from scaler.client.jobs.session import JobSession
from scaler.errors import HandshakeRefused, JobError, SchedulerStandsBy
from scaler.protocol.messages import JobAnswer

STANDS_BY = SchedulerStandsBy("it stands by for the one at tcp://b:1")


class Schedulers:
    """What each connection in turn comes to: it can't be made, or ends instead of an answer, or is answered."""

    def __init__(self) -> None:
        self.when_connected: deque[Exception | None] = deque()
        self.when_asked: deque[Exception | str] = deque()
        self.connections = 0

    def link(self, *_):
        return Link(self)


class Link:
    def __init__(self, schedulers: Schedulers) -> None:
        self._schedulers = schedulers
        self._asked = []

    def connect(self, timeout: float) -> None:
        self._schedulers.connections += 1
        if error := self._schedulers.when_connected.popleft():
            raise error

    def say(self, message) -> None:
        self._asked.append(message.number)

    def listen(self, take, timeout: float, wakeup: int) -> bool:
        said = self._schedulers.when_asked.popleft()
        if isinstance(said, Exception):
            raise said
        return [take(JobAnswer(number, said, bodies=[b""])) for number in self._asked][-1]

    def drop(self) -> None:
        pass


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> Schedulers:
    made = Schedulers()
    monkeypatch.setattr(sessions, "Link", made.link)
    return made


def test_one_that_stands_by_is_asked_again_by_a_client_that_knows_it(schedulers: Schedulers) -> None:
    schedulers.when_connected += [None, None, STANDS_BY, HandshakeRefused("another version"), None]
    schedulers.when_asked += [STANDS_BY, STANDS_BY, ""]
    JobSession("tcp://a:1", None, 10.0, is_known=True).ask("list")
    assert schedulers.connections == 5


def test_one_that_has_answered_once_is_known(schedulers: Schedulers) -> None:
    schedulers.when_connected += [None, None]
    schedulers.when_asked += ["there is none", STANDS_BY, ""]
    session = JobSession("tcp://a:1", None, 10.0)
    with pytest.raises(JobError, match="there is none"):
        session.ask("list")
    session.ask("list")
    assert schedulers.connections == 2


@pytest.mark.parametrize("where", ["when_connected", "when_asked"])
def test_who_meets_one_that_stands_by_first_is_told_at_once(schedulers: Schedulers, where: str) -> None:
    schedulers.when_connected.append(None)
    getattr(schedulers, where).appendleft(STANDS_BY)
    with pytest.raises(SchedulerStandsBy):
        JobSession("tcp://a:1", None, 10.0).ask("list")
    assert schedulers.connections == 1
