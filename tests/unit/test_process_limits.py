"""Limits of processes in words."""

import errno
import os
import resource
from collections.abc import Iterator

import pytest

from scaler.agent import worker_processes
from scaler.agent.orders import SOCKETS
from scaler.common import process_limits
from scaler.common.process_limits import words_of
from scaler.store import transfer
from scaler.store.fetching import MOST_LINES
from scaler.transport.zeromq import DESCRIPTORS


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"/inner": {"pids.max": b"8\n", "pids.current": b"7\n"}, "/outer": {"pids.max": b"max\n"}}

    def groups_of(controller: str) -> Iterator[tuple[str, bool]]:
        assert controller == "pids"
        yield from (("/inner", True), ("/outer", True))

    monkeypatch.setattr(process_limits, "groups_of", groups_of)
    monkeypatch.setattr(process_limits, "content_of", lambda group, name: contents[group].get(name, b""))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_a_process_that_can_not_be_forked_names_the_limit_of_its_container() -> None:
    words = words_of(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    assert words == (
        "[Errno 11] Resource temporarily unavailable: no more processes or threads may be started here: "
        "the control group /inner may have 8, and has 7 (pids.max)"
    )


def test_a_thread_that_can_not_be_started_names_the_limit_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 200))
    words = words_of(RuntimeError("can't start new thread"))
    assert "can't start new thread: no more processes or threads may be started here: this user may have 100 " in words
    assert "RLIMIT_NPROC" in words


def test_other_errors_are_left_as_they_are() -> None:
    assert words_of(RuntimeError("x")) == "x"
    assert words_of(OSError(errno.ENOENT, "gone")) == "[Errno 2] gone"


def test_an_agent_asks_for_the_descriptors_of_its_connections_to_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = list[int]()
    monkeypatch.setattr(worker_processes, "allow_descriptors", wanted.append)
    monkeypatch.setattr(os, "fork", lambda: 1)
    zygote = worker_processes.Zygote.start(8)
    zygote._socket.close()
    (all_of_them,) = wanted
    assert all_of_them >= 8 * SOCKETS + (MOST_LINES + transfer._MOST_FETCHES) * DESCRIPTORS
