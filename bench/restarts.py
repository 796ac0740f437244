"""`python -m bench.restarts`: the scheduler is killed again and again under a queue of many rows.

Prints how long after each kill the first client hears of another row, and how many rows ran twice. Ten kills each, with
1 and 20 clients and 1 and 20 agents of one worker, unless told otherwise.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

import scaler
from bench.programs import free_port, start

#: seconds of calm between two kills
BETWEEN = 2.0
#: seconds that a row takes with one agent and with many, which leave the clients less time to submit
LASTS, LASTS_AMONG_MANY = 50e-6, 250e-6
#: seconds without anything that a client hears or submits, after which a cluster counts as stuck
PATIENCE = 120.0
#: seconds between two of its looks that tell that nobody ran meanwhile
STOOD_STILL = 5.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.restarts", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all clients together (default: 1,000,000)")
    parser.add_argument("--kills", type=int, default=10, help="kills in each setting (default: 10)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 20])
    return parser.parse_args()


def _noting(directory: str, lasts: float) -> Callable[[int], int]:
    """A function that leaves a line for each row it runs."""
    opened: dict[str, int] = {}  # of each worker

    def noted(number: int) -> int:
        if "file" not in opened:
            opened["file"] = os.open(f"{directory}/{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(opened["file"], b"%d\n" % number)
        until = time.perf_counter() + lasts
        while time.perf_counter() < until:
            pass
        return number

    return noted


def _be_client(
    address: str, directory: str, lasts: float, first: int, rows: int, heard: SynchronizedArray[int], at: int
) -> None:
    """Submit rows, and tell how many have ended; they end about in order. Shows where it is when it is asked to.

    `heard[at]` is below 0 until all are queued: how many are not. Then it is how many have ended, and one.
    """
    faulthandler.register(signal.SIGUSR1)
    with scaler.Client(address, timeout=60, reconnect=120) as client:
        noted = _noting(directory, lasts)
        futures: list[scaler.ScalerFuture] = []
        for number in range(first, first + rows):
            if len(futures) % 1000 == 0:
                heard[at] = len(futures) - rows
            futures.append(client.submit(noted, number))
        heard[at] = 1
        ended = 0
        while ended < rows:
            before = ended
            while ended < rows and futures[ended].done():
                ended += 1
            heard[at] = ended + 1
            if ended == before:
                time.sleep(0.002)
        assert [future.result() for future in futures] == list(range(first, first + rows))


def _wait(
    condition: Callable[[], bool], heard: SynchronizedArray[int], clients: list[multiprocessing.Process]
) -> float:
    """Seconds until it holds, without those in which this process stood still as well, as in a suspended machine."""
    began = last = moved = time.monotonic()
    before: list[int] = []
    while not condition():
        now, seen = time.monotonic(), heard[:]
        if now - last > STOOD_STILL:
            began += now - last
        if now - last > STOOD_STILL or seen != before:
            moved, before = now, seen
        last = now
        if now - moved > PATIENCE:
            for client in clients:
                if client.pid is not None and client.is_alive():
                    os.kill(client.pid, signal.SIGUSR1)
            time.sleep(1)  # they write where they are
            raise RuntimeError(f"nothing happened for {PATIENCE:g} s")
        time.sleep(0.001)
    return time.monotonic() - began


def measure(clients: int, agents: int, rows: int, kills: int) -> tuple[list[float], int, int]:
    """Seconds until work goes on after each kill; rows that ran, and rows that ran more than once."""
    address = f"tcp://127.0.0.1:{free_port()}"
    processes: list[multiprocessing.Process] = []
    daemons = [start("scaler_cluster", "-n", "1", "--drain-grace", "0", address) for _ in range(agents)]
    scheduler = start("scaler_scheduler", address)
    pauses: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        try:
            heard = multiprocessing.Array("q", clients)
            each = rows // clients
            for at in range(clients):
                arguments = (address, directory, LASTS if agents == 1 else LASTS_AMONG_MANY, at * each, each, heard, at)
                processes.append(multiprocessing.Process(target=_be_client, args=arguments))
                processes[-1].start()
            _wait(lambda: min(heard[:]) > 0, heard, processes)  # all rows are queued
            for _ in range(kills):
                time.sleep(BETWEEN)
                assert sum(heard[:]) < rows, "all rows have ended: too few of them"
                scheduler.send_signal(signal.SIGKILL)
                scheduler.wait()
                before = sum(heard[:])
                scheduler = start("scaler_scheduler", address)
                pauses.append(_wait(lambda seen=before: sum(heard[:]) > seen, heard, processes))  # type: ignore[misc]
            for process in processes:
                process.join(600)
                assert process.exitcode == 0, f"a client ended with {process.exitcode}"
        finally:
            for process in processes:
                process.kill()
            for daemon in (*daemons, scheduler):
                daemon.terminate()
            for daemon in (*daemons, scheduler):
                daemon.wait(30)
        counted: Counter[bytes] = Counter()
        for name in os.listdir(directory):
            counted.update(Path(directory, name).read_bytes().split())
    return pauses, len(counted), sum(times > 1 for times in counted.values())


def main() -> None:
    """Measure all settings, a line each."""
    told = _arguments()
    print(f"{'clients':>8} {'agents':>7} {'kills':>6} {'median':>8} {'worst':>8} {'rows':>10} {'twice':>6}")
    for clients in told.clients:
        for agents in told.agents:
            pauses, ran, twice = measure(clients, agents, told.rows, told.kills)
            median, worst = statistics.median(pauses), max(pauses)
            print(
                f"{clients:8} {agents:7} {len(pauses):6} {median:6.2f} s {worst:6.2f} s {ran:10,} {twice:6}", flush=True
            )


if __name__ == "__main__":
    main()
