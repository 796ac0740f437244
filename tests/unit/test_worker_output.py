"""What a worker sends of what its tasks print."""

import io

import pytest

from scaler.worker import output
from scaler.worker.context import TaskContext
from scaler.worker.output import LONGEST, OutputStream
from scaler.worker_protocol.messages import FromWorker, Output


def test_a_line_without_an_end_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that kept 1 GB of it would be ended for its memory."""
    sent: list[FromWorker] = []
    monkeypatch.setattr(output, "innermost", lambda: TaskContext(1, 2, "f", stream=True))
    stream = OutputStream(io.StringIO(), 1, sent.append)
    text = "=" * (LONGEST // 4)
    for _ in range(9):
        stream.write(text)
    assert [len(message.text) for message in sent if isinstance(message, Output)] == [LONGEST, LONGEST]
    stream.write("end\nbegin")
    stream.flush()
    said = "".join(message.text for message in sent if isinstance(message, Output))
    assert said == text * 9 + "end\nbegin"


def test_a_long_line_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 560 MB fitted into no message, and ended each agent whose worker sent it."""
    sent: list[FromWorker] = []
    monkeypatch.setattr(output, "innermost", lambda: TaskContext(1, 2, "f", stream=True))
    stream = OutputStream(io.StringIO(), 1, sent.append)
    text = "".join(map(chr, range(32, 127))) * 3000
    stream.write(f"begin{text}\nnext\n{text}")
    stream.flush()
    said = [message.text for message in sent if isinstance(message, Output)]
    assert "".join(said) == f"begin{text}\nnext\n{text}"
    assert max(map(len, said)) == LONGEST
