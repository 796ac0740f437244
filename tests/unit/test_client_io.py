"""The client's connection and its thread, with the real session and codec; the scheduler is played by the test."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections import deque
from typing import Any

import pytest
from simulator.scripted import task
from support import until

from scaler.client.callbacks import callbacks_collected
from scaler.client.core import events as ev
from scaler.client.io import connector as connector_module
from scaler.client.io.connector import Connector
from scaler.client.io.driver import SessionDriver
from scaler.client.io.io_thread import IOThread
from scaler.client.io.line import Line
from scaler.client.io.polling import ConnectionPoller
from scaler.client.io.reply import Reply
from scaler.client.io.wakeup import Wakeup
from scaler.client.io.watching import IS_POSSIBLE, Watcher
from scaler.client.lifetime import Lifetime
from scaler.client.liveness import Liveness
from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused, ScalerError
from scaler.protocol.codec import decode, encode
from scaler.protocol.messages import (
    VALUES_EACH,
    DisconnectRequest,
    Hello,
    Message,
    Refused,
    ShutdownResponse,
    StoreOffers,
    Task,
    TaskResult,
    Welcome,
    u32,
)
from scaler.protocol.results import ResultBuilder, SpanResult
from scaler.transport import Address, Security

ADDRESS = Address.parse("tcp://127.0.0.1:1")


class FakeConnection:
    """A connection to a scheduler that says what the test wants."""

    kind = "unix"
    address = ADDRESS

    def __init__(self, *answers: Message) -> None:
        self._reader, self._writer = os.pipe()
        self._inbox: deque[list[Any]] = deque()
        self._seq = 0
        self.is_closed = False
        #: by this side
        self.is_hung_up = False
        #: what the client said
        self.said: list[Message] = []
        #: what a Hello is answered with
        self._answers = answers

    def fileno(self) -> int:
        if self.is_hung_up:
            raise ValueError("I/O operation on closed epoll object")
        return self._reader

    def send(self, frames: Any) -> None:
        self.said.append(decode(list(frames)).message)
        if isinstance(self.said[-1], Hello):
            for answer in self._answers:
                if isinstance(answer, (Welcome, Refused)):
                    self.arrive(encode(answer))
                else:
                    self.say(answer)

    def say(self, message: Message) -> None:
        """The scheduler says this."""
        self._seq += 1
        self.arrive(encode(message, self._seq, 0))

    def arrive(self, frames: list[Any]) -> None:
        """These frames come."""
        self._inbox.append(frames)
        os.write(self._writer, b"x")

    def receive(self) -> list[list[Any]]:
        arrived = []
        while self._inbox:
            os.read(self._reader, 1)
            arrived.append(self._inbox.popleft())
        return arrived

    def carried_bytes(self) -> int:
        return 0

    def trouble(self) -> str | None:
        return "the scheduler went away" if self.is_closed else None

    def go_away(self) -> None:
        """The scheduler closes it."""
        self.is_closed = True
        os.write(self._writer, b"x")

    def close(self, linger: float = 1.0) -> None:
        self.is_closed = self.is_hung_up = True


class FakeReactor:
    """Keeps what it is told, with the thread that tells it."""

    def __init__(self) -> None:
        self.effects: list[tuple[ev.Effect, threading.Thread]] = []
        self.failed: list[tuple[list[Any], BaseException]] = []
        self.react: Any = lambda effect: None

    def carry_out(self, effects: list[ev.Effect]) -> None:
        for effect in effects:
            self.effects.append((effect, threading.current_thread()))
            self.react(effect)

    def is_quick(self, effect: ev.Effect) -> bool:
        return isinstance(effect, ev.Resolve)

    def fail(self, tokens: list[Any], error: BaseException) -> None:
        self.failed.append((tokens, error))

    def tidy(self) -> None:
        """Nothing."""

    @property
    def kinds(self) -> list[type]:
        """What it was told, in order."""
        return [type(effect) for effect, _ in self.effects]


class Token:
    """Stands for a row."""

    id = 0


def welcome(resumed: bool = False) -> Welcome:
    return Welcome(5, 7, resumed, 0, 2, True, 1e6, 1e6, 1 << 20)


def ended(batch: int) -> TaskResult:
    builder = ResultBuilder(0)
    builder.add(SpanResult(batch, 0, 1, VALUES_EACH, 0, 0, u32([1]), b"v"))
    return builder.build()


class Session:
    """All parts of the connection, and the connections that the scheduler takes, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *connections: FakeConnection | Exception, patience: float = 5):
        self.connections = deque(connections)
        monkeypatch.setattr(connector_module, "connect", self._connect)
        wakeup, self.liveness, self.reply = Wakeup(), Liveness(), Reply()
        self.line, self.poller = Line("client"), ConnectionPoller(wakeup)
        self.driver = SessionDriver(self.line, wakeup, self.liveness)
        self.connector = Connector(ADDRESS, Security.none(), patience, self.line, self.driver, self.poller)
        self.io_thread = IOThread(self.driver, self.line, self.poller, self.connector, self.reply, self.liveness)
        self.reactor = FakeReactor()
        self.watcher = Watcher(self.driver, self.line, self.poller, self.reactor)

    def _connect(self, address: Address, security: Security, timeout: float, retry: bool = False) -> FakeConnection:
        if not self.connections:
            raise ConnectionFailed("nobody listens")
        made = self.connections.popleft()
        if isinstance(made, Exception):
            raise made
        return made

    def begin(self) -> None:
        self.connector.connect(1e12)
        self.io_thread.start(self.reactor)

    def submit(self, batch: int) -> Token:
        token = Token()
        self.driver.tell(ev.Submit(task(batch, 1), [token]))
        return token


@pytest.fixture
def start(monkeypatch):
    """Starts a session over these connections."""
    made = []

    def make(*connections, **options):
        session = Session(monkeypatch, *connections, **options)
        made.append(session)
        session.begin()
        return session

    yield make
    for session in made:
        session.io_thread.close()


def test_what_comes_behind_the_welcome_is_heard(start):
    connection = FakeConnection(welcome(), StoreOffers())
    session = start(connection)
    assert session.driver.session.workers == 2
    assert session.line.welcome.number == 7
    connection.say(StoreOffers())
    until(lambda: session.reactor.kinds == [ev.StoreAnswered] * 2)


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        ((Refused("another version"),), HandshakeRefused, "refused: another version"),
        ((), ConnectionTimeout, "did not answer in time"),
    ],
)
def test_a_scheduler_that_does_not_welcome(monkeypatch, answers, error, words):
    session = Session(monkeypatch, FakeConnection(*answers))
    with pytest.raises(error, match=words):
        session.connector.connect(0.0 if not answers else 1e12)
    session.poller.close()


def test_a_lost_connection_is_made_anew_and_the_scheduler_that_forgot_is_told_again(start):
    first, second = FakeConnection(welcome()), FakeConnection(welcome())
    session = start(first, ConnectionFailed("not yet"), second)
    session.submit(10)
    first.go_away()
    until(lambda: any(isinstance(message, Task) for message in second.said))
    assert session.liveness.failure is None


def test_a_scheduler_that_refuses_right_behind_its_welcome_is_tried_again(start):
    """One that steps down just then: what follows the Welcome has closed the connection before it is watched."""
    first, second, third = (FakeConnection(welcome(), *more) for more in ((), (Refused("stands by", True),), ()))
    session = start(first, second, third)
    session.submit(10)
    first.go_away()
    until(lambda: any(isinstance(message, Task) for message in third.said))
    assert session.liveness.failure is None


def test_a_scheduler_that_is_silent_in_the_handshake_is_left_for_another_however_patient_one_is(start, monkeypatch):
    first, silent, third = FakeConnection(welcome()), FakeConnection(), FakeConnection(welcome())
    session = start(first, silent, third, patience=math.inf)
    session.submit(10)
    monkeypatch.setattr(connector_module, "TRY", 0.05)
    first.go_away()
    until(lambda: any(isinstance(message, Task) for message in third.said))
    assert silent.is_hung_up


def test_a_scheduler_that_stays_away_ends_all_that_is_pending(start):
    connection = FakeConnection(welcome())
    session = start(connection, patience=0.0)
    token = session.submit(10)
    connection.go_away()
    until(lambda: session.reactor.failed)
    ((tokens, error),) = session.reactor.failed
    assert tokens == [token]
    assert error is session.liveness.failure
    assert "went away" in str(error)
    session.driver.release(5)
    assert not session.driver.is_queued, "nobody is left to be told"


def test_a_closed_connection_is_an_answer_to_a_goodbye(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.reply.expect(is_to_goodbye=True)
    session.driver.tell(ev.Request(DisconnectRequest()))
    connection.go_away()
    assert session.reply.wait(20)
    assert session.reply.refusal is None
    assert session.reactor.failed == []


def test_a_refused_shutdown_is_told_with_its_reason():
    reply = Reply()
    reply.expect(is_to_goodbye=False)
    assert not reply.wait(0)
    reply.arrive(ShutdownResponse(False, "protected"))
    assert reply.wait(0)
    assert reply.refusal == "protected"


@pytest.mark.parametrize(
    ("there", "failure", "said"),
    [
        ([True, True], None, "did not answer"),
        ([True, False, False, True, True], None, "did not answer"),
        ([False, False], ConnectionFailed("nobody came back"), "nobody came back"),
        ([True, False, True], None, None),
    ],
)
def test_the_end_of_a_cluster_is_waited_for_while_there_is_no_scheduler_or_a_new_one(there, failure, said):
    looks, liveness, left = deque(there), Liveness(), []

    class Replies(Reply):
        def wait(self, timeout: float) -> bool:
            if not looks:
                liveness.failure = failure
            return not looks

    class Driver:
        tell = abandon = staticmethod(lambda *events: left.append(events) or [])
        is_connected = property(lambda self: looks.popleft())

    class Other:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: None

    other: Any = Other()
    lifetime = Lifetime(Driver(), liveness, other, other, other, Replies(), other)  # type: ignore[arg-type]
    if said is None:
        lifetime.shut_down("tcp://here")
    else:
        with pytest.raises(ConnectionFailed, match=said):
            lifetime.shut_down("tcp://here")
    assert not looks
    assert liveness.is_closed is (said is None)
    assert ((ev.ShutdownWithdrawn(),) in left) is (said == "did not answer"), "a later scheduler is asked for it"
    liveness.is_closed = True


def test_a_thread_that_steps_aside_is_replaced_and_what_it_waits_for_comes(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    arrived, seen = threading.Event(), []

    def react(effect):
        if not seen:
            seen.append(threading.current_thread())
            session.io_thread.step_aside()
            connection.say(StoreOffers())
            arrived.wait(20)
        else:
            seen.append(threading.current_thread())
            arrived.set()

    session.reactor.react = react
    connection.say(StoreOffers())
    until(lambda: len(seen) == 2)
    assert seen[0] is not seen[1]
    seen[0].join(20)
    assert not seen[0].is_alive()
    assert seen[1].is_alive()


def test_a_thread_that_a_callback_has_ended_closes_once_and_none_follows(start, monkeypatch):
    connection = FakeConnection(welcome())
    session = start(connection)
    threads, closed, close = [], [], os.close
    monkeypatch.setattr(os, "close", lambda fd: closed.append(fd) or close(fd))

    def react(effect):
        threads.append(threading.current_thread())
        callbacks_collected.call(lambda: sys.exit(3))

    session.reactor.react = react
    connection.say(StoreOffers())
    until(lambda: session.reactor.failed)
    threads[0].join(20)
    ends = list(closed)
    assert len(ends) == 4  # of two pipes
    assert session.io_thread.pass_callback(0.0) is None
    with monkeypatch.context() as patched:
        patched.setattr(session.io_thread, "_thread", threading.current_thread())
        patched.setattr(threading, "get_ident", lambda: threads[0].ident)  # numbers of threads are given anew
        session.io_thread.step_aside()
    session.poller.close()
    assert closed == ends
    assert "SystemExit(3)" in str(session.liveness.failure)


def fail_to_start(_):
    raise RuntimeError("can't start new thread")


def test_a_client_that_no_thread_can_be_started_for_is_refused_and_hangs_up(monkeypatch):
    connection = FakeConnection(welcome())
    session = Session(monkeypatch, connection)
    monkeypatch.setattr(threading.Thread, "start", fail_to_start)
    with pytest.raises(ConnectionFailed, match="no thread for a client's connection: can't start new thread"):
        session.begin()
    assert connection.is_closed


def test_a_callback_that_would_wait_for_what_cannot_come_is_told_and_the_rest_comes(start, monkeypatch):
    connection = FakeConnection(welcome())
    session = start(connection)
    seen = []

    def react(effect):
        if seen:
            seen.append("the rest")
            return
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail_to_start)
            try:
                session.io_thread.step_aside()
            except ConnectionFailed as error:
                seen.append(str(error))
        connection.say(StoreOffers())

    session.reactor.react = react
    connection.say(StoreOffers())
    until(lambda: len(seen) == 2)
    assert seen[0].count("can't start new thread: no more processes or threads may be started here")


def test_other_threads_step_aside_at_no_cost(start):
    session = start(FakeConnection(welcome()))
    threads = threading.active_count()
    session.io_thread.step_aside()
    assert threading.active_count() == threads


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
def test_a_thread_that_waits_for_the_only_row_receives_it_itself(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.submit(10)
    timer = threading.Timer(0.05, connection.say, [ended(10)])
    timer.start()
    session.watcher.watch_while_waiting(lambda: ev.Resolve in session.reactor.kinds, 20)
    timer.join()
    assert session.reactor.effects[-1][1] is threading.current_thread()
    assert not session.poller.is_borrowed
    connection.say(StoreOffers())  # the I/O thread watches again
    until(lambda: ev.StoreAnswered in session.reactor.kinds)
    assert session.reactor.effects[-1][1] is not threading.current_thread()


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
def test_a_signals_handler_is_called_at_once_and_when_the_io_thread_watches_again(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.submit(10)
    looks = []

    def handler(number, frame):
        looks.append(session.poller.is_borrowed)
        connection.say(StoreOffers())
        until(lambda: ev.StoreAnswered in session.reactor.kinds)
        connection.say(ended(10))

    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.05, signal.pthread_kill, [threading.get_ident(), signal.SIGUSR1])
    try:
        timer.start()
        session.watcher.watch_while_waiting(lambda: ev.Resolve in session.reactor.kinds, 20)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert looks == [False]


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
@pytest.mark.parametrize("nonsense", [b"nonsense", encode(task(1, 1), 1, 0)[0]], ids=["no message", "not for clients"])
@pytest.mark.parametrize("is_watching", [False, True])
def test_what_no_scheduler_says_ends_the_session_whoever_hears_it(start, nonsense, is_watching):
    connection = FakeConnection(welcome())
    session = start(connection)
    token = session.submit(10)
    timer = threading.Timer(0.05, connection.arrive, [[nonsense]])
    timer.start()
    if is_watching:
        session.watcher.watch_while_waiting(lambda: False, 20)
    until(lambda: session.reactor.failed)
    timer.join()
    ((tokens, error),) = session.reactor.failed
    assert tokens == [token]
    assert isinstance(error, ScalerError)


def test_what_has_ended_before_what_no_scheduler_says_has_ended(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.submit(10)
    with session.driver.lock:  # both are received at once
        connection.say(ended(10))
        connection.say(task(1, 1))
    until(lambda: session.reactor.failed)
    assert ev.Resolve in session.reactor.kinds
    ((tokens, _),) = session.reactor.failed
    assert tokens == []


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
def test_what_takes_long_is_left_to_the_io_thread(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.submit(10)
    timer = threading.Timer(0.05, connection.say, [StoreOffers()])
    timer.start()
    session.watcher.watch_while_waiting(lambda: False, 20)
    until(lambda: ev.StoreAnswered in session.reactor.kinds)
    timer.join()
    assert session.reactor.effects[-1][1] is not threading.current_thread()


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
def test_only_one_thread_watches_and_only_for_a_lone_row(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.watcher.watch_while_waiting(lambda: False, 20)  # nothing is under way: returns at once
    session.submit(10)
    assert session.poller.borrow(connection.fileno())
    session.watcher.watch_while_waiting(lambda: False, 20)  # another one watches
    session.poller.give_back(connection.fileno())
    session.submit(11)
    session.watcher.watch_while_waiting(lambda: False, 20)  # two rows


@pytest.mark.skipif(not IS_POSSIBLE, reason="needs epoll")
def test_a_connection_that_was_borrowed_by_who_was_interrupted_is_given_back(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    assert session.poller.borrow(connection.fileno())
    session.watcher.recover()
    assert not session.poller.is_borrowed
    connection.say(StoreOffers())  # the I/O thread watches again
    until(lambda: ev.StoreAnswered in session.reactor.kinds)
    session.watcher.recover()  # nothing to give back


def test_closing_ends_the_thread_and_the_connection(start):
    connection = FakeConnection(welcome())
    session = start(connection)
    session.io_thread.close()
    assert connection.is_closed
    session.driver.wake()  # nothing to wake: does nothing


def test_a_pipe_that_nobody_has_any_more_is_closed() -> None:
    descriptor = Wakeup().fileno()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_wakeup_that_is_full_stays_readable():
    wakeup = Wakeup()
    for _ in range(70_000):
        wakeup.wake()
    wakeup.clear()
    wakeup.close()
    wakeup.wake()
    wakeup.clear()
    wakeup.close()


def test_who_wakes_while_it_closes_writes_to_no_descriptor_that_may_be_anothers(monkeypatch):
    wakeup, close, written = Wakeup(), os.close, []

    def closing(fd):
        close(fd)
        wakeup.wake()  # another thread's turn

    monkeypatch.setattr(os, "close", closing)
    monkeypatch.setattr(os, "write", lambda fd, data: written.append(fd))
    wakeup.close()
    assert set(written) == {-1}
