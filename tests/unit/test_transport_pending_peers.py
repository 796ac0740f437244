"""Who is not welcomed has seconds, and makes room for others; the log hears of it once a minute."""

import logging

import pytest

from scaler.common.line_limit import INTERVAL
from scaler.transport.notices import Notices
from scaler.transport.pending_peers import GRACE, MOST_WAITING, PATIENCE, PendingPeers


def test_who_is_not_welcomed_has_to_go_after_seconds() -> None:
    pending = PendingPeers()
    pending.add(1, "a", 0.0)
    pending.add(2, "b", 1.0)
    assert pending.wake(1.0) == PATIENCE
    assert pending.overdue(PATIENCE - 0.1) == []
    assert pending.overdue(PATIENCE) == [1]
    assert pending.remove(1) == "a"
    assert pending.wake(PATIENCE) == 1.0 + PATIENCE


def test_who_was_welcomed_stays() -> None:
    pending = PendingPeers()
    pending.add(1, "a", 0.0)
    pending.remove(1)
    assert pending.overdue(2 * PATIENCE) == []
    assert pending.wake(0.0) is None
    assert pending.remove(1) is None


def test_too_many_of_one_address_go_as_soon_as_they_had_grace_and_others_stay() -> None:
    pending = PendingPeers()
    pending.add(0, "elsewhere", 0.0)
    for number in range(1, MOST_WAITING + 4):
        pending.add(number, "here", 0.0)
    assert pending.is_crowded("here")
    assert not pending.is_crowded("elsewhere")
    assert pending.overdue(GRACE / 2) == []
    assert pending.wake(GRACE / 2) == pytest.approx(GRACE * 1.5)
    assert pending.overdue(GRACE) == [1, 2, 3]


def test_who_came_first_makes_room_once_it_had_grace() -> None:
    pending = PendingPeers()
    assert pending.oldest(0.0) is None
    pending.add(7, "a", 0.0)
    pending.add(3, "a", GRACE / 2)
    assert pending.oldest(GRACE / 2) is None
    assert pending.oldest(GRACE) == 7
    assert pending.oldest(0.0, grace=0.0) == 7


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
