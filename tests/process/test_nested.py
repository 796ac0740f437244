"""Tasks that make tasks: whatever their depth, they end, on one worker too."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import os
import time

import pytest
from support import until, within
from support.serializers import Prefixed

from scaler import Client, SchedulerClusterCombo, TaskTimeout, WorkerLost
from scaler.client.client import parts_of

#: on one worker, on more than there are cores, and with bytes that only the client's serializer reads
both = pytest.mark.parametrize(
    ("n_workers", "serializer"),
    [(1, None), (4, None), (2, Prefixed)],
    indirect=["serializer"],
    ids=["1", "4", "prefixed"],
)


@pytest.fixture(scope="module")
def clusters(lasting_traces):
    """Local clusters that tests share which leave nothing in them, by their number of workers."""
    with contextlib.ExitStack() as stack:
        yield {number: stack.enter_context(SchedulerClusterCombo(n_workers=number)) for number in (1, 2, 4)}


def fibonacci(client, n):
    if n < 2:
        return n
    a, b = client.submit(fibonacci, client, n - 1), client.submit(fibonacci, client, n - 2)
    return a.result() + b.result()


def square(x):
    return x * x


def sum_of_squares(client, n):
    return sum(client.map(square, range(n)))


def inc(x):
    return x + 1


def add(a, b):
    return a + b


@both
def test_nested_fibonacci(clusters, connect, n_workers):
    client = connect(clusters[n_workers])
    assert client.submit(fibonacci, client, 12).result(40) == 144


@both
def test_a_map_inside_a_map(clusters, connect, n_workers):
    client = connect(clusters[n_workers])
    sums = client.map(sum_of_squares, [(client, n) for n in range(40)], timeout=40)
    assert sums == [sum(x * x for x in range(n)) for n in range(40)]


def process_of(_):
    return os.getpid()


def one_after_the_other(client, n):
    """How many of these ran where this runs."""
    futures = [client.submit(process_of, x) for x in range(n)]
    return [future.result() for future in futures].count(os.getpid())


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_task_that_reads_many_short_ones_has_others_run_most_of_them(clusters, connect, n_workers):
    """Claimed one by one each of them takes a round trip, which is more than it takes to run."""
    client = connect(clusters[n_workers])
    tasks = [client.submit(one_after_the_other, client, 500) for _ in range(3)]
    assert sum(task.result(40) for task in tasks) < 3 * 500 / 2


@both
def test_rows_that_a_task_claims_have_their_own_arguments(clusters, connect, n_workers, serializer):
    client = connect(clusters[n_workers])
    assert client.submit(differing, client).result(40) == [[n, {"n": n}] for n in range(40)]


def differing(client):
    futures = [client.submit(pair, n, n=n) if n % 3 else client.submit(pair, n) for n in range(40)]
    return [future.result() for future in futures]


def pair(number, **named):
    return [number, named or {"n": number}]


def in_completion_order(client, n):
    futures = [client.submit(square, x) for x in range(n)]
    return sorted(future.result() for future in concurrent.futures.as_completed(futures, timeout=30))


def all_at_once(client, n):
    futures = [client.submit(square, x) for x in range(n)]
    done, pending = concurrent.futures.wait(futures, timeout=30)
    assert not pending
    return sorted(future.result() for future in done)


def by_await(client, n):
    async def gather():
        return await asyncio.gather(*[asyncio.wrap_future(client.submit(square, x)) for x in range(n)])

    return asyncio.run(asyncio.wait_for(gather(), 30))


def by_asking(client, n):
    futures = [client.submit(square, x) for x in range(n)]
    while not all(future.done() for future in futures):
        time.sleep(0.01)
    return [future.result() for future in futures]


@pytest.mark.parametrize(
    "wait", [in_completion_order, all_at_once, by_await, by_asking], ids=lambda function: function.__name__
)
@both
def test_a_task_waits_for_futures_the_standard_ways(clusters, connect, wait, n_workers):
    client = connect(clusters[n_workers])
    assert client.submit(wait, client, 20).result(40) == [x * x for x in range(20)]


def by_graph(client, n):
    graph = {0: 0, **{key: (add, key - 1, key) for key in range(1, n)}, "end": (inc, n - 1)}
    graph = {"sum0": 0}
    for x in range(1, n + 1):
        graph[f"sum{x}"] = (add, f"sum{x - 1}", x)
    return client.get({**graph, "end": (inc, f"sum{n}")}, keys=["end"])["end"]


def result_of(client, n):
    return client.submit(square, n).result()


def map_of(client, n):
    return client.map(square, [n])[0]


def first_completed(client, n):
    return next(concurrent.futures.as_completed([client.submit(square, n)])).result()


def asked_now_and_then(client, n):
    future = client.submit(square, n)
    while not future.running() and not future.done():
        time.sleep(0.01)
    return future.result()


def by_callback(client, n):
    found = concurrent.futures.Future()
    client.submit(square, n).add_done_callback(
        lambda done: found.set_result(client.submit(inc, done.result()).result() - 1)
    )
    return found.result()


@pytest.mark.parametrize("wait", [result_of, map_of, first_completed, asked_now_and_then, by_callback])
def test_threads_of_a_task_wait_for_other_tasks_while_it_waits_for_them(clusters, connect, wait):
    client = connect(clusters[1])

    def in_threads(client):
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            return list(threads.map(lambda n: wait(client, n), range(6)))

    futures = [client.submit(in_threads, client) for _ in range(2)]
    assert [future.result(40) for future in futures] == [[n * n for n in range(6)]] * 2
    assert client.submit(inc, 1).result(40) == 2


@both
def test_a_graph_is_built_inside_a_task(clusters, connect, n_workers):
    client = connect(clusters[n_workers])
    futures = [client.submit(by_graph, client, n) for n in range(1, 11)]
    assert [future.result(40) for future in futures] == [n * (n + 1) // 2 + 1 for n in range(1, 11)]


def test_a_task_makes_a_client_without_an_address(start_cluster, connect):
    def around():
        with Client() as inner:
            return inner.submit(square, 7).result(30)

    assert connect(start_cluster(1)).submit(around).result(40) == 49


def countdown(client, n):
    return 0 if not n else 1 + client.submit(countdown, client, n - 1).result()


def test_a_client_that_a_task_is_given_looks_for_a_lost_scheduler_as_long_as_its_original(start_cluster):
    with Client(start_cluster(1).address, reconnect=33.0) as client:
        assert client.submit(lambda given: given._parts.reconnect, client).result(20) == 33.0


def test_a_client_keeps_its_options_inside_a_task_and_its_tasks_come_first(clusters, connect):
    def options(client):
        return dataclasses.asdict(parts_of(client)[1])

    def beside_a_profile(client, n):
        future = client.submit(options, client)
        return options(client), future.result(), future.profiling_info().duration_us >= 0

    client = connect(clusters[1], profiling=True, stream_output=True)
    view = client.with_options(priority=5, retries=2, timeout=30, threads=1)
    for given, submitting, priority in ((view, view, 5), (view, client, 5), (client, view, 5), (client, client, 0)):
        outer, inner, is_profiled = submitting.submit(beside_a_profile, given, 1).result(20)
        assert outer == options(given) | {"priority": priority, "nesting": 1}
        assert inner == outer | {"nesting": 2}
        assert is_profiled


def test_waits_deeper_than_a_stack_should_be_still_end(start_cluster, connect):
    client = connect(start_cluster(1))
    assert client.submit(countdown, client, 60).result(50) == 60


def test_the_error_of_an_inner_task_comes_through_its_outer_one(clusters, connect):
    def fail():
        raise LookupError("inner")

    def outer(client):
        return client.submit(fail).result()

    client = connect(clusters[1])
    with pytest.raises(LookupError, match="inner"):
        client.submit(outer, client).result(30)


def test_a_task_in_an_event_loop_waits_for_one_that_runs_another(clusters, connect):
    async def outer():
        return Client().submit(lambda: asyncio.run(asyncio.sleep(0, 5))).result()

    client = connect(clusters[1])
    assert client.submit(lambda: asyncio.run(outer())).result(40) == 5


def test_what_a_task_waits_for_runs_again_or_is_ended_as_its_options_say(clusters, connect, tmp_path):
    def fail_twice():
        with open(tmp_path / "runs", "a") as file:
            if file.write("x") and file.tell() < 3:
                raise LookupError

    def outer(client):
        with pytest.raises(TaskTimeout):
            client.with_options(timeout=0.1).submit(time.sleep, 60).result(20)
        return client.with_options(retries=2).submit(fail_twice).result()

    client = connect(clusters[1])
    client.submit(outer, client).result(30)
    assert (tmp_path / "runs").read_text() == "xxx"


def test_a_task_that_waits_survives_the_death_of_the_one_it_waits_for(start_cluster, connect, tmp_path):
    mark = tmp_path / "died"

    def die_once():
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return "alive"

    def outer(client):
        return client.submit(die_once).result()

    client = connect(start_cluster(2))
    assert client.submit(outer, client).result(40) == "alive"


class Numbered(Prefixed):
    """A serializer that is used as an instance, which can't be hashed."""

    __hash__ = None

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number


def clients_after(client, n):
    from scaler.client import client as clients

    assert client.submit(square, n).result() == n * n
    return len(clients._shared)


def test_a_worker_has_one_client_however_often_its_serializer_is_pickled(start_cluster, connect):
    client = connect(start_cluster(1), serializer=Numbered(1))
    assert [client.submit(clients_after, client, n).result(20) for n in range(5)] == [1] * 5


def dask_clients_after(n):
    from scaler_dask import client as dask_clients
    from scaler_dask import get_client

    assert get_client().submit(square, n).result() == n * n
    return len(dask_clients._of_engine)


def test_nor_more_than_one_of_dasks_kind(start_cluster, connect):
    client = connect(start_cluster(1), serializer=Numbered(1))
    assert [client.submit(dask_clients_after, n).result(20) for n in range(3)] == [1] * 3


def test_a_cluster_whose_tasks_have_connected_to_it_ends_at_once(start_cluster, connect):
    cluster = start_cluster(2)
    client = connect(cluster)
    assert client.submit(fibonacci, client, 6).result(20) == 8
    client.disconnect()
    with within(0.4, "their clients take leave of nobody"):
        cluster.shutdown()


def test_a_client_whose_cluster_has_ended_leaves_at_once(start_cluster, connect):
    cluster = start_cluster(1)
    client = connect(cluster)
    assert client.submit(inc, 1).result(20) == 2
    cluster.shutdown()
    with within(0.3, "it looks for another one in vain"):
        client.disconnect()


def begins(begun, end):
    begun.touch()
    until(end.exists)


def cancels_what_it_runs(client, path):
    """A thread of it would end what it runs itself; what became of that."""
    begun = path.with_name("begun")
    future = client.submit(begins, begun, path)

    def cancel():
        until(begun.exists)  # to ask the future again and again would have it run elsewhere
        try:
            assert future.running()
            return future.cancel(), future.cancel(force=True), client.cancel([future], force=True), future.done()
        finally:
            path.touch()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        cancelled = threads.submit(cancel)
        future.result()
        return cancelled.result()


def test_what_a_task_runs_itself_is_running_and_is_not_cancelled(clusters, connect, tmp_path):
    """It waited for an answer for 10 s, which came only when that had ended."""
    client = connect(clusters[1])
    assert client.submit(cancels_what_it_runs, client, tmp_path / "end").result(20) == (False, False, 0, False)


def note(path, who):
    with open(path, "a") as file:
        file.write(f"{who}\n")


def stack(client, path, depth):
    """Waits for one like itself; the deepest one ends its process."""
    note(path, depth)
    if depth == 0:
        os._exit(1)
    try:
        return client.submit(stack, client, path, depth - 1).result()
    except WorkerLost as error:
        return [depth, str(error)]


def test_a_task_hears_of_the_loss_of_what_it_ran_itself_and_those_above_run_twice(clusters, connect, tmp_path):
    """Each of their workers ran all of them, and ended with the deepest, until none might run any more."""
    client, path = connect(clusters[1]), tmp_path / "ran"
    depth, error = client.submit(stack, client, path, 4).result(40)
    assert depth == 1
    assert "attempt 4 of 4" in error
    ran = path.read_text().split()
    assert all(ran.count(str(above)) <= 2 for above in (1, 2, 3, 4))
    assert ran.count("0") <= 5


KNOWS_CLIENTS = "'scaler.client.client' in __import__('sys').modules"


def waits_for_one_elsewhere(client):
    """Whether the worker that took this one's place began with what clients are made of."""
    future = client.submit(eval, KNOWS_CLIENTS)
    concurrent.futures.wait([future])
    return future.result()


def test_a_worker_in_the_place_of_one_that_waits_need_not_load_what_clients_are_made_of(start_cluster, connect):
    """Each would take ten times as long to begin with a tree of tasks."""
    client = connect(start_cluster(1))
    assert not client.submit(eval, KNOWS_CLIENTS).result(20)
    assert client.submit(waits_for_one_elsewhere, client).result(20)


def endless(client, path):
    """Waits for one task of its own after the other, until there is a file."""
    while not os.path.exists(path):
        client.submit(square, client.submit(square, 2).result()).result()


def endless_maps(client, path):
    """Maps, one after the other, whose arguments are sent along and are stored; how many there were."""
    maps = 0
    while not os.path.exists(path):
        rows = 100 if maps % 2 else 20_000
        assert client.map(times_three, range(rows)) == [3 * n for n in range(rows)]
        maps += 1
    return maps


def times_three(x):
    sum(range(200))
    return 3 * x


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("priority", [0, 1])
@pytest.mark.parametrize("tree", [endless, endless_maps])
def test_trees_of_tasks_that_wait_hold_up_no_others(start_cluster, connect, n_workers, priority, tree, tmp_path):
    """Each worker has a tree that runs what it waits for itself, and would do so for ever."""
    address = start_cluster(n_workers)
    client, other = connect(address), connect(address)
    end = tmp_path / "end"
    trees = [client.submit(tree, client, str(end)) for _ in range(n_workers)]
    until(lambda: all(tree.running() for tree in trees))
    results = [other.with_options(priority=priority).submit(square, n) for n in range(20)]
    assert [result.result(20) for result in results] == [n * n for n in range(20)]
    assert not any(tree.done() for tree in trees)
    end.touch()
    for running in trees:
        running.result(20)
