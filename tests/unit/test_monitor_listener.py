"""The local socket for monitors: whose it is, where it is, and what is left of it."""

import os
import select
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.errors import AddressError, AddressInUse, ConnectionFailed
from scaler.transport import FIRST_PEER, Address, MonitorListener, SocketFile, connect_file, open_monitor_listener
from scaler.transport import security as keys

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="local sockets ask Linux for the user of the other end")
ADDRESS = Address("127.0.0.1", 2345)


@pytest.fixture
def listeners() -> Iterator[list[MonitorListener]]:
    opened: list[MonitorListener] = []
    yield opened
    for listener in opened:
        listener.close(0)


def listener_at(listeners: list[MonitorListener], directory: Path, port: int) -> Path:
    """The file of a scheduler that listens at this port."""
    listener = open_monitor_listener(None, Address("127.0.0.1", port), directory=str(directory))
    assert listener is not None
    listeners.append(listener)
    return Path(listener.address.path)


def opened(listeners: list[MonitorListener], named: str | None, directory: Path) -> MonitorListener:
    listener = open_monitor_listener(named, ADDRESS, directory=str(directory))
    assert listener is not None
    listeners.append(listener)
    return listener


def test_the_file_is_its_users_alone_and_goes_with_the_listener(
    listeners: list[MonitorListener], tmp_path: Path
) -> None:
    listener = opened(listeners, None, tmp_path)
    file = tmp_path / "127.0.0.1_2345_monitor"
    assert listener.address.url == f"ipc://{file}"
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600
    listener.close(0)
    assert not file.exists()


def test_messages_pass_both_ways_over_connections_that_no_other_listener_has(
    listeners: list[MonitorListener], tmp_path: Path
) -> None:
    listener = opened(listeners, None, tmp_path)
    connection = connect_file(listener.address)
    connection.send([b"hello"])
    inbox: list[tuple[int, list[bytes]]] = []
    while not inbox:
        assert select.select([listener.fileno()], [], [], 20)[0]
        inbox += [(peer, [bytes(frame) for frame in message]) for peer, message in listener.receive()]
    ((peer, message),) = inbox
    assert message == [b"hello"]
    assert peer >= FIRST_PEER
    listener.send(peer, [b"and", b"back"])
    assert select.select([connection.fileno()], [], [], 20)[0]
    assert [[bytes(frame) for frame in each] for each in connection.receive()] == [[b"and", b"back"]]
    connection.close(0)
    while not listener.state.take_gone():
        assert select.select([listener.fileno()], [], [], 20)[0]
        listener.receive()


def test_the_socket_of_a_scheduler_that_was_killed_is_taken_over(
    listeners: list[MonitorListener], tmp_path: Path
) -> None:
    file = tmp_path / "127.0.0.1_2345_monitor"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(file))
    assert opened(listeners, None, tmp_path).address.path == str(file)


def left(file: Path, age: float = 60.0) -> Path:
    """The socket of somebody who was killed, which was made so many seconds ago."""
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(file))
    os.utime(file, (time.time() - age, time.time() - age))
    return file


def test_the_sockets_of_schedulers_that_were_killed_go_when_another_one_begins(
    listeners: list[MonitorListener], tmp_path: Path
) -> None:
    left(tmp_path / "127.0.0.1_40001_monitor")
    left(tmp_path / "::1_40001_monitor")
    opened(listeners, None, tmp_path)
    assert os.listdir(tmp_path) == ["127.0.0.1_2345_monitor"]


def test_what_is_no_dead_schedulers_stays(listeners: list[MonitorListener], tmp_path: Path) -> None:
    alive = listener_at(listeners, tmp_path, 40002)
    os.utime(alive, (0, 0))
    stay = {alive, left(tmp_path / "127.0.0.1_40003_monitor", age=0.0), left(tmp_path / "disk_1_monitor")}
    datagrams = tmp_path / "127.0.0.1_40004_monitor"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(datagrams))
        os.utime(datagrams, (0, 0))
        (file := tmp_path / "127.0.0.1_40005_monitor").write_text("not ours")
        os.utime(file, (0, 0))
        opened(listeners, None, tmp_path)
    assert stay | {datagrams, file} < set(tmp_path.iterdir())


def test_the_socket_of_another_user_who_is_gone_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = left(tmp_path / "127.0.0.1_40001_monitor")
    if os.geteuid():
        pytest.skip("only root can give a file to somebody else")
    os.chown(dead, 12345, 12345)
    listener = open_monitor_listener(None, ADDRESS, directory=str(tmp_path))
    assert listener is not None
    listener.close(0)
    assert dead.exists()


def test_a_living_one_that_is_looked_at_has_nothing_to_say_of_it(
    listeners: list[MonitorListener], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alive = listener_at(listeners, tmp_path, 40002)
    os.utime(alive, (0, 0))
    opened(listeners, None, tmp_path)
    first = listeners[0]
    while not first.state.take_gone():
        assert select.select([first.fileno()], [], [], 20)[0]
        assert first.receive() == []
    assert first.tend(time.monotonic()) is None
    assert caplog.text == ""


def test_a_listener_that_was_replaced_leaves_the_other_ones_file(
    listeners: list[MonitorListener], tmp_path: Path
) -> None:
    first = opened(listeners, None, tmp_path)
    os.unlink(first.address.path)
    second = opened(listeners, None, tmp_path)
    first.close(0)
    assert Path(second.address.path).exists()


def test_where_others_can_put_something_else_in_its_place_it_is_elsewhere(
    listeners: list[MonitorListener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    assert opened(listeners, None, open_to_all).address.path == str(own / "127.0.0.1_2345_monitor")
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    with pytest.raises(AddressError, match="only you can write to"):
        open_monitor_listener(f"ipc://{open_to_all}/monitor", ADDRESS)


def test_something_else_under_its_name_is_left_alone(
    listeners: list[MonitorListener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, own = tmp_path / "127.0.0.1_2345_monitor", tmp_path / "own"
    file.write_text("not ours")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    assert opened(listeners, None, tmp_path).address.path == str(own / file.name)
    assert file.read_text() == "not ours"


def test_without_any_place_there_is_no_listener_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("scaler.transport.monitor_listener.private_directory", lambda: None)
    assert open_monitor_listener(None, ADDRESS, directory=str(tmp_path / "file")) is None
    assert "no local socket for monitors" in caplog.text
    assert keys.private_directory({"XDG_RUNTIME_DIR": str(tmp_path / "file" / "below")}) is None


def test_a_place_that_is_taken_is_named(listeners: list[MonitorListener], tmp_path: Path) -> None:
    opened(listeners, f"ipc://{tmp_path}/here", tmp_path)
    with pytest.raises(AddressInUse, match="another scheduler of yours"):
        open_monitor_listener(f"ipc://{tmp_path}/here", ADDRESS)


@pytest.mark.parametrize("text", ["/tmp/monitor", "ipc://relative", "inproc://x", "ipc:///" + 200 * "x"])
def test_an_address_that_is_no_file_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(AddressError) as raised:
        SocketFile.parse(text)
    assert "\n" not in str(raised.value)


def test_monitors_by_tcp_are_told_where(
    listeners: list[MonitorListener], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert opened(listeners, "tcp://127.0.0.1:2346", tmp_path).address.path.startswith(str(tmp_path))
    assert "at the scheduler's own address, tcp://127.0.0.1:2345" in caplog.text


def test_nobody_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="no scheduler is there") as raised:
        connect_file(SocketFile(str(tmp_path / "nothing")))
    assert "\n" not in str(raised.value)


def test_another_users_socket_is_not_used(
    listeners: list[MonitorListener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = opened(listeners, None, tmp_path)
    monkeypatch.setattr("scaler.transport.monitor_listener.uid_of", lambda connected: os.geteuid() + 1)
    with pytest.raises(ConnectionFailed, match="another user"):
        connect_file(listener.address)
