"""What is begun in advance is taken once, or ended."""

import pytest

from scaler.common import advance


class Begun:
    """Counts how often it is ended."""

    def __init__(self) -> None:
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_begun", None)
    monkeypatch.setattr(advance, "_is_late", False)


def test_the_first_who_asks_gets_it() -> None:
    begun = Begun()
    assert not advance.is_late()
    advance.begin(begun)
    assert advance.is_late()
    assert advance.take() is begun
    assert advance.take() is None
    advance.dismiss()
    assert begun.ended == 0, "it is another's now"


def test_it_is_ended_if_nobody_needs_it() -> None:
    begun = Begun()
    advance.begin(begun)
    advance.dismiss()
    advance.dismiss()
    assert begun.ended == 1


def test_what_comes_too_late_is_ended_at_once() -> None:
    advance.dismiss()
    assert advance.is_late()
    begun = Begun()
    advance.begin(begun)
    assert begun.ended == 1
    assert advance.take() is None
