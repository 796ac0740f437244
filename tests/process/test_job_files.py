"""Large results of durable jobs are files in a directory that all share; the journal has what stands for them."""

import signal

import pytest
from support import until

QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2")
MB = 1 << 20


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def cluster(daemons, journal, results):
    daemons.start_scheduler(*QUICK, "--journal", str(journal), "--results", str(results))
    daemons.start_agent(2)
    return daemons


def files_in(results):
    """The files of results that are there."""
    return sorted(path for path in results.glob("*/*") if path.is_file())


def make(x):
    return bytes([x]) * (x * MB)


def test_large_results_are_files_that_outlive_the_scheduler(cluster, journal, results):
    with cluster.client() as client:
        job = client.submit_job(make, range(4), name="large")
        assert job.wait(30)
        state = job.status()
        assert (state.state, len(files_in(results))) == ("done", 3)
        assert state.bytes < MB < 6 * MB < state.file_bytes < 6.1 * MB
        assert sum(path.stat().st_size for path in journal.glob("*.log")) < MB
        assert list(job.results()) == [make(x) for x in range(4)]
    cluster.scheduler.signal(signal.SIGKILL)
    cluster.scheduler.ends(5)
    cluster.start_scheduler(*QUICK, "--journal", str(journal), "--results", str(results))
    with cluster.client() as client:
        job = client.attach("large")
        assert list(job.results()) == [make(x) for x in range(4)]
        job.delete()
        until(lambda: not files_in(results), "nothing left of a deleted job")
