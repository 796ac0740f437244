"""What a client shows to its users, to its futures, and to its views."""

import contextlib
import inspect
import math
import os
import re
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from simulator.scripted import task

from scaler.client import Client, ObjectRef
from scaler.client import client as client_module
from scaler.client import future as future_module
from scaler.client import parts as parts_module
from scaler.client import reference as reference_module
from scaler.client.client import _View, parts_of, shared_client
from scaler.client.core import events as ev
from scaler.client.core.options import Options
from scaler.client.future import Future, FutureOwner, StoredValue
from scaler.client.io.driver import SessionDriver
from scaler.client.io.wakeup import Wakeup
from scaler.client.liveness import Liveness
from scaler.client.reference import ObjectOwner
from scaler.client.scope import WholeSession
from scaler.client.waiting.cancellations import SOON, Cancellations
from scaler.client.waiting.owner import ClientOwner
from scaler.errors import ConnectionFailed
from scaler.protocol.messages import ObjectRelease
from scaler.transport import Address, Security
from scaler.worker import context

#: all that users call
PUBLIC = {
    "address",
    "attach",
    "cancel",
    "clear",
    "close",
    "closed",
    "cluster",
    "dashboard_link",
    "disconnect",
    "get",
    "identity",
    "jobs",
    "map",
    "n_workers",
    "send_object",
    "shutdown",
    "starmap",
    "submit",
    "submit_graph",
    "submit_job",
    "submit_job_graph",
    "submit_nodes",
    "submit_verbose",
    "with_options",
}


def methods_of(port):
    return {name for name in vars(port) if not name.startswith("_")}


def uses_of(module, attribute):
    return set(re.findall(rf"\b{attribute}\.(\w+)", inspect.getsource(module)))


def test_a_client_shows_what_users_call_and_nothing_else():
    assert {name for name in dir(Client) if not name.startswith("_")} == PUBLIC
    assert all(inspect.getdoc(getattr(Client, name)) for name in PUBLIC)


def test_a_future_asks_its_client_for_no_more_than_five_things():
    assert uses_of(future_module, "self.owner") == methods_of(FutureOwner)
    assert len(methods_of(FutureOwner)) <= 5
    assert len(methods_of(StoredValue)) <= 4


def test_a_reference_asks_its_client_for_one_thing():
    assert uses_of(reference_module, "self.owner") == methods_of(ObjectOwner) == {"release"}


def test_the_owner_of_futures_and_references_is_one_object():
    driver = SimpleNamespace(release=Mock())
    owner = ClientOwner(Mock(), driver, Liveness(), Mock(), Mock(), Mock(), Mock())
    assert methods_of(FutureOwner) | methods_of(ObjectOwner) <= set(dir(owner))
    reference, future = ObjectRef(owner, 7, 100, None), Future(owner)
    owner.check_own(reference)
    owner.check_own(future)
    del reference
    driver.release.assert_called_once_with(7)


def test_a_future_of_another_client_is_not_cancelled_in_the_place_of_ones_own():
    cancellations = Mock()
    owner, other = (ClientOwner(Mock(), Mock(), Liveness(), Mock(), cancellations, Mock(), Mock()) for _ in range(2))
    theirs = Future(other)
    with pytest.raises(ValueError, match="belongs to another client"):
        owner.cancel([theirs], force=True)
    cancellations.cancel.assert_not_called()
    theirs.fulfil(1)
    assert owner.cancel([theirs], force=True) == 0


def test_views_share_everything_but_the_options():
    parts = Mock()
    view = _View(parts, Options.make(priority=1), WholeSession(parts))
    other = view.with_options(retries=3).with_options(priority=2)
    assert isinstance(other, Client)
    assert parts_of(other) == (parts, Options.make(priority=3, retries=3))
    assert parts_of(view) == (parts, Options.make(priority=1))


def test_equal_options_are_one_object():
    assert Options.make(retries=2).changed(timeout=3) is Options.make(timeout=3.0, retries=2)
    assert Options.make().changed() is Options.make()
    assert Options.make(capabilities=("a",)) is not Options.make()


class Line:
    """Keeps what is said."""

    error = None

    def __init__(self):
        self.said = []

    def send(self, message):
        self.said.append(message)


def test_the_garbage_collector_never_waits_for_the_session():
    line = Line()
    driver = SessionDriver(line, Wakeup(), Liveness())
    owner = ClientOwner(Mock(), driver, Liveness(), Mock(), Mock(), Mock(), Mock())
    reference = [ObjectRef(owner, 7, 100, None)]
    collector = threading.Thread(target=reference.clear)
    with driver.lock:
        collector.start()
        collector.join(10)
        assert not collector.is_alive()
    assert line.said == []
    driver.flush()
    assert [list(message.ids) for message in line.said if isinstance(message, ObjectRelease)] == [[7]]


def test_what_was_told_and_not_said_yet_is_given_up_like_all_else():
    line, token = Line(), SimpleNamespace(id=0)
    driver = SessionDriver(line, Wakeup(), Liveness())
    batch, release = ev.Submit(task(5, 2), [token, None]), ev.Release([7])
    other = threading.Thread(target=driver.tell, args=(batch, release))
    with driver.lock:
        other.start()
        other.join(10)
        assert driver.abandon() == [token]
    driver.flush()
    assert [type(message) for message in line.said] == [ObjectRelease]


def test_a_scheduler_that_is_not_there_keeps_no_other_waiting_and_no_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_asked, is_over = threading.Event(), threading.Event()

    def connect(address: str, **options: object) -> SimpleNamespace:
        if address == "tcp://dead:1":
            is_asked.set()
            is_over.wait(20)
        return SimpleNamespace(address=address, _parts=SimpleNamespace(liveness=Liveness()))

    monkeypatch.setattr(client_module, "Client", connect)
    monkeypatch.setattr(client_module, "_shared", {})
    first = threading.Thread(target=shared_client, args=("tcp://dead:1",))
    first.start()
    is_asked.wait(20)
    other = threading.Thread(target=shared_client, args=("tcp://good:1",))
    other.start()
    other.join(20)
    child = os.fork()
    if not child:
        is_stuck = True
        try:
            is_over.set()
            thread = threading.Thread(target=shared_client, args=("tcp://good:2",))
            thread.start()
            shared_client("tcp://dead:1")
            thread.join(20)
            is_stuck = thread.is_alive()
        finally:
            os._exit(is_stuck)
    is_waiting = other.is_alive()
    is_over.set()
    first.join(20)
    assert not is_waiting
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("address", "options", "patience"),
    [
        (None, {}, math.inf),
        ("tcp://head:1", {}, math.inf),
        (None, {"reconnect": 3}, 3),
        (None, {"timeout_seconds": 3}, 3),
        ("tcp://other:1", {}, None),
    ],
)
def test_in_a_task_its_scheduler_is_waited_for_as_its_host_does_unless_a_number_was_said(
    monkeypatch: pytest.MonkeyPatch, address: str | None, options: dict[str, float], patience: float | None
) -> None:
    monkeypatch.setattr(context, "_surroundings", {"address": "tcp://head:1"})
    waited: list[tuple[float | None, float]] = []

    class NobodyThere:
        def __init__(self, address: Address, security: object, patience: float, *others: object) -> None:
            self.patience = patience

        def connect(self, deadline: float, waits: bool) -> None:
            waited.append((deadline if waits else None, self.patience))
            raise ConnectionFailed("nobody is there")

    monkeypatch.setattr(parts_module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(parts_module, "Connector", NobodyThere)
    with pytest.raises(ConnectionFailed):
        Client(address, security=Security.none(), **options)
    assert waited == [(patience, 10.0 if patience is None else patience)]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_cancellation_that_is_over_costs_later_results_nothing(error: type[BaseException] | None) -> None:
    def tell(event: ev.Event) -> None:
        if error is not None:
            raise error
        future.mark_cancelled()
        cancellations.answer([future])

    future, cancellations = Future(Mock()), Cancellations(Mock())
    with contextlib.suppress(KeyboardInterrupt):
        cancellations.cancel([future], False, tell)
    assert future.cancelled() == (error is None)
    assert cancellations.waits == []


@pytest.mark.parametrize("force", [False, True])
def test_a_cancellation_that_is_not_answered_says_that_its_tasks_may_yet_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, force: bool
) -> None:
    monkeypatch.setattr("scaler.client.waiting.cancellations.ANSWER_TIMEOUT", 0.01)
    futures, cancellations = [Future(Mock()) for _ in range(3)], Cancellations(Mock())
    cancellations.cancel(futures, force, lambda event: cancellations.answer(futures[:1]))
    (said,) = caplog.messages
    assert f"did not answer within {0.02 if force else 0.01} s: 2 tasks may yet be cancelled" in said


def test_one_that_is_answered_or_was_interrupted_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("scaler.client.waiting.cancellations.INTERRUPTED_TIMEOUT", 0.01)
    future, cancellations = Future(Mock()), Cancellations(Mock())
    cancellations.cancel([future], False, lambda event: cancellations.answer([future]))
    cancellations.abandon([future])
    assert caplog.messages == []


def test_nor_does_one_that_a_signal_ended_where_it_was_over() -> None:
    """Each stayed, and cost each result that came afterwards."""

    class Lock:
        entered = 0

        def __enter__(self) -> None:
            self.entered += 1
            if self.entered == 2:
                raise KeyboardInterrupt

        def __exit__(self, *exc_info: object) -> None:
            pass

    ended = Future(Mock())
    ended.mark_cancelled()
    cancellations = Cancellations(Mock())
    cancellations._lock = Lock()  # type: ignore[assignment]
    with contextlib.suppress(KeyboardInterrupt):
        cancellations.cancel([ended], False, Mock())
    assert len(cancellations.waits) == 1
    cancellations.cancel([ended], False, Mock())
    assert cancellations.waits == []


def test_cancellations_of_one_future_each_count_those_right_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now, streaks = 100.0, []
    monkeypatch.setattr("scaler.client.waiting.cancellations.time", Mock(monotonic=lambda: now))
    cancellations = Cancellations(Mock())

    def cancel(*futures: Future) -> None:
        def tell(event: ev.Event) -> None:
            assert isinstance(event, ev.Cancel)
            streaks.append(event.streak)
            cancellations.answer(futures)

        cancellations.cancel(futures, False, tell)

    for _ in range(3):
        cancel(Future(Mock()))
    now += 2 * SOON
    cancel(Future(Mock()))
    cancel(Future(Mock()))
    cancel(Future(Mock()), Future(Mock()))
    cancel(Future(Mock()))
    assert streaks == [0, 1, 2, 0, 1, 0, 1]
