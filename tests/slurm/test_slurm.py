"""Hosts from a real Slurm on this machine: what `make test-slurm` runs. Prints its figures."""

import math
import os
import re
import tempfile
import threading
import time
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from random import Random

import pytest
from slurm_here import NODES, Slurm
from support.calls import working
from support.programs import Daemons
from support.waiting import until

import scaler
from scaler.monitor.watcher import Watcher
from scaler.provisioning.cluster import outward_address

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]


@pytest.fixture
def slurm(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="slurm-") as place:
        asked_from = Path(place) / "asked_from"
        asked_from.mkdir()
        monkeypatch.chdir(asked_from)
        here = Slurm(Path(place))
        try:
            yield here
            assert list(asked_from.iterdir()) == [], "jobs left files where they were asked for"
        finally:
            here.close()


@pytest.fixture
def daemons(tmp_path):
    made = Daemons(tmp_path)
    made.address = f"tcp://{outward_address()}:0"
    yield made
    made.close()


def first_start(slurm):
    """When slurmctld says that it started the first job, seconds since 1970."""
    text = (slurm.place / "slurmctld.log").read_text()
    stamp = re.search(r"\[(\S+)\].* (?:Started|Allocate) JobId=", text)
    assert stamp, text[-2000:]
    return datetime.fromisoformat(stamp[1]).timestamp()


def agents_of(address):
    """Processes of agents of this scheduler that are left on this machine."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "scaler_cluster" in line and address in line:
            found.append(int(pid))
    return found


class Sampler:
    """What the cluster looks like, ten times a second."""

    def __init__(self, cluster):
        self.samples = []
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with Watcher(self._cluster.monitor_address, 0.1, security=self._cluster.security) as watcher:
            while not self._over.wait(0.1):
                snapshot = watcher.seen.snapshot
                status = self._cluster.status
                if snapshot is not None and status:
                    idle = sum(ms > 1000 for ms in snapshot.agents.idle)
                    asked = status["pending"] + status["running"]
                    self.samples.append((time.monotonic(), status["desired"], asked, len(snapshot.agents), idle))

    def end(self):
        self._over.set()
        self._thread.join()


def test_the_first_result_comes_soon_after_the_first_job_begins(slurm):
    began = time.time()
    with scaler.Cluster("slurm", maximum=NODES, workers=2, list_interval=1.0) as cluster:
        up = time.time()
        with scaler.Client(cluster) as client:
            assert client.submit(pow, 2, 3).result(60) == 8
            result = time.time()
        closing = time.time()
    closed = time.time()
    started = first_start(slurm)
    print(
        f"\nCluster('slurm') returned after {up - began:.2f} s, its first job began after {started - began:.2f} s, "
        f"the first result came {result - started:.2f} s after that; it ended in {closed - closing:.2f} s"
    )
    assert result - started <= 3.0
    assert slurm.jobs() == []


def test_work_goes_through_short_walltimes(slurm):
    random, work = Random(14), working()
    tasks, least, most = 2_000, 0.004, 4.0
    seconds = [least * (most / least) ** random.random() for _ in range(tasks)]
    random.shuffle(seconds)
    with scaler.Cluster(
        "slurm", maximum=NODES, workers=2, walltime=60.0, lead=5.0, drain_time=15.0, idle_time=5.0, list_interval=1.0,
        agent_options=("--drain-grace", "8"),
    ) as cluster:  # fmt: skip
        sampler = Sampler(cluster)
        began = time.monotonic()
        with scaler.Client(cluster) as client:
            futures = [client.submit(work, n, each) for n, each in enumerate(seconds)]
            failures = []
            for n, future in enumerate(futures):
                try:
                    assert future.result(600) == n
                except Exception as error:
                    failures.append(error)
        took = time.monotonic() - began
        until(lambda: cluster.status["running"] + cluster.status["draining"] == 0, "hosts to go", 60)
        sampler.end()
    jobs = set(re.findall(r"(?:Started|Allocate) JobId=(\d+_\d+)", (slurm.place / "slurmctld.log").read_text()))
    wanted = [desired for _, desired, _, _, _ in sampler.samples]
    signs = [b > a for a, b in pairwise(wanted) if a != b]
    turns = sum(a != b for a, b in pairwise(signs))
    over = max(asked for _, _, asked, _, _ in sampler.samples) / max(wanted) - 1
    there = sum((b[0] - a[0]) * a[3] for a, b in pairwise(sampler.samples))
    idle = sum((b[0] - a[0]) * a[4] for a, b in pairwise(sampler.samples))
    assert not failures, failures[:3]
    ideal = sum(seconds) / (2 * NODES)
    print(
        f"\n{tasks} tasks of {least} to {most} s ({sum(seconds):.0f} s together) took {took:.0f} s on {NODES} hosts "
        f"with 2 workers (at best {ideal:.0f} s), in {len(jobs)} jobs of at most 60 s: none failed. Wanted turned "
        f"{turns} times {[n for n, _ in groupby(wanted)]}, hosts asked for "
        f"beyond those wanted: {100 * over:.0f} %, host-seconds without work: "
        f"{100 * idle / there:.1f} %"
    )
    assert len(jobs) > NODES, "no walltime ended"
    assert turns <= 2
    assert over <= 0.1
    assert idle / there <= 0.1
    assert math.isclose(len(slurm.jobs()), 0)


def test_scheduler_provisioner_and_slurmctld_are_killed_once_each(slurm, daemons, tmp_path):
    daemons.start_scheduler()
    config = tmp_path / "provision.toml"
    config.write_text(
        f'address = "{daemons.address}"\nprovider = "slurm"\ntag = "killed"\nmaximum = {NODES}\nworkers = 2\n'
        f"drain_time = 5.0\nidle_time = 3.0\nlist_interval = 1.0\n"
    )
    provisioner = daemons.run("scaler_provision", "provision", str(config))
    most = 0

    def look():
        nonlocal most
        most = max(most, len(slurm.jobs()))

    client = daemons.client(reconnect=60.0)
    work = working()
    futures = [client.submit(work, n, 0.2 + (n % 5) / 5) for n in range(800)]

    def done():
        look()
        return sum(future.done() for future in futures)

    until(lambda: done() > 100, "a tenth of the work", 90)
    slurm.kill_controller()
    slurm.start_controller()
    until(lambda: done() > 250, "work after slurmctld was killed", 90)
    provisioner.process.kill()
    provisioner.process.wait()
    again = daemons.run("scaler_provision", "provision", str(config))
    again.says("found . jobs of this cluster", 30)
    until(lambda: done() > 400, "work after the provisioner was killed", 90)
    daemons.scheduler.process.kill()
    daemons.scheduler.process.wait()
    daemons.start_scheduler()
    until(lambda: done() == len(futures), "all of the work", 180)
    assert [future.result() for future in futures] == list(range(800))
    until(lambda: not slurm.jobs(), "hosts to go when nothing is left to do", 60)
    again.stop()
    until(lambda: not agents_of(daemons.address), "agents to end", 20)
    started = set(re.findall(r"(?:Started|Allocate) JobId=(\d+_\d+)", (slurm.place / "slurmctld.log").read_text()))
    print(
        f"\nkill -9 of slurmctld, provisioner and scheduler: 800 of 800 tasks done, at most {most} jobs at once "
        f"(maximum {NODES}), {len(started)} in all, 0 left, 0 agents left"
    )
    assert most <= NODES
