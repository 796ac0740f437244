"""What dask's data frames need of the engine: large constants that tasks share, and workers that clean up."""

import atexit
import time
from pathlib import Path

import numpy
import pytest
from support.waiting import until

from scaler import Client, SchedulerClusterCombo
from scaler_dask import scaler_get


class Index:
    """Finds something out when it is first used, at some cost, as pandas' indexes do."""

    def __init__(self, size):
        self.labels = numpy.arange(size)
        self.nbytes = self.labels.nbytes
        self.uses = 0

    def use(self, _):
        self.uses += 1
        return self.uses


@pytest.mark.parametrize("size", [10_000, 500_000])  # one that travels in messages, one in the store
def test_tasks_of_graphs_that_run_on_one_worker_share_a_large_constant(size):
    rows = range(200)
    graph = {"index": Index(size), **{("row", i): (Index.use, "index", i) for i in rows}}
    with SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.address, security=cluster.security) as client:
        uses = scaler_get(graph, [("row", i) for i in rows], client=client)
    assert max(uses) > 100


def test_workers_without_a_task_call_what_tasks_registered_for_their_end(tmp_path):
    marks = [tmp_path / str(i) for i in range(4)]
    with SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster.address, security=cluster.security) as client:
        list(client.map(lambda mark: atexit.register(mark.touch) and None, marks))
    assert all(map(Path.exists, marks))


def test_a_worker_with_a_task_does_not_hold_up_the_end_of_the_cluster(tmp_path):
    with SchedulerClusterCombo(n_workers=1) as cluster:
        client = Client(cluster.address, security=cluster.security)
        started = tmp_path / "started"
        client.submit(lambda: (started.touch(), time.sleep(60)))
        until(started.exists)
        began = time.monotonic()
    assert time.monotonic() - began < 20
