"""What a worker calls before its first row."""

import pytest

from scaler.serialize.record import decode_error
from scaler.worker import context
from scaler.worker.preloading import Preload


def test_an_error_of_two_lines_is_told_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = r"""builtins:exec('raise ValueError("one\\ntwo")')"""
    monkeypatch.setattr(context, "surroundings", lambda: {"preload": text})
    preload = Preload()
    preload.run()
    assert preload.failure is not None
    assert str(decode_error(preload.failure)).endswith("failed in a worker: ValueError: one two")
    said = capsys.readouterr().err
    assert said.endswith("failed, and with it all tasks of this worker: ValueError: one two\n"), "in the log, too"
    assert said.count("\n") == 1
