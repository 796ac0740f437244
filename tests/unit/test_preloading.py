"""What a worker calls before it takes rows."""

import pytest

from scaler.worker import context, preloading
from scaler.worker_protocol.messages import FromWorker, Preloading


def made(monkeypatch: pytest.MonkeyPatch, surroundings: dict[str, str]) -> tuple[bool, list[FromWorker]]:
    """Whether a worker that was told this starts, and what it says."""
    said: list[FromWorker] = []
    monkeypatch.setattr(context, "surroundings", lambda: surroundings)
    return preloading.run(said.append), said


def test_an_error_of_two_lines_is_told_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = r"""builtins:exec('raise ValueError("one\\ntwo")')"""
    assert made(monkeypatch, {"preload": text}) == (False, [Preloading(text), Preloading(text, "ValueError: one two")])


@pytest.mark.parametrize("text", ["no_such_module:f", "math:no_such_name", "sys:exit(3)"])
def test_whatever_is_raised_keeps_a_worker_from_starting(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    starts, (_, told) = made(monkeypatch, {"preload": text})
    assert not starts
    assert isinstance(told, Preloading)
    assert told.error.startswith(("ModuleNotFoundError: ", "AttributeError: ", "SystemExit: 3"))


def test_a_call_is_announced_as_it_may_end_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(monkeypatch, {"preload": "math:sqrt(4)"}) == (True, [Preloading("math:sqrt(4)")])
    assert made(monkeypatch, {}) == (True, [])
