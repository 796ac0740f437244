"""The lock of a program that tasks take: one has it at a time, who ends gives it back, and strangers get nothing."""

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading

import pytest
from support import until

from scaler_dask import program_lock
from scaler_dask.program_lock import ProgramLock, RemoteLock

TAKE = """
import pickle, sys
lock = pickle.loads(bytes.fromhex(sys.argv[1]))
assert lock.acquire()
print("mine", flush=True)
sys.stdin.readline()
if sys.argv[2] == "release":
    lock.release()
    print("given back", flush=True)
    sys.stdin.readline()
"""


def remote(lock: ProgramLock) -> RemoteLock:
    """What another process gets."""
    return RemoteLock(*lock.__reduce__()[1])


@pytest.fixture
def lock() -> ProgramLock:
    return ProgramLock("127.0.0.1")


def test_one_has_it_at_a_time_wherever_it_is(lock):
    here, there, other = lock, remote(lock), remote(lock)
    with there:
        assert here.locked()
        assert other.locked()
        assert not here.acquire(blocking=False)
        assert not other.acquire(timeout=0.01)
    until(lambda: not here.locked())
    with here:
        assert not there.acquire(False)
        waiting = threading.Thread(target=there.acquire)
        waiting.start()
    waiting.join(10)
    assert here.locked()
    there.release()
    until(lambda: not here.locked())
    assert not there.locked()


def test_a_copy_in_the_program_itself_is_the_lock(lock):
    copy = pickle.loads(pickle.dumps(lock))
    assert type(copy) is ProgramLock
    with copy:
        assert lock.locked()


def test_a_process_that_was_forked_takes_it_at_the_program(lock):
    """Workers may be forked from a program that has locks: its copies of them would be theirs alone."""
    lock.acquire()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        copy = pickle.loads(pickle.dumps(lock))
        os.write(writer, b"taken" if copy.acquire(False) else b"refused")
        os._exit(0)
    assert os.read(reader, 10) == b"refused"
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    lock.release()


@pytest.mark.parametrize("how", ["release", "die"])
def test_a_process_that_ends_gives_it_back(lock, how):
    command = [sys.executable, "-c", TAKE, pickle.dumps(lock).hex(), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as taker:
        try:
            assert taker.stdout.readline() == "mine\n"
            assert lock.locked()
            if how == "die":
                taker.kill()
            else:
                taker.stdin.write("\n")
                taker.stdin.flush()
                assert taker.stdout.readline() == "given back\n"
            assert lock.acquire(timeout=30)
            lock.release()
        finally:
            taker.kill()


def test_who_waits_and_ends_does_not_keep_it(lock):
    with lock, pytest.raises(ConnectionError), impatient(remote(lock)) as waiting:
        waiting.acquire()
    assert lock.acquire(timeout=30)
    lock.release()


class impatient:
    """The connection of a lock ends while it waits."""

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        self.original = program_lock._keep_alive

        def cut(connection):
            if threading.current_thread() is threading.main_thread():
                connection.shutdown(socket.SHUT_RDWR)

        program_lock._keep_alive = cut
        return self.lock

    def __exit__(self, *exc):
        program_lock._keep_alive = self.original


def test_strangers_and_the_forgotten_get_nothing(lock, monkeypatch):
    monkeypatch.setattr(program_lock, "_PATIENCE", 0.5)
    host, port, key, number = lock.__reduce__()[1]
    for other in ((host, port, bytes(32), number), (host, port, key, number ^ 1)):
        with pytest.raises(ConnectionError, match=r"the program at 127.0.0.1:.* has ended, or does not know this lock"):
            RemoteLock(*other).acquire()
    assert not lock.locked()
    for said in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection((host, port), 5) as stranger:
            stranger.sendall(said)
            stranger.settimeout(10)
            with contextlib.suppress(ConnectionError):
                while stranger.recv(1000):
                    pass
    with remote(lock):
        assert lock.locked()


def test_a_program_that_is_not_reached_is_named_with_what_to_do(lock):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionError, match=rf"not reached at 127.0.0.1:{port} from here .*: give a lock"):
        RemoteLock("127.0.0.1", port, bytes(32), 1).acquire()


def test_a_program_that_has_no_thread_left_for_one_serves_the_next(lock, monkeypatch):
    start, refused = threading.Thread.start, []

    def once(thread):
        if thread.name == "scaler-dask-lock" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    with pytest.raises(ConnectionError, match="has ended, or does not know this lock any more"):
        remote(lock).acquire()
    with remote(lock):
        assert lock.locked()


def test_what_nobody_has_is_not_given_back(lock):
    for one in (lock, remote(lock)):
        with pytest.raises(RuntimeError, match="release unlocked lock"):
            one.release()
