"""Both transports keep the same promises: order, size, ends that show, and clear words when there is nobody."""

import contextlib
import errno
import gc
import logging
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import zmq
from support import until, within
from support.counting import calls_of

from scaler.common import poller
from scaler.common.process_limits import limit_for, open_descriptors
from scaler.errors import AddressError, AddressInUse, ConnectionFailed, ConnectionTimeout, ObjectTooLarge
from scaler.transport import (
    Address,
    Connection,
    Listener,
    Security,
    connect,
    connecting,
    listen,
    listening,
    tcp_listening,
    unix,
    zeromq,
)
from scaler.transport.framing import GREETING_BYTES
from scaler.transport.listener_state import ListenerState
from scaler.transport.pending_peers import PATIENCE
from scaler.transport.zeromq_connections import received_by, shut

_DEADLINE = 20.0
_SECURITY = Security.ephemeral()
_linux = pytest.mark.skipif(sys.platform != "linux", reason="local sockets are abstract names, which Linux has")
_KINDS = [pytest.param("unix", marks=_linux), "tcp"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Link:
    """A listener and its clients, all served by the test's thread."""

    def __init__(self, address: str = "tcp://127.0.0.1:0", **options: int) -> None:
        self.options = options
        self.listener: Listener = listen(address, _SECURITY, **options)
        self.inbox: list[tuple[int, list[bytes]]] = []
        self.closed: list[int] = []
        self.clients: list[Connection] = []
        self._nudge, self._nudged = socket.socketpair()

    def step(self) -> None:
        self.inbox += [(peer, [bytes(frame) for frame in message]) for peer, message in self.listener.receive()]
        self.closed += self.listener.state.take_gone()

    def until(self, condition: Callable[[], object], *clients: Connection) -> None:
        """Serve the listener until `condition`; the descriptors alone say when to look again."""
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, "the condition did not come true"
            waiting = select.poll()
            for each in (self.listener, self._nudged, *clients):
                waiting.register(each, select.POLLIN)
            ready = dict(waiting.poll(left * 1000))
            if self._nudged.fileno() in ready:
                self._nudged.recv(1)
            self.step()

    def until_done(self, future: Future[Any]) -> None:
        """Serve the listener until another thread has done its work."""
        future.add_done_callback(lambda _: self._nudge.send(b"x"))
        self.until(future.done)

    def connect(self, kind: str, **options: object) -> Connection:
        """A client; its handshake needs the listener, so it is made by another thread."""
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(
                connect, self.listener.address, _SECURITY, shortcut=kind == "unix", **{**self.options, **options}
            )
            self.until_done(made)
        client = made.result()
        self.clients.append(client)
        assert client.kind == kind
        return client

    def receive(self, client: Connection, count: int = 1) -> list[list[bytes]]:
        """The next `count` messages of a client."""
        messages: list[list[bytes]] = []

        def enough() -> bool:
            messages.extend([bytes(frame) for frame in message] for message in client.receive())
            return len(messages) >= count

        self.until(enough, client)
        return messages

    def peer_of(self, client: Connection) -> int:
        """The number of a client that has not said anything yet."""
        client.send([b"introduction"])
        self.until(lambda: self.inbox)
        peer, message = self.inbox.pop()
        assert message == [b"introduction"]
        assert not self.inbox
        return peer

    def close(self) -> None:
        for client in self.clients:
            client.close(0)
        self.listener.close(0)
        self._nudge.close()
        self._nudged.close()


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    yield made
    made.close()


@pytest.mark.parametrize("kind", _KINDS)
def test_messages_arrive_whole_and_in_order_both_ways(link: Link, kind: str) -> None:
    client = link.connect(kind)
    messages = [[b"%d" % number, b"", b"x" * (number * 37 % 5000)] for number in range(500)]
    for message in messages:
        client.send(message)
    link.until(lambda: len(link.inbox) == len(messages))
    assert [message for _, message in link.inbox] == messages
    (peer,) = {peer for peer, _ in link.inbox}
    for message in messages:
        link.listener.send(peer, message)
    assert link.receive(client, len(messages)) == messages


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("size", [1 << 16, 1_000_003, 100 << 20])
def test_a_large_frame_arrives_while_nobody_blocks(link: Link, kind: str, size: int) -> None:
    client = link.connect(kind)
    body = os.urandom(1 << 16) * (size // (1 << 16) + 1)
    view = memoryview(body)[:size]
    client.send([b"head", view, b"", b"tail"])  # returns although nobody reads
    client.send([b"after"])
    link.until(lambda: client.receive() == [] and len(link.inbox) == 2, client)
    assert link.inbox[0][1] == [b"head", bytes(view), b"", b"tail"]
    assert link.inbox[1][1] == [b"after"]
    link.listener.send(link.inbox[0][0], [view])
    assert link.receive(client) == [[bytes(view)]]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_message_of_very_many_frames(link: Link, kind: str) -> None:
    client = link.connect(kind)
    message = [b"%d" % number * 20 for number in range(3000)]
    client.send(message)
    link.until(lambda: client.receive() == [] and link.inbox, client)
    assert link.inbox[0][1] == message


@pytest.mark.parametrize("kind", _KINDS)
def test_many_threads_may_send_while_one_receives(link: Link, kind: str) -> None:
    client = link.connect(kind)

    def talk(speaker: int) -> None:
        for number in range(200):
            client.send([b"%d" % speaker, b"%d" % number, b"x" * 3000])

    threads = [threading.Thread(target=talk, args=(speaker,)) for speaker in range(4)]
    for thread in threads:
        thread.start()
    echoes: list[list[bytes]] = []

    def echo() -> bool:
        while link.inbox:
            peer, message = link.inbox.pop(0)
            link.listener.send(peer, message)
        echoes.extend([bytes(frame) for frame in message] for message in client.receive())
        return len(echoes) == 800

    link.until(echo, client)
    for thread in threads:
        thread.join()
    for speaker in range(4):
        heard = [int(number) for who, number, _ in echoes if who == b"%d" % speaker]
        assert heard == list(range(200))


@pytest.mark.parametrize("kind", _KINDS)
def test_the_listener_learns_of_a_client_that_left_after_its_last_words(link: Link, kind: str) -> None:
    leaving, staying = link.connect(kind), link.connect(kind)
    peer = link.peer_of(leaving)
    other = link.peer_of(staying)
    assert peer != other
    for number in range(100):
        leaving.send([b"%d" % number, bytes(10_000)])
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(leaving.close, _DEADLINE)
        link.until_done(gone)
        link.until(lambda: link.closed)
    assert link.closed == [peer]
    assert len(link.inbox) == 100
    link.listener.send(peer, [b"too late"])
    link.listener.send(other, [b"hello"])
    assert link.receive(staying) == [[b"hello"]]
    leaving.send([b"closed"])
    assert leaving.is_closed
    assert leaving.receive() == []
    leaving.close()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_client_learns_that_the_listener_left_after_its_last_words(link: Link, kind: str) -> None:
    client = link.connect(kind)
    peer = link.peer_of(client)
    assert client.trouble() is None
    for number in range(100):
        link.listener.send(peer, [b"%d" % number])
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(link.listener.close, _DEADLINE)
        heard: list[object] = []
        deadline = time.monotonic() + _DEADLINE
        while not client.is_closed and time.monotonic() < deadline:
            select.select([client], [], [], 0.5)
            heard += client.receive()
        gone.result()
    assert client.is_closed
    assert len(heard) == 100
    assert client.trouble() == "the other side closed the connection"
    client.send([b"nobody"])
    with pytest.raises(ConnectionFailed, match="nothing listens"):
        connect(link.listener.address, _SECURITY)


def test_a_connection_that_is_cut_as_soon_as_it_is_made_is_closed(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    told = zeromq.events_of
    made: dict[Any, int] = {}

    def at_once(monitor: Any) -> list[tuple[int, int]]:
        """What a slow machine hears in one go: that the handshake is done, and that the connection has ended."""
        events = told(monitor)
        for event, value in events:
            if event == zmq.EVENT_CONNECTED:
                made[monitor] = value
        if monitor in made and any(event == zmq.EVENT_HANDSHAKE_SUCCEEDED for event, _ in events):
            shut(made[monitor])
            while not any(event == zmq.EVENT_DISCONNECTED for event, _ in events):
                assert monitor.poll(_DEADLINE * 1000)
                events += told(monitor)
        return events

    monkeypatch.setattr(zeromq, "events_of", at_once)
    client = link.connect("tcp")
    assert select.select([client], [], [], _DEADLINE)[0]
    assert client.receive() == []
    assert client.trouble() == "the other side closed the connection"


@pytest.mark.parametrize("kind", _KINDS)
def test_a_killed_client_is_noticed(link: Link, kind: str) -> None:
    code = (
        "import sys; from scaler.transport import *; import os\n"
        "c = connect(sys.argv[1], Security.from_env(os.environ), shortcut=sys.argv[2] == 'unix')\n"
        "c.send([b'here']); sys.stdin.read()"
    )
    environ = {**os.environ, **_SECURITY.to_env(), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = subprocess.Popen(
        [sys.executable, "-c", code, link.listener.address.url, kind], stdin=subprocess.PIPE, env=environ
    )
    try:
        link.until(lambda: link.inbox)
        program.kill()
        link.until(lambda: link.closed)
    finally:
        program.kill()
        program.communicate()
    assert link.closed == [link.inbox[0][0]]


@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_more_arrives_from_a_disconnected_peer(link: Link, kind: str) -> None:
    unwanted, wanted = link.connect(kind), link.connect(kind)
    peer = link.peer_of(unwanted)
    link.listener.disconnect(peer)
    link.listener.disconnect(peer)
    unwanted.send([b"still here"])
    unwanted.close()
    wanted.send([b"me too"])
    link.until(lambda: link.inbox)
    link.listener.send(peer, [b"nobody"])
    assert [message for _, message in link.inbox] == [[b"me too"]]
    assert link.closed == []


@pytest.mark.parametrize("kind", _KINDS)
def test_two_hundred_clients(link: Link, kind: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 4096:
        pytest.skip("200 clients in one process need some 2,500 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients = [link.connect(kind) for _ in range(200)]
    for number, client in enumerate(clients):
        client.send([b"%d" % number])
    link.until(lambda: len(link.inbox) == 200)
    assert len({peer for peer, _ in link.inbox}) == 200
    for peer, message in link.inbox:
        link.listener.send(peer, message)
    for number, client in enumerate(clients):
        assert link.receive(client) == [[b"%d" % number]]
    for client in clients[::2]:
        client.close()
    link.until(lambda: len(link.closed) == 100)
    gone = {peer for peer, message in link.inbox if int(message[0]) % 2 == 0}
    assert set(link.closed) == gone


@pytest.mark.parametrize("kind", _KINDS)
def test_a_message_over_the_limit_is_refused_by_its_sender(kind: str) -> None:
    link = Link(max_message_bytes=1000)
    try:
        client = link.connect(kind)
        peer = link.peer_of(client)
        with pytest.raises(ObjectTooLarge, match="max_message_bytes"):
            client.send([bytes(3 << 20)])
        with pytest.raises(ObjectTooLarge, match="max_message_bytes"):
            link.listener.send(peer, [bytes(3 << 20)])
        client.send([b"fine"])
        link.until(lambda: link.inbox)
    finally:
        link.close()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_peer_with_too_large_messages_is_dropped_alone(kind: str) -> None:
    link = Link(max_message_bytes=1000)
    try:
        wild = link.connect(kind, max_message_bytes=1 << 30)
        tame = link.connect(kind)
        peer = link.peer_of(wild)
        wild.send([bytes(3 << 20)])
        link.until(lambda: wild.receive() == [] and link.closed, wild)
        assert link.closed == [peer]
        assert not link.inbox
        link.until(lambda: wild.receive() == [] and wild.is_closed, wild)
        link.peer_of(tame)
    finally:
        link.close()


def test_a_slow_reader_holds_up_nobody(link: Link) -> None:
    with ExitStack() as stack:
        slow = link.connect("tcp" if sys.platform != "linux" else "unix")
        quick = link.connect(slow.kind)
        stack.callback(slow.close, 0)
        slow_peer, quick_peer = link.peer_of(slow), link.peer_of(quick)
        for number in range(100):
            link.listener.send(slow_peer, [b"%d" % number, bytes(1 << 20)])
        link.listener.send(quick_peer, [b"now"])
        assert link.receive(quick) == [[b"now"]]
        assert [int(message[0]) for message in link.receive(slow, 100)] == list(range(100))


def test_the_port_is_picked_and_belongs_to_one_listener(link: Link) -> None:
    address = link.listener.address
    assert address.host == "127.0.0.1"
    assert address.port > 0
    with pytest.raises(AddressInUse, match=f"listens at {address.url}"):
        listen(address, _SECURITY)
    link.listener.close()
    link.listener.close()
    again = listen(address, _SECURITY)  # at once, without waiting
    again.close()


def test_a_port_of_a_foreign_program_is_in_use() -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        with pytest.raises(AddressInUse, match="choose another port"):
            listen(Address("127.0.0.1", foreign.getsockname()[1]), _SECURITY)


def test_an_address_of_another_machine_cannot_be_listened_at() -> None:
    with pytest.raises(AddressError, match="no address of this machine"):
        listen("tcp://203.0.113.7:0", _SECURITY)


@_linux
@pytest.mark.parametrize("kind", _KINDS)
def test_listeners_of_one_port_on_two_hosts_are_told_apart(kind: str) -> None:
    first = Link("tcp://127.0.0.1:0")
    try:
        second = Link(first.listener.address.url.replace("127.0.0.1", "127.0.0.2"))
    except AddressInUse:
        first.close()
        pytest.skip("another program took the port of 127.0.0.2")
    try:
        first.connect(kind).send([b"first"])
        second.connect(kind).send([b"second"])
        first.until(lambda: first.inbox)
        second.until(lambda: second.inbox)
        assert [message for _, message in first.inbox] == [[b"first"]]
        assert [message for _, message in second.inbox] == [[b"second"]]
    finally:
        first.close()
        second.close()


@_linux
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "0.0.0.0", "localhost"])
def test_a_listener_of_every_address_is_found_at_each(kind: str, host: str) -> None:
    link = Link("tcp://0.0.0.0:0")
    try:
        address = Address(host, link.listener.address.port)
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(connect, address, _SECURITY, shortcut=kind == "unix")
            link.until_done(made)
        link.clients.append(made.result())
        assert made.result().kind == kind
        assert made.result().address == address
    finally:
        link.close()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_listener_may_have_an_ipv6_address(kind: str) -> None:
    try:
        link = Link("tcp://[::1]:0")
    except AddressError:
        pytest.skip("this machine has no IPv6")
    try:
        link.peer_of(link.connect(kind))
    finally:
        link.close()


def _free_address() -> Address:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", probe.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_what_came_over_a_connection_is_asked_of_it_at_once(family: socket.AddressFamily, host: str) -> None:
    """It is asked of each silent peer, 25,000 times a second where there are 10,000."""
    with socket.create_server((host, 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2]) as there, server.accept()[0] as here:
            there.sendall(b"x" * 1_000)
            until(lambda: received_by(here.fileno()) == 1_000)
            assert calls_of(lambda: received_by(here.fileno())) < 15
            assert here.recv(2_000) == b"x" * 1_000, "it is still open"
        assert received_by(-1) == 0


def test_nothing_listens_is_said_at_once() -> None:
    address = _free_address()
    with (
        within(1.0),
        pytest.raises(ConnectionFailed, match=f"nothing listens at {address.url}; start one with: scaler_scheduler"),
    ):
        connect(address, _SECURITY)
    with pytest.raises(ConnectionFailed, match="nothing listens"):
        connect(address, _SECURITY, timeout=0.05, retry=True)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_program_may_start_before_its_scheduler(kind: str) -> None:
    address = _free_address()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(connect, address, _SECURITY, _DEADLINE, retry=True, shortcut=kind == "unix")
        with pytest.raises(TimeoutError):
            made.result(0.05)
        link = Link(address.url)
        try:
            link.until_done(made)
            link.clients.append(made.result())
            assert made.result().kind == kind
        finally:
            link.close()


@_linux
def test_an_address_of_a_name_that_does_not_answer_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        dead = Address(*full.getsockname())
        for _ in range(3):  # whoever comes after them is not answered
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(full.getsockname())
        link = Link()
        stack.callback(link.close)
        monkeypatch.setattr(Address, "resolve", lambda self: [dead, replace(link.listener.address, host="127.0.0.1")])
        pool = stack.enter_context(ThreadPoolExecutor(1))
        made = pool.submit(connect, "tcp://head:1", _SECURITY, 2.0, shortcut=False)
        link.until_done(made)
        link.clients.append(made.result())
        monkeypatch.setattr(Address, "resolve", lambda self: [dead])
        monkeypatch.setattr(connecting, "ANEW", 0.1)
        probes = Mock(side_effect=socket.socket)
        monkeypatch.setattr(connecting.socket, "socket", probes)
        with within(2.0), pytest.raises(ConnectionTimeout, match="no answer from tcp://head:1"):
            connect("tcp://head:1", _SECURITY, 0.5, shortcut=False)
        assert probes.call_count >= 3, "it is tried anew, as the kernel would ask after 1, 3, 7, ... seconds"


def test_a_program_that_accepts_and_says_nothing_times_out() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ConnectionTimeout, match="does not answer"):
            connect(Address("127.0.0.1", silent.getsockname()[1]), _SECURITY, timeout=0.2)


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A place for each context that a connection has made."""
    made: list[object] = []
    real = zmq.Context
    monkeypatch.setattr(zmq, "Context", lambda: made.append(None) or real())
    return made


def test_a_process_with_few_descriptors_is_told_so_before_zeromq_could_end_it(
    link: Link, contexts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.connect("tcp")
    contexts.clear()
    most = open_descriptors() + zeromq.DESCRIPTORS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    with pytest.raises(ConnectionFailed, match=rf"may have {most} descriptors open here \(RLIMIT_NOFILE\)"):
        link.connect("tcp")
    assert not contexts


def test_connections_that_are_made_at_once_do_not_take_each_others_descriptors(
    link: Link, contexts: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    link.connect("tcp")
    contexts.clear()
    most = limit_for(open_descriptors() + 2 * zeromq.DESCRIPTORS)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    monkeypatch.setattr(zeromq, "_taking", {"another", "a third"})
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        link.connect("tcp")
    assert not contexts
    zeromq._taking.clear()
    link.connect("tcp")
    assert not zeromq._taking


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ZeroMQ wakes its threads by two descriptors each")
def test_a_connection_has_as_many_descriptors_as_it_is_said_to_need(link: Link) -> None:
    link.connect("tcp")
    before = open_descriptors()
    link.connect("tcp")
    of_the_listener = 1
    assert open_descriptors() - before == zeromq.DESCRIPTORS + of_the_listener


@pytest.mark.parametrize("error", [zmq.ZMQError(errno.EMFILE), OSError(errno.EMFILE, "Too many open files")])
def test_whatever_a_process_lacks_for_a_connection_it_is_a_failure_like_others(
    link: Link, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []
    real = zeromq.monitor_of

    def refuse(observed: "zmq.Socket[bytes]") -> "zmq.Socket[bytes]":
        tries.append(None)
        if len(tries) < 3:
            raise error
        return real(observed)

    link.connect("tcp")
    monkeypatch.setattr(zeromq, "monitor_of", refuse)
    with pytest.raises(ConnectionFailed, match=r"cannot be reached: .*Too many open files"):
        link.connect("tcp")
    link.connect("tcp", retry=True)
    assert len(tries) == 3


@pytest.mark.parametrize("who", ["nobody", "somebody silent", "somebody who hangs up"])
def test_an_attempt_that_failed_leaves_nothing_to_the_garbage_collector(who: str) -> None:
    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                door.accept()[0].close()

    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    address = Address("127.0.0.1", door.getsockname()[1])
    left = None
    with ExitStack() as stack:
        if who != "nobody":
            door.listen()
        if who == "somebody who hangs up":
            thread = threading.Thread(target=hang_up)
            thread.start()
            stack.callback(thread.join)
            stack.callback(lambda: door.shutdown(socket.SHUT_RDWR))
        stack.callback(gc.enable)
        gc.disable()
        try:
            connect(address, _SECURITY, timeout=1.0 if who == "somebody who hangs up" else 0.1)
        except ConnectionFailed as error:
            left = weakref.ref(error)
        assert left is not None
        assert left() is None, gc.get_referrers(left())
    door.close()


def test_importing_the_package_and_connecting_locally_does_not_load_zeromq(link: Link) -> None:
    code = (
        "import sys; from scaler.transport import *\n"
        "made = sys.argv[1] and connect(sys.argv[1], Security.none())\n"
        "assert made.kind == 'unix'; assert 'zmq' not in sys.modules"
    )
    if sys.platform != "linux":
        code = "import sys, scaler.transport; assert 'zmq' not in sys.modules"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, link.listener.address.url], check=True, env=environ, timeout=_DEADLINE)


@_linux
def test_listening_loads_zeromq_when_somebody_comes_from_elsewhere() -> None:
    code = """if True:
        import sys
        from scaler.transport import *
        security = Security.none()
        listener = listen("tcp://127.0.0.1:0", security)
        near = connect(listener.address, security)
        near.send([b"near"])
        while not (inbox := listener.receive()):
            pass
        assert "zmq" not in sys.modules
        """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ, timeout=_DEADLINE)


@_linux
def test_a_forked_child_keeps_nothing_open(link: Link) -> None:
    client = link.connect("unix")
    peer = link.peer_of(client)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(writer)
            fine = client.is_closed and client.receive() == []
            client.send([b"from the child"])
            client.close()
            link.listener.close()
            os.read(reader, 1)  # lives until the parent has seen what it wanted
            os._exit(0 if fine else 1)
        finally:
            os._exit(2)
    os.close(reader)
    try:
        link.listener.send(peer, [b"still"])
        assert link.receive(client) == [[b"still"]]  # the parent's own is untouched
        client.close()
        link.until(lambda: link.closed)  # though the child lives
        assert not link.inbox
    finally:
        os.close(writer)
        _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize("kind", _KINDS)
def test_the_poller_of_other_systems_does_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listening, unix, zeromq):
        monkeypatch.setattr(module, "Poller", poller.SelectorPoller)
    link = Link()
    try:
        client = link.connect(kind)
        peer = link.peer_of(client)
        body = bytes(20 << 20)
        client.send([body])
        link.until(lambda: client.receive() == [] and link.inbox, client)
        assert link.inbox[0][1] == [body]
        link.listener.send(peer, [body])
        assert link.receive(client) == [[body]]
        client.close()
        link.until(lambda: link.closed)
    finally:
        link.close()


# ---- those who were not welcomed ----


@pytest.fixture
def strict() -> Iterator[Link]:
    """A listener that says who is welcome."""
    made = Link()
    made.listener.close(0)
    made.listener = listen("tcp://127.0.0.1:0", _SECURITY, awaits_welcome=True)
    yield made
    made.close()


def _after_a_while(link: Link) -> float | None:
    """What the listener does when whoever is there had time to be welcomed; when it wants to look again."""
    return link.listener.tend(time.monotonic() + PATIENCE + 1)


@pytest.mark.parametrize("kind", _KINDS)
def test_who_was_welcomed_stays_and_who_was_not_has_to_go(strict: Link, kind: str) -> None:
    friend, stranger, mute = (strict.connect(kind) for _ in range(3))
    number = strict.peer_of(friend)
    strict.listener.welcome(number)
    other = strict.peer_of(stranger)
    strict.until(lambda: strict.listener.tend(time.monotonic()) is not None)
    _after_a_while(strict)
    for closed in (stranger, mute):
        strict.until(lambda closed=closed: closed.receive() or closed.is_closed, closed)
    strict.step()
    strict.until(lambda: other in strict.closed)
    assert number not in strict.closed
    friend.send([b"x" * (2 * GREETING_BYTES)])
    strict.until(lambda: strict.inbox)
    assert strict.inbox == [(number, [b"x" * (2 * GREETING_BYTES)])]
    assert _after_a_while(strict) is None


@pytest.mark.parametrize("kind", _KINDS)
def test_who_says_anything_stays_where_nobody_is_welcomed(link: Link, kind: str) -> None:
    friend, mute = link.connect(kind), link.connect(kind)
    number = link.peer_of(friend)
    _after_a_while(link)
    link.until(lambda: mute.receive() or mute.is_closed, mute)
    link.listener.send(number, [b"still here"])
    assert link.receive(friend) == [[b"still here"]]


@_linux
def test_a_long_message_before_the_welcome_ends_the_connection(strict: Link) -> None:
    stranger = strict.connect("unix")
    stranger.send([b"x" * GREETING_BYTES])
    strict.until(lambda: stranger.receive() or stranger.is_closed, stranger)
    assert strict.inbox == []


def test_a_stranger_who_sends_much_over_tcp_is_cut_off_before_it_is_whole(strict: Link) -> None:
    address = strict.listener.address
    with socket.create_connection((address.host, address.port), _DEADLINE) as stranger:
        stranger.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(47))  # how a session begins
        stranger.sendall(b"\x06" + (1 << 29).to_bytes(8, "big"))  # a command of half a gigabyte
        strict.until(lambda: strict.listener.tend(time.monotonic()) is not None)
        stranger.setblocking(False)

        def is_cut_off() -> bool:
            try:
                stranger.send(bytes(1 << 16))
            except BlockingIOError:
                pass
            except OSError:
                return True
            strict.listener.tend(time.monotonic())
            return False

        end = time.monotonic() + _DEADLINE
        while not is_cut_off():
            strict.step()
            assert time.monotonic() < end


@pytest.mark.parametrize("kind", _KINDS)
def test_a_peer_that_was_disconnected_hears_why_and_its_connection_closes(strict: Link, kind: str) -> None:
    client = strict.connect(kind)
    number = strict.peer_of(client)
    strict.listener.send(number, [b"go away"])
    strict.listener.disconnect(number)
    assert strict.receive(client) == [[b"go away"]]
    _after_a_while(strict)
    strict.until(lambda: client.receive() or client.is_closed, client)
    assert strict.closed == []


@pytest.mark.parametrize("kind", _KINDS)
def test_a_peer_that_has_nothing_to_hear_is_disconnected_at_once(link: Link, kind: str) -> None:
    """What it took is there for others when the call returns: a store makes room that way."""
    client = link.connect(kind)
    number = link.peer_of(client)
    assert link.listener.state.connections == 1
    link.listener.disconnect(number)
    assert link.listener.state.connections == 0
    link.until(lambda: client.receive() or client.is_closed, client)
    link.listener.receive()
    assert (link.listener.state.connections, link.closed) == (0, [])


@pytest.mark.parametrize("trouble", [errno.ENOENT, errno.EACCES])
def test_who_comes_is_let_in_where_nobody_tells_how_many_descriptors_there_are(
    trouble: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> list[str]:
        raise OSError(trouble, os.strerror(trouble))

    state = ListenerState(1 << 20, True, logging.getLogger("test"))
    monkeypatch.setattr(os, "listdir", refuse)
    assert not state.is_full(1.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        assert state.is_full(3.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_that_there_is_no_room_is_in_the_log_once_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    monkeypatch.setattr("scaler.transport.listener_state.open_descriptors", lambda: 30)
    state = ListenerState(1 << 20, True, logging.getLogger("test"))
    state.connections = 12
    assert state.is_full(1.0)
    assert state.is_full(1.1)
    state.connections = 11
    assert not state.is_full(1.2)
    assert caplog.messages == [
        "no new connections for now: 12 are open, beside 18 other descriptors, and 10 are kept free: "
        "a process may have 40 open here (RLIMIT_NOFILE); `ulimit -n` raises that for root"
    ]


@_linux
def test_a_scheduler_that_begins_just_now_is_found_by_its_local_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the looks at the local socket and at the port: it has both by then, the local socket first."""
    port, begun = _free_port(), []
    look = connecting._find_listening

    def begin_and_look(*args: Any, **options: Any) -> Address:
        begun.append(listen(f"tcp://127.0.0.1:{port}", _SECURITY))
        return look(*args, **options)

    monkeypatch.setattr(connecting, "_find_listening", begin_and_look)
    connection = connect(f"tcp://127.0.0.1:{port}", _SECURITY)
    try:
        assert connection.kind == "unix"
        assert len(begun) == 1
    finally:
        connection.close(0)
        begun[0].close(0)


@_linux
def test_the_local_socket_is_there_before_the_port_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    port, order = _free_port(), []
    listen_unix = unix.listen_unix

    def looked(*args: Any) -> Any:
        with socket.socket() as probe:
            order.append(probe.connect_ex(("127.0.0.1", port)))
        return listen_unix(*args)

    monkeypatch.setattr(unix, "listen_unix", looked)
    listen(f"tcp://127.0.0.1:{port}", _SECURITY).close(0)
    assert order == [errno.ECONNREFUSED]


@_linux
def test_of_two_that_take_a_port_at_once_one_has_it_and_the_other_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have bound it, as neither listened yet."""
    port = _free_port()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        let_in = tcp_listening.let_in
        monkeypatch.setattr(tcp_listening, "let_in", lambda *args: (other.listen(), let_in(*args)))
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises(AddressInUse, match="choose another port"):
            listen(f"tcp://127.0.0.1:{port}", _SECURITY)
        assert len(os.listdir("/proc/self/fd")) == descriptors
    monkeypatch.undo()
    listen(f"tcp://127.0.0.1:{port}", _SECURITY).close(0)


def _taken(port: int) -> socket.socket:
    """The local name of a port, taken by this user who does not listen yet."""
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    taken.bind(Address("127.0.0.1", port).local_name(os.geteuid()))
    return taken


@_linux
def test_who_takes_a_local_name_and_never_listens_keeps_nobody_from_the_port(caplog: pytest.LogCaptureFixture) -> None:
    """It may be another user: the kernel tells whose a name is only if somebody listens there."""
    port = _free_port()
    with _taken(port):
        listen(f"tcp://127.0.0.1:{port}", _SECURITY).close(0)
    assert "everybody will use tcp" in caplog.text


@_linux
@pytest.mark.parametrize("goes_on", [False, True])
def test_who_is_about_to_listen_is_waited_for(goes_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    port = _free_port()
    with _taken(port) as taken:
        monkeypatch.setattr(unix.time, "sleep", lambda _: taken.listen() if goes_on else taken.close())
        if goes_on:
            with pytest.raises(AddressInUse, match="another scheduler of yours"):
                listen(f"tcp://127.0.0.1:{port}", _SECURITY)
        else:
            listener = listen(f"tcp://127.0.0.1:{port}", _SECURITY)
            connection = connect(listener.address, _SECURITY)
            assert connection.kind == "unix"
            connection.close(0)
            listener.close(0)


@_linux
def test_a_local_socket_that_is_too_busy_is_waited_for_once() -> None:
    """The second look, behind the one at the port, is for who begins just then."""
    port, waiting = _free_port(), []
    with _taken(port) as taken, socket.create_server(("127.0.0.1", port)):
        taken.listen(0)
        while True:  # until its queue is full
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            waiting[-1].setblocking(False)
            if waiting[-1].connect_ex(taken.getsockname()):
                break
        try:
            began = time.monotonic()
            numeric = Address("127.0.0.1", port)
            assert connecting._by_local_socket(numeric, [numeric], began + 0.2, 1 << 20) is None
            first = time.monotonic()
            assert first - began >= 0.15
            assert connecting._by_local_socket(numeric, [numeric], None, 1 << 20, is_again=True) is None
            assert time.monotonic() - first < 0.15
        finally:
            for each in waiting:
                each.close()
