"""What it costs a cluster to be watched: `python -m bench.watching [ROUNDS]`, about four minutes.

A local cluster of two workers, and three states in turn: nobody watches; scaler_top is open in a terminal; that and a
page of the dashboard, read by a program in the place of a browser. In each state the same four cases are run, and the
order of the states changes from round to round. Printed are the medians of each state, their ratio to nobody's, and the
spread of nobody's own rounds, below which a ratio says nothing. On a machine with as many cores as workers the screens
themselves take time from these: run it where there are more, or take it into account.

`python -m bench.watching processor [ROUNDS]` is for machines that are busy with other things, too: it counts the
processor time of the cluster's process for each row, not what a clock says. Screens are sessions of monitors that take
a snapshot a second, as screens do, in this process; their own work is left out. States follow each other within
seconds, there and back, and ratios are of neighbours. What being watched takes by itself, without a row, is said, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from bench import work
from scaler import Client, SchedulerClusterCombo

ROUNDS = 5
#: how often a case is run in one visit to a state; the median counts
TIMES = 3
#: seconds after which no further round begins: all is over within six minutes
ENOUGH = 270.0
#: seconds that a screen may take to show something
PATIENCE = 60.0
STATES = ("nobody", "top", "top and dashboard")
_SCALER = [sys.executable, "-c", "from scaler.cli.main import main; main()"]


# ---- cases: seconds --------------------------------------------------------------------------------------------------
def submit(client: Client) -> float:
    """A row at a time, until all are sent; their results are not counted."""
    began = time.perf_counter()
    futures = [client.submit(work.noop, value) for value in range(20_000)]
    took = time.perf_counter() - began
    for future in futures:
        future.result()
    return took


def many(client: Client) -> float:
    """`map` of rows that take nothing."""
    began = time.perf_counter()
    client.map(work.noop, range(300_000))
    return time.perf_counter() - began


def latency(client: Client) -> float:
    """The median of rows one after the other."""
    took = []
    for value in range(500):
        began = time.perf_counter()
        client.submit(work.noop, value).result()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def short(client: Client) -> float:
    """Rows of a millisecond."""
    began = time.perf_counter()
    for future in [client.submit(work.spin_1ms, value) for value in range(1_500)]:
        future.result()
    return time.perf_counter() - began


CASES: dict[str, Callable[[Client], float]] = {
    "submit (20,000)": submit, "map (300,000)": many, "latency (one)": latency, "1 ms tasks (1,500)": short,
}  # fmt: skip


# ---- screens ---------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def _ended(program: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        program.terminate()
        try:
            program.wait(10)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


@contextlib.contextmanager
def top(address: str) -> Iterator[None]:
    """scaler_top in a terminal of 120x40, once it shows the cluster."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    shown, seen = threading.Event(), bytearray()

    def drain() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 1 << 16):
                if not shown.is_set():
                    seen.extend(data)
                    if b"task_manager" in seen:
                        shown.set()

    env = os.environ | {"TERM": "xterm-256color"}
    program = subprocess.Popen([*_SCALER, "top", address], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        with _ended(program):
            if not shown.wait(PATIENCE):
                raise SystemExit(f"scaler_top showed nothing within {PATIENCE:g} s")
            yield
    finally:
        reader.join(5)
        os.close(ours)


@contextlib.contextmanager
def dashboard(address: str) -> Iterator[None]:
    """scaler_ui, and somebody who has its first page open."""
    command = [*_SCALER, "ui", address, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with _ended(server):
        url = _line(server).partition("open ")[2].strip()
        reader = subprocess.Popen(
            [sys.executable, "-m", "bench.watching", "read", url], stdout=subprocess.PIPE, text=True
        )
        with _ended(reader):
            _line(reader)
            yield


def _line(program: subprocess.Popen[Any]) -> str:
    """What a program says first."""
    assert program.stdout is not None
    line: str = program.stdout.readline()
    if not line:
        raise SystemExit(f"{program.args!r} ended before it said anything")
    return line


async def read(url: str) -> None:
    """Open a page as a browser does, and take what it is sent; says so when something comes."""
    from tornado.httpclient import AsyncHTTPClient, HTTPRequest
    from tornado.websocket import websocket_connect

    parts = urlsplit(url)
    cookie = {"Cookie": f"scaler_ui_{parts.port}={parts.query.removeprefix('token=')}"}
    page = await AsyncHTTPClient().fetch(HTTPRequest(f"http://{parts.netloc}/", headers=cookie))
    token = json.loads(page.body.decode().partition('id="page">')[2].partition("</script>")[0])["token"]
    request = HTTPRequest(f"ws://{parts.netloc}/ws", headers=cookie | {"Origin": f"http://{parts.netloc}"})
    socket = await websocket_connect(request, subprotocols=["bokeh", token], max_message_size=1 << 26)
    await socket.read_message()  # it is spoken to when it has said that it listens
    for part in ({"msgid": "1", "msgtype": "PULL-DOC-REQ"}, {}, {}):
        await socket.write_message(json.dumps(part))
    said = False
    while (message := await socket.read_message()) is not None:
        if not said and isinstance(message, str) and "PATCH-DOC" in message:
            print("open", flush=True)
            said = True


# ---- processor time --------------------------------------------------------------------------------------------------
#: seconds of each visit to a state: a snapshot is made in each
VISIT = 1.2
#: how many sessions watch in each state
SESSIONS = {"nobody": 0, "top": 1, "top and dashboard": 2}


def _wait_for(futures: list[Any]) -> None:
    for future in futures:
        future.result()


#: rows of a turn, and what runs them
TURNS: dict[str, tuple[int, Callable[[Client, int], Any]]] = {
    "submit": (2_000, lambda client, rows: _wait_for([client.submit(work.noop, value) for value in range(rows)])),
    "map": (30_000, lambda client, rows: client.map(work.noop, range(rows))),
    "latency": (50, lambda client, rows: [client.submit(work.noop, value).result() for value in range(rows)]),
    "1 ms tasks": (200, lambda c, rows: _wait_for([c.submit(work.spin_1ms, value) for value in range(rows)])),
}


def used(pid: int) -> float:
    """Processor time of a process so far, seconds, all its threads; by the kernel's scheduler, in nanoseconds."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def visit(client: Client, pid: int, case: str) -> float:
    """Microseconds of the cluster's process for each row of a case."""
    rows, run = TURNS[case]
    done, before, until = 0, used(pid), time.monotonic() + VISIT
    while time.monotonic() < until:
        run(client, rows)
        done += rows
    return 1e6 * (used(pid) - before) / done


def processor(rounds: int) -> None:
    """Measure and print."""
    from scaler.monitor import Watcher

    cost: dict[str, dict[str, list[float]]] = {case: {state: [] for state in STATES} for case in TURNS}
    idle: dict[str, list[float]] = {state: [] for state in STATES}
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster) as client:
        for rows, run in TURNS.values():
            run(client, rows)
        for number in range(rounds):
            for case in TURNS:
                for state in (STATES, STATES[::-1])[number % 2]:
                    with contextlib.ExitStack() as screens:
                        for _ in range(SESSIONS[state]):
                            watcher = screens.enter_context(Watcher(cluster.monitor_address))
                            watcher.wait(0, PATIENCE)
                        cost[case][state].append(visit(client, cluster.pid, case))
                        if case == "latency":
                            before = used(cluster.pid)
                            time.sleep(VISIT)
                            idle[state].append(1e3 * (used(cluster.pid) - before) / VISIT)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    print("the cluster's processor time for a row, us: median for nobody; ratios of neighbours: median (quartiles)")
    for case, of in cost.items():
        words = [f"{case:12} {statistics.median(of['nobody']):8.3f}"]
        for state in STATES[1:]:
            low, middle, high = statistics.quantiles(
                [each / base for each, base in zip(of[state], of["nobody"], strict=True)], n=4
            )
            words.append(f"{state} {middle:.3f} ({low:.3f} to {high:.3f})")
        print("   ".join(words))
    print("without a row, ms a second: " + ", ".join(f"{s} {statistics.median(of):.2f}" for s, of in idle.items()))


# ---- the whole -------------------------------------------------------------------------------------------------------
def main(rounds: int) -> None:
    """Measure and print."""
    measured: dict[str, dict[str, list[float]]] = {case: {state: [] for state in STATES} for case in CASES}
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster) as client:
        for run in CASES.values():
            run(client)  # what is slow once is not counted
        began, done = time.monotonic(), 0
        for number in range(rounds):
            if time.monotonic() - began > ENOUGH * number / (number + 1) and number:
                break
            for state in (STATES, STATES[::-1])[number % 2]:
                with contextlib.ExitStack() as screens:
                    if "top" in state:
                        screens.enter_context(top(cluster.monitor_address))
                    if "dashboard" in state:
                        screens.enter_context(dashboard(cluster.monitor_address))
                    for case, run in CASES.items():
                        measured[case][state].append(statistics.median(run(client) for _ in range(TIMES)))
            done += 1
            print(f"round {done} of {rounds}", file=sys.stderr, flush=True)
    print(f"milliseconds, medians of {done} rounds; ratio to nobody's; spread of nobody's rounds")
    for case, of in measured.items():
        alone = statistics.median(of["nobody"])
        spread = (max(of["nobody"]) - min(of["nobody"])) / alone
        words = [f"nobody {1000 * alone:9.2f} (spread {100 * spread:4.1f} %)"]
        for state in STATES[1:]:
            ratio = statistics.median(of[state]) / alone
            pairs = statistics.median(each / base for each, base in zip(of[state], of["nobody"], strict=True))
            words.append(f"{state} {ratio:.3f} (of pairs {pairs:.3f})")
        print(f"{case:20}" + "   ".join(words))


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(sys.argv[2]))
    elif sys.argv[1:2] == ["processor"]:
        processor(int(sys.argv[2]) if len(sys.argv) > 2 else 2 * ROUNDS)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
