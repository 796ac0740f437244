"""scaler_top before a real cluster: in a real terminal, as text, and as JSON."""

import contextlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support import DEADLINE, until
from support.programs import environment, program

PATIENCE = ["--heartbeat-interval", "0.2", "--client-timeout", "5", "--agent-timeout", "5"]
TMUX = shutil.which("tmux")


def hold(path):
    """Run until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return path


class Tmux:
    """A terminal of a size, with a server of its own."""

    def __init__(self, socket: str) -> None:
        assert TMUX is not None
        self._socket = socket

    def __call__(self, *arguments: str) -> str:
        env = {
            name: value
            for name, value in environment(TERM="xterm-256color", COLUMNS="70", LINES="20").items()
            if name != "TMUX"
        }
        command = [str(TMUX), "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env).stdout

    def start(self, command: list[str], columns: int, lines: int) -> None:
        """Run a program in it; the terminal outlives it, and says how it ended."""
        text = f"{shlex.join(command)}; echo ended with $?; read line"
        self("new-session", "-d", "-x", str(columns), "-y", str(lines), text)

    def screen(self) -> str:
        """What it shows."""
        return self("capture-pane", "-p")

    def shows(self, pattern: str) -> str:
        """Wait until it shows this; all that it shows."""
        shown = ""

        def look() -> bool:
            nonlocal shown
            shown = self.screen()
            return re.search(pattern, shown, re.MULTILINE) is not None

        try:
            until(look, repr(pattern), DEADLINE)
        except AssertionError as error:
            raise AssertionError(f"{error}; on the screen:\n{shown}") from None
        return shown

    def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        self("send-keys", *keys)

    def close(self) -> None:
        """End the terminal and whatever runs in it."""
        self("kill-server")


@pytest.fixture
def tmux(traces) -> Iterator[Tmux]:
    if TMUX is None:
        pytest.skip("there is no tmux here: apt-get install tmux")
    with tempfile.TemporaryDirectory(prefix="scaler-top-") as directory:  # a socket's path may not be long
        made = Tmux(f"{directory}/tmux")
        yield made
        made.close()


@pytest.fixture
def busy(daemons, tmp_path):
    """A scheduler, two workers that have something to do, and what ends that; the monitor's address."""
    daemons.start_scheduler(*PATIENCE)
    daemons.start_agent(2, "--name", "first-host")
    file = tmp_path / "go"
    client = daemons.client()
    futures = [client.submit(hold, str(file)) for _ in range(5)]
    yield daemons.scheduler.says(r"monitor address is (ipc://\S+)")[1]
    file.touch()
    with contextlib.suppress(Exception):
        for future in futures:
            future.result(DEADLINE)


def test_the_documents_screen_in_a_terminal_its_keys_and_the_end_of_its_scheduler(tmux, daemons, busy):
    tmux.start([*program("scaler_top", "top"), "--interval", "0.2", busy], 120, 40)
    shown = tmux.shows(r"(?s)\| +running +2 \|.*client_manager\n(.*\|first-host\|.* 111 +\|){2}.*6 messages")
    lines = [line.rstrip() for line in shown.splitlines()]
    assert [part.strip() for part in lines[0].split(" | ")] == [
        "scheduler", "task_manager", "scheduler_sent", "scheduler_received"
    ]  # fmt: skip
    assert re.match(r" +cpu +\d+\.\d% \| +unassigned +3 \| +HeartbeatEcho +\d+ \| +Heartbeat +\d+$", lines[1])
    assert re.match(r" +rss +\d+\.\dm \| +running +2 \|", lines[2])
    assert [line.split("|")[1].split()[:1] for line in lines[3:7]] == [
        ["success"], ["failed"], ["canceled"], ["not_found"]
    ]  # fmt: skip
    rule = lines.index("-" * 120)
    assert lines[rule + 1].startswith(
        "Shortcuts: worker[n] agt_cpu[C] agt_rss[M] cpu[c] rss[m] free[f] sent[w] queued[d] lag[l]"
    )
    assert lines[rule + 3].startswith("Total 2 worker(s)")
    assert re.match(
        r"worker +agt_cpu agt_rss +\[cpu\] +rss free sent queued +lag ITL +\| client_manager$", lines[rule + 4]
    )
    for line in lines[rule + 5 : rule + 7]:
        assert re.match(
            r"\d+\|first-host\|\d+\.[01] +\d+\.\d% +\d+\.\dm +\d+\.\d% +\d+\.\dm +0 +\d +\d +\S+ 111 +\|", line
        ), line
    assert re.search(r"\| func_to_num_tasks$", shown, re.MULTILINE)
    assert re.search(r"\| .*hold +5$", shown, re.MULTILINE)

    for key, name in [("m", "rss"), ("d", "queued"), ("c", "cpu"), ("q", "queued"), ("n", "worker"), ("C", "agt_cpu")]:
        tmux.press(key)
        tmux.shows(rf"^worker.* \[{name}\] |^\[{name}\] ")
    tmux.press("2")
    tmux.shows(r"^first-host +")
    tmux.press("1", "Enter")
    tmux.shows(r"^ +runs .*hold$")
    tmux.press("Escape")
    tmux("resize-window", "-x", "20", "-y", "5")
    tmux.shows("^needs 60x15: enlarge$")
    tmux("resize-window", "-x", "60", "-y", "15")
    tmux.shows(r"^Total 2 worker\(s\)")
    (top,) = psutil.Process(int(tmux("display-message", "-p", "#{pane_pid}"))).children()
    tmux.press("C-z")
    until(lambda: top.status() == psutil.STATUS_STOPPED, "it to be stopped")
    assert "Shortcuts" not in tmux.screen()
    top.send_signal(signal.SIGCONT)
    tmux.shows(r"(?s)^scheduler .*^Shortcuts: .*^Total 2 worker")
    daemons.scheduler.signal(signal.SIGKILL)
    tmux.shows(r"^no scheduler since \d\d:\d\d:\d\d")
    daemons.start_scheduler(*PATIENCE)
    tmux.shows(r"^ *\nTotal 2 worker\(s\)")
    tmux.press("Q")
    tmux.shows("^ended with 0$")


def test_one_screen_as_text_and_one_line_of_json_where_there_is_no_terminal(busy):
    def said(*arguments: str) -> str:
        command = [*program("scaler_top", "top"), *arguments, busy]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment(COLUMNS="160", LINES="40"), check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout

    data = json.loads(said("--json", "--once"))
    assert [agent["name"] for agent in data["agents"]] == ["first-host"]
    text = said()
    assert "\x1b" not in text
    assert re.search(r"^Total 2 worker\(s\)", text, re.MULTILINE)
    for worker in data["workers"]:
        assert f"{worker['pid']}|first-host|{worker['worker']} " in text
    assert re.search(r"^\S*hold +", said("--once", "--view", "functions"), re.MULTILINE)


def test_whoever_reads_json_may_stop_whenever_they_like(busy):
    command = f"{shlex.join(program('scaler_top', 'top'))} --json --interval 0.1 {busy} | head -n 2"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert ended.stderr == ""
    assert [json.loads(line)["schema"] for line in ended.stdout.splitlines()] == [1, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_nothing_that_draws_is_loaded_where_nothing_is_drawn(busy):
    text = f"""
import sys
from scaler.cli.top import command
from scaler.cli.command import call
code = call(command, "scaler_top", ["--once", {busy!r}])
print(code, "textual" in sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env=environment(), check=True
    )
    assert ended.stdout.splitlines()[-1] == "0 False"
