"""The same killer beside other engines: `python tests/soak/peers.py --engines scaler,distributed,ray --minutes 4`.

All is on this machine: a scheduler, two hosts with two workers each, one client. Every five seconds a worker, a host or
the scheduler is killed (-9); what ends is started again at the same address, as a supervisor would. `--python` names an
interpreter that has the other engines.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

EVERY = 5.0
#: seconds in which the first round has to end
START = 180.0
MARK = "SOAK_PEERS"
HERE = Path(__file__).parent
#: what is killed, and how often
KINDS = {"worker": 5, "host": 2, "scheduler": 3}


def free_port():
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """The processes of one engine."""

    def __init__(self, python, directory):
        self.python, self.directory = python, directory
        self.port = free_port()
        self.scheduler = self.start_scheduler()
        time.sleep(4)
        self.hosts = [self.start_host(number) for number in range(2)]

    def run(self, name, *command):
        """Start a program, its output in a file."""
        with open(self.directory / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def workers(self):
        """Processes that run tasks."""
        found = []
        for host in self.hosts:
            try:
                below = psutil.Process(host.pid).children(recursive=True)
                found += [process for process in below if self.is_worker(process)]
            except psutil.Error:
                continue
        return found

    def is_worker(self, process):
        """Whether it runs tasks."""
        return not process.children()

    def kill_scheduler(self):
        """The process that decides, and another."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = self.start_scheduler()

    def kill_host(self, number):
        """The process that stands for a host, and another."""
        self.hosts[number].kill()

    def revive(self):
        """Start what has ended."""
        if self.scheduler.poll() is not None:
            self.scheduler = self.start_scheduler()
        for number, host in enumerate(self.hosts):
            if host.poll() is not None:
                self.hosts[number] = self.start_host(number)

    def stop(self):
        """End all in order."""
        for process in (*self.hosts, self.scheduler):
            process.terminate()
        for process in (*self.hosts, self.scheduler):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Scaler(Engine):
    """This one."""

    @property
    def address(self):
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self):
        code = "from scaler.cli.scheduler import main; main()"
        return self.run("scheduler", sys.executable, "-c", code, self.address)

    def start_host(self, number):
        code = "from scaler.cli.cluster import main; main()"
        return self.run(f"host{number}", sys.executable, "-c", code, "-n", 2, self.address)


class Distributed(Engine):
    """dask.distributed, with nannies."""

    @property
    def address(self):
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self):
        options = "--host", "127.0.0.1", "--port", self.port, "--no-dashboard"
        return self.run("scheduler", self.python, "-m", "distributed.cli.dask_scheduler", *options)

    def start_host(self, number):
        options = "--nworkers", 2, "--nthreads", 1, "--no-dashboard", "--local-directory", self.directory
        return self.run(f"host{number}", self.python, "-m", "distributed.cli.dask_worker", self.address, *options)

    def is_worker(self, process):
        command = " ".join(process.cmdline())
        return "spawn_main" in command and "resource_tracker" not in command


class Ray(Engine):
    """ray: the head without workers, its GCS is what decides."""

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start_scheduler(self):
        ray = Path(self.python).with_name("ray")
        return self.run(
            "scheduler", ray, "start", "--head", "--block", "--num-cpus=0", f"--port={self.port}",
            "--include-dashboard=false", "--object-store-memory=200000000", "--disable-usage-stats",
            "--node-ip-address=127.0.0.1",
        )  # fmt: skip

    def start_host(self, number):
        ray = Path(self.python).with_name("ray")
        return self.run(
            f"host{number}", ray, "start", "--block", "--num-cpus=2", f"--address={self.address}",
            "--object-store-memory=200000000", "--disable-usage-stats",
        )  # fmt: skip

    def _of(self, process, name):
        return [p for p in psutil.Process(process.pid).children(recursive=True) if name in " ".join(p.cmdline()[:1])]

    def is_worker(self, process):
        return process.name().startswith("ray::")

    def kill_scheduler(self):
        for process in self._of(self.scheduler, "gcs_server"):
            process.kill()

    def kill_host(self, number):
        for process in self._of(self.hosts[number], "raylet"):
            process.kill()


def marked(mark):
    """Processes of this run that are there."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def begun_well(told):
    """Wait until a first round is over: all is there that is to be killed."""
    deadline = time.monotonic() + START
    while not (told.exists() and told.read_text()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no round ended within {START:g} s, with nothing killed")
        time.sleep(0.2)


def soak(kind, python, minutes, seed, what_dies):
    """Kill for so long; what the client said, and what was left."""
    mark = os.environ[MARK] = f"{os.getpid()}-{kind.__name__}"
    lot, counts = random.Random(seed), Counter()
    before, pids = set(os.listdir("/dev/shm")), set[str]()
    interpreter = sys.executable if kind is Scaler else python
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        directory = Path(name)
        engine = kind(python, directory)
        told, stop = directory / "told", directory / "stop"

        def start_client():
            load = HERE / "peers_load.py"
            return engine.run("client", interpreter, load, kind.__name__, engine.address, told, stop)

        time.sleep(8)
        client = start_client()
        begun_well(told)
        kinds = {kind: weight for kind, weight in KINDS.items() if kind in what_dies}
        begun = time.monotonic()
        while time.monotonic() - begun < 60 * minutes:
            time.sleep(EVERY)
            pids.update(str(process.pid) for process in marked(mark))
            (what,) = lot.choices(list(kinds), list(kinds.values()))
            try:
                if what == "worker":
                    below = engine.workers()
                    if not below:
                        counts["no worker to kill"] += 1
                        continue
                    lot.choice(below).kill()
                elif what == "host":
                    engine.kill_host(lot.randrange(2))
                else:
                    engine.kill_scheduler()
            except psutil.Error:
                continue
            counts[what] += 1
            time.sleep(0.5)
            engine.revive()
            if client.poll() is not None:
                counts["clients that ended"] += 1
                client = start_client()
        stop.touch()
        try:
            code = client.wait(150)
        except subprocess.TimeoutExpired:
            code = "hangs"
            client.send_signal(signal.SIGKILL)
            client.wait()
        engine.stop()
        time.sleep(3)
        left = [" ".join(process.cmdline())[:60] for process in marked(mark)]
        for process in marked(mark):
            process.kill()
        fresh = set(os.listdir("/dev/shm")) - before  # those of others who are at work here aside
        files = [name for name in fresh if not name.startswith("scaler") or pids & set(name.split("-"))]
        total = Counter()
        errors = Counter()
        for line in told.read_text().splitlines() if told.exists() else ():
            said = json.loads(line)
            errors.update(said.pop("errors"))
            total.update({key: value for key, value in said.items() if key != "seconds"})
    return {
        "kills": dict(counts), **total, "errors": sum(errors.values()), "client": code,
        "left": left, "files": files, "which": errors.most_common(6),
    }  # fmt: skip


def main():
    """A line for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="scaler,distributed,ray")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--kill", default=",".join(KINDS), help="what is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable)
    told = parser.parse_args()
    kinds = {kind.__name__.lower(): kind for kind in (Scaler, Distributed, Ray)}
    for name in told.engines.split(","):
        report = soak(kinds[name], told.python, told.minutes, told.seed, told.kill.split(","))
        print(name, json.dumps(report, indent=1), flush=True)


if __name__ == "__main__":
    main()
