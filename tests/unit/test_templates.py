"""The functions of a client's calls: kept at the scheduler for as long as somebody may call them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from scaler.client.core.options import Options
from scaler.client.liveness import Liveness
from scaler.client.submitting import templates
from scaler.client.submitting.templates import Templates
from scaler.protocol.messages import EACH


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ids of functions that the scheduler need not keep."""
    monkeypatch.setattr(templates, "MOST", 2)
    return []


@pytest.fixture
def known(released: list[int]) -> Templates:
    driver = Mock()
    driver.welcome.limit = 1 << 20
    driver.release = released.append
    return Templates(driver, Liveness(), Mock(), None)


def test_a_function_that_was_not_used_for_long_is_released_when_no_call_has_it_in_hand(
    known: Templates, released: list[int]
) -> None:
    options = Options.make()
    template = known.of(len, options)
    template.object_id = 7
    for other in (abs, max, min):
        known.of(other, options)
    assert known.of(len, options) is not template
    assert released == []
    del template
    assert released == [7]


def test_what_a_task_submits_is_for_the_root_that_it_has_then() -> None:
    now = [7]
    driver = Mock()
    driver.welcome.limit = 1 << 20
    known = Templates(driver, Liveness(), Mock(), None, root=lambda: now[0])
    options = Options.make(priority=1)
    of_one = known.of(len, options)
    assert known.of(len, options) is of_one
    now[0] = 8
    of_another = known.of(len, options)
    assert [each.task(1, 1, EACH).root for each in (of_one, of_another)] == [7, 8]
    assert (known.rooted(options).root, known.rooted(options).priority) == (8, 1)


def test_a_function_that_was_never_sent_is_not_released(known: Templates, released: list[int]) -> None:
    for function in (len, abs, max, min):
        known.of(function, Options.make())
    assert released == []


def test_what_the_scheduler_has_forgotten_is_sent_anew_and_not_released(known: Templates, released: list[int]) -> None:
    template = known.of(len, Options.make())
    template.object_id = 7
    known.forget()
    assert template.object_id == 0
    del template
    assert released == []
