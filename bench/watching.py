"""What it costs a cluster to be watched: `python -m bench.watching [ROUNDS]`, about half a minute a round.

A local cluster of two workers, and three states in turn: nobody watches; scaler_top is open in a terminal; that and a
page of the dashboard, read by a program in the place of a browser. In each state the same four cases are run for some
seconds each, so that several snapshots are made in each, and the order of the states changes from round to round.
Printed are what a row takes by the clock while nobody watches, and for the other states the ratio to nobody's of the
same round: median and quartiles. Between the quartiles is what this machine can't tell from nothing. On a machine with
as many cores as workers the screens themselves take time from these; how much, the kernel says: their processor time
is printed as a share of one core. That is far finer than the clock: what is watched can't lose more than that, and what
the cluster's process does for being watched (below).

`python -m bench.watching processor [ROUNDS]` is for machines that are busy with other things, too: it counts the
processor time of the cluster's process for each row, not what a clock says. Screens are sessions of monitors that take
a snapshot a second, as screens do, in this process; their own work is left out. What being watched takes by itself,
without a row, is said, too.
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
from bench.programs import SCALER, account
from scaler import Client, SchedulerClusterCombo

ROUNDS = 10
#: seconds that a screen may take to show something
PATIENCE = 60.0
STATES = ("nobody", "top", "top and dashboard")


# ---- cases -----------------------------------------------------------------------------------------------------------
#: seconds of each visit to a state: snapshots are made in each
VISIT, LONG_VISIT = 1.2, 2.5


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


def visit(client: Client, pid: int, case: str, seconds: float) -> tuple[float, float]:
    """Microseconds for each row of a case: by the clock, and of the cluster's process."""
    rows, run = TURNS[case]
    done, before, begun = 0, used(pid), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        run(client, rows)
        done += rows
    took = time.perf_counter() - begun
    return 1e6 * took / done, 1e6 * (used(pid) - before) / done


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
def top(address: str) -> Iterator[int]:
    """scaler_top in a terminal of 120x40, once it shows the cluster; gives its process."""
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
    program = subprocess.Popen([*SCALER, "top", address], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        with _ended(program):
            if not shown.wait(PATIENCE):
                raise SystemExit(f"scaler_top showed nothing within {PATIENCE:g} s")
            yield program.pid
    finally:
        reader.join(5)
        os.close(ours)


@contextlib.contextmanager
def dashboard(address: str) -> Iterator[int]:
    """scaler_ui, and somebody who has its first page open; gives the process of the first."""
    command = [*SCALER, "ui", address, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with _ended(server):
        url = _line(server).partition("open ")[2].strip()
        reader = subprocess.Popen(
            [sys.executable, "-m", "bench.watching", "read", url], stdout=subprocess.PIPE, text=True
        )
        with _ended(reader):
            _line(reader)
            yield server.pid


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
#: how many sessions watch in each state
SESSIONS = {"nobody": 0, "top": 1, "top and dashboard": 2}


def used(pid: int) -> float:
    """Processor time of a process so far, seconds, all its threads."""
    return sum(ran for ran, _ in account(pid).values()) / 1e9


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
                        cost[case][state].append(visit(client, cluster.pid, case, VISIT)[1])
                        if case == "latency":
                            before = used(cluster.pid)
                            time.sleep(VISIT)
                            idle[state].append(1e3 * (used(cluster.pid) - before) / VISIT)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    print("the cluster's processor time for a row, us")
    report(cost)
    print("without a row, ms a second: " + ", ".join(f"{s} {statistics.median(of):.2f}" for s, of in idle.items()))


# ---- the whole -------------------------------------------------------------------------------------------------------
def report(measured: dict[str, dict[str, list[float]]]) -> None:
    """Print a line for each case."""
    print("median for nobody; ratios to nobody's of the same round: median (quartiles)")
    for case, of in measured.items():
        words = [f"{case:12} {statistics.median(of['nobody']):8.3f}"]
        for state in STATES[1:]:
            ratios = [each / base for each, base in zip(of[state], of["nobody"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            words.append(f"{state} {middle:.3f} ({low:.3f} to {high:.3f})")
        print("   ".join(words))


def main(rounds: int) -> None:
    """Measure and print."""
    measured: dict[str, dict[str, list[float]]] = {case: {state: [] for state in STATES} for case in TURNS}
    shares: dict[str, list[float]] = {"top": [], "dashboard": []}
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster) as client:
        for case in TURNS:
            visit(client, cluster.pid, case, VISIT)  # what is slow once is not counted
        for number in range(rounds):
            for state in (STATES, STATES[::-1])[number % 2]:
                with contextlib.ExitStack() as screens:
                    shown: dict[str, int] = {}
                    if "top" in state:
                        shown["top"] = screens.enter_context(top(cluster.monitor_address))
                    if "dashboard" in state:
                        shown["dashboard"] = screens.enter_context(dashboard(cluster.monitor_address))
                    before, begun = {screen: used(pid) for screen, pid in shown.items()}, time.perf_counter()
                    for case in TURNS:
                        measured[case][state].append(visit(client, cluster.pid, case, LONG_VISIT)[0])
                    took = time.perf_counter() - begun
                    for screen, pid in shown.items():
                        shares[screen].append(100 * (used(pid) - before[screen]) / took)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    print("a row by the clock, us")
    report(measured)
    for screen, of in shares.items():
        low, middle, high = statistics.quantiles(of, n=4)
        print(f"{screen} itself takes {middle:.2f} % ({low:.2f} to {high:.2f}) of a core")


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(sys.argv[2]))
    elif sys.argv[1:2] == ["processor"]:
        processor(max(2, int(sys.argv[2])) if len(sys.argv) > 2 else ROUNDS)
    else:
        main(max(2, int(sys.argv[1])) if len(sys.argv) > 1 else ROUNDS)
