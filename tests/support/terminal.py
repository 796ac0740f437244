"""A terminal with a shell in it, as a user has: Ctrl-C reaches whatever the shell runs in the foreground."""

import contextlib
import fcntl
import itertools
import os
import re
import signal
import subprocess
import sys
import termios
import textwrap
import threading
from pathlib import Path

import psutil

from support.programs import environment
from support.waiting import DEADLINE, until

#: the shell outlives the program: what that leaves is not ended by the end of the session
_SHELL = 'trap : INT QUIT; "$@"; code=$?; echo "ended with $code"; read line'
#: what a shell says of a program that Ctrl-C has ended
INTERRUPTED = 128 + signal.SIGINT


def _take_terminal() -> None:
    """In the child: its standard input is the terminal that controls its session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A script that runs in the foreground of a terminal of its own; `temporary` is its directory for such files."""

    def __init__(self, script: Path, *arguments: str) -> None:
        self.temporary = script.with_suffix(".tmp")
        self.temporary.mkdir()
        self._screen, inside = os.openpty()
        self._said = bytearray()
        try:
            self.shell = subprocess.Popen(
                ["sh", "-c", _SHELL, "sh", sys.executable, str(script), *arguments],
                stdin=inside, stdout=inside, stderr=inside, env=environment(TMPDIR=str(self.temporary), NO_COLOR="1"),
                start_new_session=True, preexec_fn=_take_terminal,
            )  # fmt: skip
        finally:
            os.close(inside)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # nobody has the other end any more
            while data := os.read(self._screen, 65536):
                self._said += data

    @property
    def text(self) -> str:
        """What is on the screen."""
        return self._said.decode(errors="replace").replace("\r\n", "\n")

    def says(self, pattern: str, deadline: float = DEADLINE) -> re.Match[str]:
        """Wait until this is on the screen."""
        try:
            found: re.Match[str] = until(lambda: re.search(pattern, self.text), repr(pattern), deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{self.text[-3000:]}") from None
        return found

    def rests(self) -> None:
        """Wait until the program's main thread sleeps. A Ctrl-C between Python's last look for one and the kernel's
        begin of `time.sleep` wakes nobody: plain Python on busy processors misses one of 10,000 to 100,000 then.
        """
        until(lambda: [p.status() for p in psutil.Process(self.shell.pid).children()] == ["sleeping"], "it to sleep")

    def press_ctrl_c(self) -> None:
        """Press it once."""
        os.write(self._screen, b"\x03")

    def ends(self, within: float) -> int:
        """Wait for the program's end; what the shell says of it."""
        try:
            return int(self.says(r"ended with (\d+)\n", within)[1])
        except AssertionError as error:
            os.write(self._screen, b"\x1c")  # Ctrl-\: a program that has registered it shows where its threads are
            with contextlib.suppress(AssertionError):
                self.says("most recent call first", 2.0)
            raise AssertionError(f"{str(error).splitlines()[0]}\n{self.text[-5000:]}") from None

    def close(self) -> None:
        """Close the terminal's window: whatever still runs in it is told."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()
        self._reader.join(DEADLINE)
        os.close(self._screen)


class Terminals:
    """Those of one test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._opened: list[Terminal] = []
        self._numbers = itertools.count()

    def run(self, text: str, *arguments: str) -> Terminal:
        """Run a script in a terminal of its own."""
        script = self._directory / f"script_{next(self._numbers)}.py"
        script.write_text(textwrap.dedent(text))
        self._opened.append(Terminal(script, *arguments))
        return self._opened[-1]

    def close(self) -> None:
        """Close all of them."""
        while self._opened:
            self._opened.pop().close()
