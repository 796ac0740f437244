"""Hosts from a real Grid Engine on this machine: what `make test-sge` runs."""

import time

import pytest
from sge_here import NOTIFY, SLOTS, Sge, why_not
from support.batch_sessions import agent_program, hosts_come_and_go
from support.waiting import until

import scaler
from scaler.provisioning.provider import HostTemplate, JobState, ProviderError
from scaler.provisioning.registry import make_provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


#: seconds that hosts have from SIGUSR2 on, less than they are given
GRACE = NOTIFY / 5


@pytest.fixture
def sge(tmp_path, traces, monkeypatch):
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "sge").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made = Sge(tmp_path / "sge", monkeypatch)
    yield made
    made.close()
    assert list((tmp_path / "here").iterdir()) == [], "jobs left files where they were asked for"


def test_hosts_come_and_go(sge, daemons, tmp_path):
    daemons.address = f"tcp://{sge.ip}:0"
    hosts_come_and_go(
        "sge", daemons, tmp_path, log="$JOB_ID.$TASK_ID", hosts=[sge.host],
        refused='^qsub: Unable to run job: .* requests unknown queue "nowhere"',
    )  # fmt: skip
    assert sge.jobs() == []


def test_hosts_that_are_deleted_are_told_before_their_end_and_give_back_what_they_have(sge, daemons, tmp_path):
    began = tmp_path / "began"

    def work(name, waits):
        import os
        import time

        with open(began, "a") as file:
            file.write(f"{name} {os.environ['JOB_ID']}.{os.environ['SGE_TASK_ID']}\n")
        time.sleep(1000 if began.read_text().split().count(name) <= waits else 0.2)
        return name

    def places(name):
        """The jobs in which this task has begun."""
        found = [line.split() for line in began.read_text().splitlines()] if began.exists() else []
        return [job for task, job in found if task == name]

    daemons.address = f"tcp://{sge.ip}:0"
    daemons.start_scheduler("--retries-on-loss", "1")
    provider = make_provider("sge", {"log": str(tmp_path / "$JOB_ID.$TASK_ID.log")})
    command = (agent_program(tmp_path), daemons.address, "--workers", "1", "--drain-grace", str(GRACE))
    ids = provider.submit(3, HostTemplate("lab", 1, command))
    try:
        until(lambda: daemons.scheduler.text.count(" joined") == 3, "agents", 30)
        client = daemons.client()
        long = client.submit(work, "long", 2)
        until(lambda: places("long"), "the long task to begin")
        names = [f"short{number}" for number in range(12)]
        short = [client.submit(work, name, 0) for name in names]
        for times in (1, 2):
            deleted = places("long")[-1]
            provider.cancel([deleted])
            until(lambda times=times: len(places("long")) > times, "the long task to begin elsewhere", GRACE + 15)
            until(lambda deleted=deleted: deleted not in {job.id for job in provider.list("lab")}, "the job's end", 15)
            log = (tmp_path / f"{deleted}.log").read_text()
            assert "this host drains, its end was announced" in log
            assert "the time to drain is over: this host ends, with 1 rows that run" in log
            assert log.rstrip().endswith("ClusterProcess: ended"), "it was killed"
        assert long.result(20) == "long"  # two strikes would have been one too many
        assert len(set(places("long"))) == 3
        assert [future.result(20) for future in short] == names
        assert [len(places(name)) for name in names] == [1] * len(names)
    finally:
        provider.cancel(ids)
    until(lambda: not sge.jobs(), "the end", 30)


def test_jobs_that_wait_say_why_and_are_cancelled(sge):
    provider = make_provider("sge", {})
    command = ("/bin/sh", "-c", "sleep 1000 || exit", "a job's name")
    ids = provider.submit(SLOTS + 1, HostTemplate("lab", 1, command))
    until(lambda: states(provider).count((JobState.RUNNING, sge.host, "")) == SLOTS, "jobs to run")
    assert states(provider).count((JobState.PENDING, "", "")) == 1
    (waits,) = [job.id for job in provider.list("lab") if job.state is JobState.PENDING]
    provider.cancel([waits])
    until(lambda: waits not in {job.id for job in provider.list("lab")}, "the end of the one that waits")
    provider.cancel(ids)
    until(lambda: not sge.jobs(), "the end")
    ids = make_provider("sge", {"log": "/nowhere/$JOB_ID"}).submit(2, HostTemplate("lab", 2, command))
    until(lambda: states(provider) == [(JobState.PENDING, "", "Eqw")] * 2, "jobs that can't begin")
    provider.cancel(ids)
    until(lambda: not sge.jobs(), "the end")


def states(provider):
    return [(job.state, job.host, job.reason) for job in provider.list("lab")]


def test_a_cluster_runs_its_first_task_and_leaves_no_job(sge):
    began = time.monotonic()
    options = {"directives": ["-pe smp 2"], "walltime": 600.0, "list_interval": 1.0}
    with scaler.Cluster("sge", maximum=2, workers=2, **options) as cluster:
        up = time.monotonic()
        with scaler.Client(cluster) as client:
            assert client.submit(pow, 2, 3).result(60) == 8
            result = time.monotonic()
        assert len(sge.jobs()) == 1
        closing = time.monotonic()
    closed = time.monotonic()
    print(
        f"\nCluster('sge') returned after {up - began:.2f} s, the first result came {result - up:.2f} s after that; it "
        f"ended in {closed - closing:.2f} s"
    )
    assert sge.jobs() == []


def test_a_cluster_where_grid_engine_does_not_answer_says_so_at_once(sge):
    sge.kill_qmaster()
    with pytest.raises(ProviderError, match="unable to send message to qmaster"):
        scaler.Cluster("sge")
