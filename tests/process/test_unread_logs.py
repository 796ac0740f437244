"""Programs whose log nobody reads any more, as that of a stopped `less`: they lose lines of it, and nothing else."""

import contextlib
import os
import select
import signal
import socket
import subprocess

import pytest
from support import until
from support.programs import environment, program

from scaler import Client


class Unread:
    """A program whose output is a full pipe, or a terminal at which somebody has pressed Ctrl-S."""

    def __init__(self, kind, *command):
        self._is_pipe = kind == "pipe"
        self._reads, writes = os.pipe() if self._is_pipe else os.openpty()
        if self._is_pipe:
            os.set_blocking(writes, False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writes, b"-" * 99 + b"\n")
            os.set_blocking(writes, True)
        else:
            os.write(self._reads, b"\x13")
            until(lambda: not select.select([], [writes], [], 0)[1], "the terminal's stop")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=writes, stderr=writes, env=environment()
        )
        os.close(writes)

    def read(self):
        """What is there, but for what it was filled with; a terminal goes on."""
        text = b""
        if not self._is_pipe:
            os.write(self._reads, b"\x11")
        while select.select([self._reads], [], [], 0)[0] and (data := self._chunk()):
            text += data
        return text.decode().replace("\r\n", "\n").lstrip("-\n")

    def _chunk(self):
        try:
            return os.read(self._reads, 65536)
        except OSError:  # so ends a terminal
            return b""

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._reads)


@pytest.fixture
def start(daemons):
    """Starts such programs, which end before those of `daemons`."""
    with contextlib.ExitStack() as stack:

        def start(kind, *command):
            made = Unread(kind, *command)
            stack.callback(made.close)
            return made

        yield start


@pytest.fixture
def address():
    """One at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"tcp://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
@pytest.mark.parametrize("how", [[], ["--supervise"]])
def test_a_scheduler_whose_log_nobody_reads_serves_and_ends(daemons, start, address, kind, how):
    scheduler = start(kind, *program("scaler_scheduler", "scheduler"), *how, address)
    door = f"/tmp/127.0.0.1_{address.rpartition(':')[2]}_monitor"
    until(lambda: os.path.exists(door), "the scheduler")
    daemons.address = address
    daemons.start_agent(1)
    with Client(address) as client:
        assert client.submit(abs, -3).result(20) == 3
    scheduler.process.send_signal(signal.SIGTERM)
    assert scheduler.process.wait(20) == 0
    assert not os.path.exists(door)


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_a_host_whose_log_nobody_reads_works_and_ends(daemons, start, kind):
    def speak(number):
        import logging

        print("x" * 500)
        logging.getLogger("mine").warning("y" * 500)
        return number

    daemons.start_scheduler()
    host = "-n", "2", "--drain-grace", "0", daemons.address
    agent = start(kind, *program("scaler_cluster", "cluster"), *host)
    client = daemons.client()
    futures = [client.submit(speak, number) for number in range(300)]
    assert [future.result(20) for future in futures] == list(range(300))
    assert " 1 agents" in daemons.state()
    agent.read()
    said = []

    def is_noted():  # with a line that is there after what was missing
        client.submit(speak, 1).result(20)
        said.append(agent.read())
        return "lines are missing here, as nobody has read the log: " in "".join(said)

    until(is_noted)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(20) == 0
    said.append(agent.read())
    assert "ClusterProcess: ended" in "".join(said)
