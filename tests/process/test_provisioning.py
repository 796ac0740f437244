"""Clusters whose hosts come and go: the provisioner's process, with processes of this machine and a fake Slurm."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from support import until

from scaler import Client, Cluster, Executor
from scaler.provisioning.provider import ProviderError
from scaler.transport import load_or_create

QUICK = {"idle_time": 1.0, "interval": 0.2, "drain_time": 2.0}


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_hosts_come_with_work_and_go_without_and_a_killed_provisioner_is_replaced():
    scaler_dask = pytest.importorskip("scaler_dask")
    with Cluster("local", maximum=2, **QUICK) as cluster, Client(cluster) as client:
        assert "0 to 2 hosts" in repr(cluster)
        assert client.submit(pow, 2, 3).result(30) == 8
        until(lambda: cluster.status["running"] == 1, "a host")
        until(lambda: not cluster.status["running"] + cluster.status["draining"], "it to go")
        cluster.scale(1)
        cluster.wait_for_workers(1, 20)
        with scaler_dask.Client(cluster) as dask_client:
            assert dask_client.submit(pow, 2, 5).result() == 32
        os.kill(cluster._provisioner.process.pid, signal.SIGKILL)
        until(lambda: cluster._provisioner.process.poll() is None and client.submit(pow, 2, 4).result(30) == 16)
        with pytest.raises(ValueError, match="maximum must be at most 1,000,000, not"):
            cluster.adapt(maximum=1 << 40)
        cluster.adapt(maximum=0)
        until(lambda: not any(cluster.status[name] for name in ("running", "pending", "draining")), "hosts to go")
        assert "<th>hosts</th>" in cluster._repr_html_()
        with pytest.raises(TimeoutError, match="of 1 workers came"):
            cluster.wait_for_workers(1, 0.5)
    assert "ended" in repr(cluster)


def start_with_cluster(scripts, fake_slurm):
    """A program that has a cluster with a host, and the processes that it has started for that."""
    program = scripts.start(
        """
        import resource, time, scaler
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        cluster = scaler.Cluster("slurm", minimum=1, maximum=2, interval=0.2, list_interval=0.3)
        cluster.wait_for_workers(1, 30)
        print("pids", cluster._scheduler.process.pid, cluster._provisioner.process.pid, flush=True)
        time.sleep(600)
        """,
        PATH=fake_slurm.path,
    )
    return program, [int(pid) for pid in program.says(r"pids (\d+) (\d+)").groups()]


def test_a_program_that_is_killed_leaves_nothing_behind(scripts, fake_slurm):
    program, pids = start_with_cluster(scripts, fake_slurm)
    assert len(fake_slurm.running()) == 1
    program.process.kill()
    until(lambda: not fake_slurm.running() and not any(map(is_alive, pids)), "the end of all")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_a_closed_terminal_ends_the_program_and_its_jobs(scripts, fake_slurm, number):
    program, pids = start_with_cluster(scripts, fake_slurm)
    for pid in (*pids, program.process.pid):  # a terminal tells all of them
        os.kill(pid, number)
    until(lambda: not fake_slurm.running() and not any(map(is_alive, pids)), "the end of all")


def test_a_provisioner_whose_terminal_is_closed_ends_its_jobs(daemons, fake_slurm, tmp_path):
    daemons.start_scheduler()
    config = tmp_path / "provision.toml"
    text = f'address = "{daemons.address}"\nprovider = "slurm"\ntag = "work"\nminimum = 1\ninterval = 0.2\n'
    config.write_text(text + "list_interval = 0.2\nsettle_time = 0.1\n")
    program = daemons.run("scaler_provision", "provision", str(config))
    until(lambda: fake_slurm.running(), "a job", 40)
    program.signal(signal.SIGHUP)
    assert program.ends(20) == 0
    assert fake_slurm.running() == {}


def test_a_provisioner_finds_its_jobs_again_and_its_end_is_theirs(daemons, fake_slurm, tmp_path):
    daemons.start_scheduler()
    config = tmp_path / "provision.toml"
    text = f'address = "{daemons.address}"\nprovider = "slurm"\ntag = "work"\nminimum = 2\ninterval = 0.2\n'
    config.write_text(text + "list_interval = 0.2\nsettle_time = 0.1\n[options]\npartition = 'debug'\n")
    first = daemons.run("scaler_provision", "provision", str(config))
    first.says("hosts of Slurm 22.05.8, partition debug, tag work")
    until(lambda: len(fake_slurm.running()) == 2, "two jobs", 40)
    jobs = set(fake_slurm.running())
    first.process.kill()
    first.process.wait()
    second = daemons.run("scaler_provision", "provision", str(config))
    second.says("found 2 jobs of this cluster")
    assert daemons.client().submit(pow, 2, 3).result(20) == 8
    assert set(fake_slurm.running()) == jobs
    second.signal(signal.SIGTERM)
    assert second.ends(20) == 0
    assert fake_slurm.running() == {}


def test_what_is_asked_for_can_be_seen_before(daemons, tmp_path):
    config = tmp_path / "provision.toml"
    config.write_text('address = "tcp://head:2345"\nprovider = "slurm"\ntag = "work"\nworkers = 3\nminimum = 2\n')
    shown = daemons.run("scaler_provision", "provision", "--print", str(config))
    assert shown.ends(10) == 0
    assert "#SBATCH --cpus-per-task=3\n" in shown.text
    assert "#SBATCH --array=0-1\n" in shown.text
    config.write_text('address = "tcp://head:2345"\nprovider = "slurm"\nminimun = 2\n')
    shown = daemons.run("scaler_provision", "provision", str(config))
    assert shown.ends(10) == 2
    assert "there is no option 'minimun'" in shown.text


def test_executors_run_on_such_a_cluster():
    with Executor(1, provider="local", interval=0.2) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
        assert pool.submit(time.sleep, 0).result(20) is None


def test_a_system_that_is_not_here_is_told_at_once(monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(ProviderError, match="there is no command squeue here"):
        Cluster("slurm")
    with pytest.raises(ValueError, match="is no option of the provider 'local'"):
        Cluster("local", partition="debug")
    with pytest.raises(ValueError, match="guess must be at most"):
        Cluster("local", guess=float("inf"))


def test_a_system_that_does_not_answer_is_told_after_a_while(monkeypatch, tmp_path):
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ProviderError, match=r"squeue did not answer within 0\.1 s"):
        Cluster("slurm", timeout=0.1)


def test_why_there_is_no_provisioner_is_seen(fake_slurm):
    with Cluster("slurm", list_interval=0.2, **QUICK) as cluster:
        squeue = fake_slurm.bin / "squeue"
        works = squeue.read_text()
        squeue.write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
        os.kill(cluster._provisioner.process.pid, signal.SIGKILL)
        until(lambda: "no provisioner, tries again" in "".join(cluster.status.get("lines", ())), "a line")
        with pytest.raises(TimeoutError, match="no provisioner, tries again: squeue: no controller"):
            cluster.wait_for_workers(1, 0.1)
        squeue.write_text(works)
        until(lambda: not cluster.status["lines"], "another one")


def test_a_program_of_agents_that_is_not_there_is_told():
    with Cluster("local", minimum=1, command="/no/agent", interval=0.2) as cluster:
        until(lambda: cluster.status.get("lines"))
        with pytest.raises(TimeoutError, match="there is no program /no/agent here"):
            cluster.wait_for_workers(1, 0.1)


def test_capabilities_of_hosts_may_be_a_list():
    options = {"capabilities": ["gpu"], "agent_options": ["--drain-grace", "1"]}
    with Cluster("local", maximum=1, **options, **QUICK) as cluster, Client(cluster) as client:
        assert client.with_options(capabilities=["gpu"]).submit(pow, 2, 3).result(30) == 8


def test_jobs_of_a_cluster_are_told_where_the_key_is_and_not_what_it_is(fake_slurm, tmp_path):
    security = load_or_create(tmp_path / "key")
    with Cluster("slurm", minimum=1, maximum=1, security=security, interval=0.2, list_interval=0.3) as cluster:
        cluster.wait_for_workers(1, 30)
        (pid,) = fake_slurm.running().values()
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"SCALER_KEY_FILE={tmp_path}/key".encode() in environment
    assert not [each for each in environment if security.secret in each]
