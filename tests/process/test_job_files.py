"""Large results of durable jobs are files in a directory that all share; the journal has what stands for them."""

import os
import signal
import time

import pytest
from support import until

from scaler import Client, Executor
from scaler.errors import JobError
from scaler.results import files

QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2")
MB = 1 << 20


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def options(journal, results):
    return *QUICK, "--journal", str(journal), "--results", str(results)


@pytest.fixture
def cluster(daemons, options):
    daemons.start_scheduler(*options)
    daemons.start_agent(2)
    return daemons


def files_in(results):
    """The files of results that are there."""
    return sorted(path for path in results.glob("*/*") if path.is_file())


def make(x):
    return bytes([x]) * (x * MB)


def kill(program):
    program.signal(signal.SIGKILL)
    program.ends(5)


def test_a_local_cluster_has_a_journal_and_files_that_the_next_one_finds(start_cluster, journal, results):
    kept = {"journal": str(journal), "results": str(results)}
    first = start_cluster(1, **kept)
    with Client(first.address) as client:
        assert client.submit_job(make, range(3), name="local").wait(30)
    first.shutdown()
    assert len(files_in(results)) == 2
    with Client(start_cluster(1, **kept).address) as client:
        assert list(client.attach("local").results()) == [make(x) for x in range(3)]
    with pytest.raises(ValueError, match="results is for durable jobs: give a journal, too"):
        start_cluster(1, results=str(results))


def test_large_results_are_files_that_outlive_the_scheduler(cluster, journal, results, options):
    with cluster.client() as client:
        job = client.submit_job(make, range(4), name="large")
        assert job.wait(30)
        state = job.status()
        assert (state.state, len(files_in(results))) == ("done", 3)
        assert state.bytes < MB < 6 * MB < state.file_bytes < 6.1 * MB
        assert sum(path.stat().st_size for path in journal.glob("*.log")) < MB
        assert list(job.results()) == [make(x) for x in range(4)]
    kill(cluster.scheduler)
    cluster.start_scheduler(*options)
    with cluster.client() as client:
        job = client.attach("large")
        assert list(job.results()) == [make(x) for x in range(4)]
        job.delete()
        until(lambda: not files_in(results), "nothing left of a deleted job")


def test_a_client_elsewhere_gets_them_through_the_scheduler(cluster, monkeypatch):
    monkeypatch.setattr(files, "read", absent)
    with cluster.client() as client:
        job = client.submit_job(make, [1, 9], name="far")
        assert list(job.results(timeout=30)) == [make(1), make(9)]
    with Executor(address=cluster.address, durable="calls", security=cluster.client()._parts.security) as pool:
        assert list(pool.map(make, [2, 3])) == [make(2), make(3)]


def absent(*_):
    raise files.Unreadable("it is not on this host")


def test_a_graph_has_large_values_in_files_and_hands_on_those_that_others_need(cluster, results):
    graph = {"a": (make, 5), "b": (len, "a"), "c": (make, 6), "d": (make, "one"), "one": 1}
    with cluster.client() as client:
        job = client.submit_job_graph(graph, ["a", "b", "c", "d"], name="graph")
        assert job.result(30) == {"a": make(5), "b": 5 * MB, "c": make(6), "d": make(1)}
        sizes = [path.stat().st_size // MB for path in files_in(results)]
        assert sorted(sizes) == [1, 6]


def test_results_may_be_larger_than_messages(daemons, options):
    small = ("--max-message-bytes", str(2 * MB))
    daemons.start_scheduler(*options, *small)
    daemons.start_agent(1, *small)
    with daemons.client() as client:
        assert list(client.submit_job(make, [1, 12], name="larger").results(timeout=30)) == [make(1), make(12)]


def test_a_host_without_the_directory_sends_its_results(cluster, results, daemons, options):
    away = results.with_name("away")
    results.rename(away)
    agent = daemons._programs[-1]
    with cluster.client() as client:
        assert list(client.submit_job(make, [1, 2], name="without").results(timeout=30)) == [make(1), make(2)]
        agent.says(rf"large results of durable jobs go through the scheduler: {results}/\w+ on this host: No such file")
        assert client.attach("without").status().file_bytes == 0
        away.rename(results)
        assert list(client.submit_job(make, [3], name="again").results(timeout=30)) == [make(3)]
    assert agent.text.count("go through the scheduler") == 1
    assert len(files_in(results)) == 1


def test_a_file_that_is_missing_or_damaged_is_one_row_s_error(cluster, results):
    with cluster.client() as client:
        job = client.submit_job(make, [3, 2, 1], name="hurt")
        assert job.wait(30)
        by_size = {path.stat().st_size // MB: path for path in files_in(results)}
        by_size[3].unlink()
        with by_size[2].open("r+b") as file:
            file.seek(MB)
            file.write(b"damage")
        missing, damaged, whole = job.ended()
        assert type(missing.error) is type(damaged.error) is JobError
        assert str(missing.error) == f"job 'hurt', row 0: its file {by_size[3]} is missing"
        assert str(damaged.error) == f"job 'hurt', row 1: its file {by_size[2]} is damaged: its checksum is wrong"
        assert whole.value == make(1)


@pytest.mark.timeout(120)
def test_whatever_is_killed_each_result_is_there_and_nothing_else_is_left(daemons, options, results):
    daemons.start_scheduler(*options)
    agent = daemons.start_agent(2)

    def function(x):
        time.sleep(0.01)
        return bytes([x % 251]) * MB

    with daemons.client() as client:
        job = client.submit_job(function, range(200), name="killed")
        for done in (40, 100):
            until(lambda n=done: job.status().done > n)
            kill(agent)
            kill(daemons.scheduler)
            daemons.start_scheduler(*options)
            agent = daemons.start_agent(2)
        assert list(job.results(timeout=60)) == [bytes([x % 251]) * MB for x in range(200)]
    foreign = files_in(results)[0].with_name("notes")
    foreign.write_text("somebody's")
    kill(daemons.scheduler)
    daemons.start_scheduler(*options)
    until(lambda: len(files_in(results)) == 201, "files of attempts that nobody heard of are removed")
    with daemons.client() as client:
        job = client.attach("killed")
        assert os.path.getsize(files_in(results)[0]) * 199 < job.status().file_bytes
        job.delete()
    until(lambda: files_in(results) == [foreign], "nothing left but what is somebody else's")


def test_a_directory_that_can_not_be_used_is_said_in_one_line(daemons, tmp_path):
    (tmp_path / "file").write_text("")
    given = ("--journal", str(tmp_path / "journal"), "--results", str(tmp_path / "file"))
    for arguments, code, said in (
        (given, 1, "large results can't be written to .*/file: (it is a file|Not a directory); give a directory"),
        (given[2:], 2, "results is for durable jobs: give a journal, too"),
    ):
        program = daemons.run("scaler_scheduler", "scheduler", "tcp://127.0.0.1:0", *arguments)
        program.says(said)
        assert program.ends(10) == code
