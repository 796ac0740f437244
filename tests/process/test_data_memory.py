"""Memory has limits: what goes over them is on disk for a while, or fails alone."""

import re
import threading
import time

import numpy as np
import psutil
import pytest
from support import patience, until, workers_of
from support.stores import file_bytes, holdings, stores

from scaler import WorkerMemoryExceeded

#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2", "--client-timeout", "2")
MB = 1_000_000
#: bytes that a worker or an agent takes before it does anything
BASE = 60 * MB
#: numbers in an array of 10 MB
NUMBERS = 1_250_000


def anonymous_memory(pid):
    """Bytes of a process that are not of files; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"RssAnon:\s+(\d+) kB", status.read())[1]) * 1024
    except (OSError, TypeError):
        return 0


class Watch:
    """Looks at the memory of an agent's workers and its store all the time."""

    def __init__(self, agent):
        self.workers = workers_of(agent.pid)
        (self.store,) = stores(agent.pid)
        self.most = 0
        #: of that, each worker's and the store's
        self.of_each = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.wait(0.01):
            of_each = [*map(anonymous_memory, self.workers), file_bytes(self.store)]
            if sum(of_each) > self.most:
                self.most, self.of_each = sum(of_each), of_each

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._stop.set()
        self._thread.join()


@pytest.fixture
def spill(tmp_path):
    made = tmp_path / "spill"
    made.mkdir()
    return made


def limited_agent(daemons, spill, limit, workers=2, *options):
    return daemons.start_agent(workers, "--memory-limit", str(limit), "--spill-directory", str(spill), *options)


def make(number):
    return np.full(NUMBERS, float(number))


def is_right(array, number):
    return array.shape == (NUMBERS,) and array[0] == number and (array == number).all()


def empty(agent, store, spill):
    """Nothing is left of objects in any place."""
    now = holdings(agent)
    return (
        now["shm"] + now["live"] + now["disk"] + now["moving"] == 0
        and file_bytes(store) < MB
        and file_bytes(spill) < MB
    )


def test_ten_times_as_much_as_memory_may_hold_goes_to_disk_and_comes_back(daemons, spill):
    limit, n = 100 * MB, 100
    daemons.start_scheduler(*QUICK)
    agent = limited_agent(daemons, spill, limit)
    client = daemons.client()
    with Watch(agent) as watch:
        futures = [client.submit(make, x) for x in range(n)]
        until(lambda: all(future.done() for future in futures), "all results", 40.0)
        until(lambda: file_bytes(spill) > 9 * limit, "what is over the limit to be on disk")
        for x in range(n):
            assert is_right(futures[x].result(patience(20)), x)
            futures[x] = None
    assert watch.workers == workers_of(agent.pid)
    assert watch.most < 1.25 * limit + BASE * len(watch.workers)
    until(lambda: empty(agent, watch.store, spill), "everything to be released")
    assert not list((watch.store / "free").iterdir())


def test_tasks_that_need_what_went_to_disk_get_it(daemons, spill):
    limit = 100 * MB
    daemons.start_scheduler(*QUICK)
    agent = limited_agent(daemons, spill, limit)
    client = daemons.client()
    with Watch(agent) as watch:
        sent = []
        for x in range(30):  # a client is not held back by a disk that is busy with other tests
            sent.append(client.send_object(make(x)))
            until(lambda: file_bytes(watch.store) < limit, "room for another one")
        made = [client.submit(np.add, sent[x], x) for x in range(30)]
        sums = [client.submit(lambda a, b: float(a[0] + b[-1]), made[x], sent[29 - x]) for x in range(30)]
        assert [future.result(patience(20)) for future in sums] == [2 * x + 29 - x for x in range(30)]
    assert watch.most < 1.25 * limit + BASE * len(watch.workers), watch.of_each
    del sent, made, sums
    until(lambda: empty(agent, watch.store, spill), "everything to be released")


def test_a_graph_whose_values_do_not_fit_into_memory_all_at_once_is_computed(daemons, spill):
    limit = 100 * MB
    daemons.start_scheduler(*QUICK)
    agent = limited_agent(daemons, spill, limit)
    client = daemons.client()
    size = 40

    def total(*arrays):
        return float(sum(array[0] for array in arrays))

    graph = {f"made {x}": (make, x) for x in range(size)}
    for x in range(size):
        graph[f"sum {x}"] = (np.add, f"made {x}", f"made {(x + size // 2) % size}")
    graph["total"] = (total, *[f"sum {x}" for x in range(size)])
    with Watch(agent) as watch:
        (future,) = client.submit_graph(graph, ["total"])
        assert future.result(40) == size * (size - 1)
    # a task that needs all of them at once has all of them in memory, whatever the limit
    assert watch.most < 1.25 * limit + BASE * len(watch.workers) + size * 10 * MB
    until(lambda: empty(agent, watch.store, spill), "everything to be released")


def test_a_task_over_its_workers_limit_fails_alone(daemons, spill):
    daemons.start_scheduler(*QUICK)
    agent = limited_agent(daemons, spill, 1000 * MB, 2, "--worker-memory-limit", str(200 * MB))
    client = daemons.client()

    def devour(until_mb):
        taken = []
        while len(taken) * 10 < until_mb:
            taken.append(np.ones(NUMBERS))
            time.sleep(0.005)
        time.sleep(20)  # is ended before
        return len(taken)

    def modest(x):
        return int(np.ones(NUMBERS).sum()) + x

    before = workers_of(agent.pid)
    first = [client.submit(modest, x) for x in range(20)]
    greedy = client.submit(devour, 400)
    more = [client.submit(modest, x) for x in range(200)]
    with pytest.raises(WorkerMemoryExceeded, match="devour") as caught:
        greedy.result(patience(20))
    assert [future.result(patience(20)) for future in first + more] == [NUMBERS + x for x in (*range(20), *range(200))]
    assert len(set(before) & set(workers_of(agent.pid))) == 1
    took, allowed = re.search(r"took (\d+) MB.* may take (\d+) MB", str(caught.value)).groups()
    assert 200 < int(took) <= 450
    assert int(allowed) == 200
    until(lambda: len(workers_of(agent.pid)) == 2, "the worker to be replaced")


def test_a_limit_of_workers_does_not_count_what_they_map_from_the_store(daemons, spill):
    daemons.start_scheduler(*QUICK)
    agent = limited_agent(daemons, spill, 1000 * MB, 1, "--worker-memory-limit", str(150 * MB))
    client = daemons.client()
    sent = [client.send_object(make(x)) for x in range(30)]

    def total(*arrays):
        result = float(sum(array.sum() for array in arrays))
        time.sleep(0.5)  # long enough to be looked at
        return result

    (before,) = workers_of(agent.pid)
    assert client.submit(total, *sent).result(patience(20)) == sum(NUMBERS * x for x in range(30))
    assert workers_of(agent.pid) == [before]
    assert psutil.pid_exists(before)
