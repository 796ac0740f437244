"""What the session wants done, carried out by the parts of a client."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from scaler.client.core import events as ev
from scaler.client.reactor import Reactor
from scaler.protocol.messages import STDERR, STDOUT


def closed() -> Any:
    stream = io.StringIO()
    stream.close()
    return stream


def unread() -> Any:
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "wb", buffering=0, closefd=True)


def ascii_only() -> Any:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (closed, None),
        (lambda: io.TextIOWrapper(unread(), encoding="utf-8", write_through=True), None),
        (ascii_only, b"caf\\xe9"),
        (lambda: Mock(write=Mock(side_effect=ZeroDivisionError)), None),
        (lambda: None, None),
    ],
    ids=["closed", "unread", "ascii", "odd", "none"],
)
@pytest.mark.parametrize("number", [STDOUT, STDERR])
def test_what_a_task_prints_keeps_no_result_from_coming(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any], shown: bytes | None, number: int
) -> None:
    stream, resolver = make(), Mock()
    monkeypatch.setattr("sys.stdout" if number == STDOUT else "sys.stderr", stream)
    reactor = Reactor(resolver, Mock(handlers={}), Mock(), Mock(), Mock(), Mock(), Mock())
    result = ev.Resolve(["token"], Mock(), Mock())
    reactor.carry_out([ev.Printed(number, "caf\xe9"), result])
    resolver.resolve.assert_called_once_with(result.tokens, result.span, result.task)
    if shown is not None:
        assert stream.buffer.getvalue() == shown
