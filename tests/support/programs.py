"""Programs in the background: the scheduler and the agents as daemons, and scripts as a user writes them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaler import Client
from support.ports import fresh_address
from support.waiting import DEADLINE, patience, until

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which a program can import what this one can."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}


def _nothing(number: int, frame: object) -> None:
    """Ignore a signal, as a handler: unlike SIG_IGN nobody inherits that."""


# What a shell that runs the tests in the background, or nohup, has made them ignore, the programs that they start are
# to heed. A `preexec_fn` would do as well, but for that Python forks: 30 ms in a process that has all tests in memory.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _nothing)


class Program:
    """A program that runs, and what it has printed, both streams together."""

    def __init__(
        self, command: list[str], output: Path, *, env: dict[str, str] | None = None, group: bool = False
    ) -> None:
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env or environment(),
                start_new_session=group,
            )  # fmt: skip
        self.pid = self.process.pid

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")

    def says(self, pattern: str, deadline: float = DEADLINE) -> re.Match[str]:
        """Wait until it has printed this; fail if it ends without, or after so many seconds."""

        def look() -> Any:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.text)
            assert found or not ended, f"ended with {self.process.returncode} without {pattern!r}:\n{self.text[-3000:]}"
            return found

        try:
            return until(look, deadline=deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}: {pattern!r} in\n{self.text[-3000:]}") from None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ends(self, within: float) -> int:
        """Wait for its end and return its exit code."""
        try:
            return self.process.wait(patience(within))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {within:g} s:\n{self.text[-3000:]}") from None

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def program(name: str, module: str) -> list[str]:
    """Return the command that runs one of the engine's programs by the name it is installed under."""
    return [sys.executable, "-c", f"import sys; sys.argv[0] = {name!r}; from scaler.cli.{module} import main; main()"]


class Daemons:
    """Scheduler, agents and clients of one test, each a process of its own on a free port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._programs: list[Program] = []
        self._clients: list[Client] = []
        self.scheduler: Program
        self.address = fresh_address()

    def run(
        self,
        name: str,
        module: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> Program:
        """Start a program of the engine, `through` a command that runs what comes behind it; look no further."""
        output = self._directory / f"{len(self._programs)}_{name}.log"
        made = Program([*through, *program(name, module), *arguments], output, env=env)
        self._programs.append(made)
        return made

    def start_scheduler(self, *options: str) -> Program:
        """Start a scheduler at `address`; returns when it listens."""
        self.scheduler = self.run("scaler_scheduler", "scheduler", *options, self.address)
        self.address = self.scheduler.says(r"listens at (tcp://\S+)")[1]
        return self.scheduler

    def start_agent(self, workers: int = 1, *options: str) -> Program:
        """Start an agent; returns when it is connected and its workers have started. It ends at once when told to."""
        grace = "--drain-grace", "0"
        agent = self.run("scaler_cluster", "cluster", "-n", str(workers), *grace, *options, self.address)
        agent.says("connected to the scheduler")
        agent.says(rf"Worker\[{workers - 1}\] started")
        return agent

    def client(self, **options: Any) -> Client:
        """Return a client that is disconnected after the test."""
        client = Client(self.address, **options)
        self._clients.append(client)
        return client

    def state(self) -> str:
        """Ask the scheduler what it holds; the line it logs."""
        before = self.scheduler.text.count("Scheduler: holds ")
        self.scheduler.signal(signal.SIGUSR1)
        until(lambda: self.scheduler.text.count("Scheduler: holds ") > before, "the scheduler's state")
        return self.scheduler.text.rpartition("Scheduler: holds ")[2].splitlines()[0]

    def close(self) -> None:
        """End all of them."""
        for client in self._clients:
            client.disconnect()
        for running in reversed(self._programs):
            running.stop()


class Scripts:
    """Scripts of one test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._programs: list[Program] = []

    def start(self, text: str, *arguments: str, group: bool = False, **env: str) -> Program:
        """Run a script; with `group` as the leader of a process group, as a shell does."""
        path = self._directory / f"script_{len(self._programs)}.py"
        path.write_text(textwrap.dedent(text))
        made = Program(
            [sys.executable, str(path), *arguments], path.with_suffix(".out"), env=environment(**env), group=group
        )
        self._programs.append(made)
        return made

    def run(self, text: str, *arguments: str, within: float = 30.0, **env: str) -> str:
        """Run a script to its end, which has to be a good one, and return what it printed."""
        made = self.start(text, *arguments, **env)
        code = made.ends(within)
        assert code == 0, made.text[-3000:]
        return made.text

    def close(self) -> None:
        """End all of them."""
        for running in self._programs:
            running.stop()
