"""Who is not welcomed has seconds, and makes room for others; the log hears of it once a minute."""

import logging

import pytest

from scaler.transport.lobby import GRACE, MOST_WAITING, PATIENCE, Lobby
from scaler.transport.notices import INTERVAL, Notices


def test_who_is_not_welcomed_has_to_go_after_seconds() -> None:
    lobby = Lobby()
    lobby.enter(1, "a", 0.0)
    lobby.enter(2, "b", 1.0)
    assert lobby.wake(1.0) == PATIENCE
    assert lobby.overdue(PATIENCE - 0.1) == []
    assert lobby.overdue(PATIENCE) == [1]
    assert lobby.leave(1) == "a"
    assert lobby.wake(PATIENCE) == 1.0 + PATIENCE


def test_who_was_welcomed_stays() -> None:
    lobby = Lobby()
    lobby.enter(1, "a", 0.0)
    lobby.leave(1)
    assert lobby.overdue(2 * PATIENCE) == []
    assert lobby.wake(0.0) is None
    assert lobby.leave(1) is None


def test_too_many_of_one_address_go_as_soon_as_they_had_grace_and_others_stay() -> None:
    lobby = Lobby()
    lobby.enter(0, "elsewhere", 0.0)
    for number in range(1, MOST_WAITING + 4):
        lobby.enter(number, "here", 0.0)
    assert lobby.is_crowded("here")
    assert not lobby.is_crowded("elsewhere")
    assert lobby.overdue(GRACE / 2) == []
    assert lobby.wake(GRACE / 2) == pytest.approx(GRACE * 1.5)
    assert lobby.overdue(GRACE) == [1, 2, 3]


def test_who_came_first_makes_room_once_it_had_grace() -> None:
    lobby = Lobby()
    assert lobby.oldest(0.0) is None
    lobby.enter(7, "a", 0.0)
    lobby.enter(3, "a", GRACE / 2)
    assert lobby.oldest(GRACE / 2) is None
    assert lobby.oldest(GRACE) == 7
    assert lobby.oldest(0.0, grace=0.0) == 7


def test_the_log_has_a_line_a_minute_of_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    notices = Notices(logging.getLogger("test"), lambda: now)
    for number in range(1000):
        notices.warn("refused %s", number)
    notices.warn("closed")
    now += INTERVAL
    notices.warn("refused %s", "again")
    assert [record.getMessage() for record in caplog.records] == [
        "refused 0",
        "closed",
        "refused again (and 999 times since the last such line)",
    ]
