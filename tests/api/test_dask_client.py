"""`scaler_dask.Client`: what programs use of dask.distributed's client, on a real cluster."""

import asyncio
import functools
import io
import math
import operator
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import numpy
import pytest
from dask.callbacks import Callback
from dask.delayed import delayed
from support import signals_at
from support.waiting import DEADLINE, patience, until

import scaler
import scaler_dask
from scaler import ClientClosed, SchedulerClusterCombo, WorkerLost
from scaler_dask import (
    CancelledError,
    Client,
    Future,
    WorkerPlugin,
    absent,
    as_completed,
    default_client,
    default_scheduler,
    fire_and_forget,
    futures_of,
    get_client,
    get_task_stream,
    performance_report,
    progress,
    wait,
    worker_client,
)
from scaler_dask.own_cluster import OwnCluster


@pytest.fixture(scope="module")
def cluster():
    with SchedulerClusterCombo(n_workers=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


@pytest.fixture
def gate(tmp_path):
    """Tasks that wait until it is opened."""
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()


class Gate:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.began = Path(f"{path}.began")

    def open(self) -> None:
        self.path.touch()

    def pass_through(self, value=None):
        import time

        self.began.touch()
        while not self.path.exists():
            time.sleep(0.01)
        return value


def inc(x):
    return x + 1


def fail(x=None):
    raise ZeroDivisionError("no such luck")


def count_calls(path):
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path)


# ---- submit, map, gather, scatter ------------------------------------------------------------------------------------
def test_submit_gives_a_future_with_key_status_and_result(client):
    future = client.submit(inc, 1)
    assert future.result(timeout=10) == 2
    assert future.done()
    assert future.status == "finished"
    assert future.exception() is None
    assert future.traceback() is None
    assert future.key.startswith("inc-")
    assert client.submit(inc, 1, key="mine").key == "mine"


def test_keywords_travel_also_those_that_the_engine_has_itself(client):
    def echo(*args, **kwargs):
        return args, kwargs

    given = client.submit(echo, 1, profiling=2, stream_output=3, timeout=4)
    assert given.result(DEADLINE) == ((1,), {"profiling": 2, "stream_output": 3, "timeout": 4})


def test_the_same_pure_call_is_made_once_while_its_future_is_held(client, tmp_path):
    first = client.submit(count_calls, str(tmp_path / "a"))
    assert client.submit(count_calls, str(tmp_path / "a")).result(DEADLINE) == first.result(DEADLINE) == 1
    assert client.submit(count_calls, str(tmp_path / "a"), pure=False).result(DEADLINE) == 2
    del first
    assert client.submit(count_calls, str(tmp_path / "a")).result(DEADLINE) == 3


def test_futures_of_one_call_are_told_apart_by_who_keeps_them_in_dicts_and_sets(client):
    words = ["to", "be", "or", "not", "to", "be"]
    numbers = {client.submit(str.upper, word): number for number, word in enumerate(words)}
    assert {numbers[future]: future.result() for future in as_completed(numbers)} == {
        number: word.upper() for number, word in enumerate(words)
    }
    assert wait(list(numbers)).done == set(numbers) == set(futures_of([list(numbers), set(numbers)]))
    twice = client.persist(da.ones(10, chunks=5))
    assert len(futures_of([twice, twice])) == 2


def test_futures_stand_for_their_values_at_any_depth_of_arguments(client):
    one, two = client.submit(inc, 0), client.submit(inc, 1)
    assert client.submit(operator.add, one, two).result(DEADLINE) == 3
    assert client.submit(sum, [one, two, 4]).result(DEADLINE) == 7
    assert client.submit(dict, {"a": (one, {"b": two})}).result(DEADLINE) == {"a": (1, {"b": 2})}
    assert client.submit(dict, x=one, y=[two]).result(DEADLINE) == {"x": 1, "y": [2]}


def test_a_large_value_goes_from_task_to_task_without_coming_to_the_client(client):
    large = client.submit(numpy.arange, 1_000_000)
    assert client.submit(len, large).result(DEADLINE) == 1_000_000
    assert client.submit(lambda parts: sum(map(len, parts)), [large, large]).result(DEADLINE) == 2_000_000
    assert large.state.task.is_stored
    assert "_result" not in vars(large.state.task)


def test_a_future_in_another_object_travels_with_its_value(client):
    future = client.submit(inc, 1)

    class Holder:
        def __init__(self, future):
            self.future = future

    assert client.submit(lambda holder: holder.future.result(), Holder(future)).result(DEADLINE) == 2
    copy = pickle.loads(pickle.dumps(future))
    assert (copy.key, copy.result(), copy.status) == (future.key, 2, "finished")


def test_map_zips_its_iterables_and_gives_a_future_for_each_call(client):
    assert client.gather(client.map(inc, range(5))) == [1, 2, 3, 4, 5]
    assert client.gather(client.map(pow, [2, 3], [3, 2], mod=5)) == [3, 4]
    assert client.gather(client.map(inc, client.map(inc, range(3)))) == [2, 3, 4]
    assert [future.key for future in client.map(inc, [1, 2], key=["a", "b"])] == ["a", "b"]
    assert client.map(inc, []) == []


def test_the_value_of_an_async_function_is_what_it_comes_to(client):
    async def doubled(value, more=0):
        await asyncio.sleep(0)
        return 2 * value + more

    async def named(dask_worker):
        return dask_worker.name

    assert client.submit(doubled, client.submit(doubled, 1)).result() == 4
    assert client.gather(client.map(doubled, [1, 2], more=5)) == [7, 9]
    assert client.submit(functools.partial(doubled, more=1), 3).key.startswith("doubled-")
    assert set(client.run(doubled, 4).values()) == {8}
    assert all(worker == name for worker, name in client.run(named).items())


def test_gather_keeps_the_shape_of_what_it_is_given(client):
    a, b = client.map(inc, [0, 1])
    assert client.gather(a) == 1
    assert client.gather({"a": [a, (b, 5)], "s": {b}}) == {"a": [1, (2, 5)], "s": {2}}
    assert list(client.gather(iter([a, b]))) == [1, 2]


def test_gather_raises_or_skips_what_failed(client):
    good, bad = client.submit(inc, 1), client.submit(fail)
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        client.gather([good, bad])
    assert client.gather([good, bad, [bad]], errors="skip") == [2, [None]]
    assert client.gather({"a": good, "b": bad}, errors="skip") == {"a": 2, "b": None}
    assert client.gather(bad, errors="skip") is None
    with pytest.raises(ValueError, match="'raise' or 'skip'"):
        client.gather([good], errors="ignore")


def test_scattered_values_are_asked_for_all_before_one_is_waited_for(client, monkeypatch):
    asked = []
    submit_graph = type(client.engine).submit_graph

    def count(engine, graph, keys):
        asked.append(len(keys))
        return submit_graph(engine, graph, keys)

    monkeypatch.setattr(type(client.engine), "submit_graph", count)
    sent = client.scatter(list(range(50)))
    assert client.gather({"a": sent, "b": [client.submit(inc, 1), sent[7]]}) == {"a": list(range(50)), "b": [2, 7]}
    assert asked == [50]
    client.cancel(sent[0])
    assert client.gather(sent[:2], errors="skip") == [1]


def test_scatter_keeps_the_shape_of_what_it_is_given(client):
    table = numpy.arange(100_000)
    one = client.scatter(table, broadcast=True)
    assert client.submit(numpy.sum, one).result(DEADLINE) == table.sum()
    assert (one.result() == table).all()
    first, second = client.scatter([1, 2])
    named = client.scatter({"x": 1, "y": 2})
    assert client.gather([first, second, named]) == [1, 2, {"x": 1, "y": 2}]
    assert named["x"].key == "x"
    assert client.gather(client.scatter(range(3))) == [0, 1, 2]
    assert client.submit(sum, [first, named["y"]]).result(DEADLINE) == 3


# ---- errors, cancelling, retrying ------------------------------------------------------------------------------------
def test_a_failed_task_has_its_exception_and_traceback(client):
    future = client.submit(fail)
    assert isinstance(future.exception(timeout=10), ZeroDivisionError)
    assert future.status == "error"
    frames = []
    traceback = future.traceback()
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert "fail" in frames
    with pytest.raises(ZeroDivisionError):
        client.submit(inc, future).result(DEADLINE)


def test_what_a_task_has_raised_ends_each_time_in_the_frames_of_the_task(client):
    future = client.submit(fail)
    for read in (future.result, future.result, lambda: client.gather([future])):
        with pytest.raises(ZeroDivisionError) as caught:
            read()
        assert [frame.name for frame in caught.traceback].count("fail") == 1
        assert caught.traceback[-1].name == "fail"
        assert caught.value.__cause__ is None


def test_a_task_that_raised_an_exception_from_another_one_tells_of_both(client):
    def fail_for_another():
        try:
            fail()
        except ZeroDivisionError as error:
            raise KeyError("another") from error

    with pytest.raises(KeyError) as caught:
        client.submit(fail_for_another).result(DEADLINE)
    assert caught.traceback[-1].name == "fail_for_another"
    assert "no such luck" in str(caught.value.__cause__)


def test_a_group_that_a_task_has_raised_ends_in_its_frames_and_its_traceback_does_not_grow(client):
    def fail_twice():
        raise ExceptionGroup("several", [ValueError(1), KeyError(2)])

    future = client.submit(fail_twice)
    seen = []
    for _ in range(3):
        with pytest.raises(ExceptionGroup) as caught:
            future.result(DEADLINE)
        seen.append([frame.name for frame in caught.traceback])
    assert seen[0][-1] == "fail_twice"
    assert seen == [seen[0]] * 3


def test_the_traceback_of_what_the_engine_raises_does_not_grow(client):
    future = client.submit(os._exit, 1, retries=0)
    seen = []
    for _ in range(3):
        with pytest.raises(WorkerLost) as caught:
            future.result(DEADLINE)
        seen.append([frame.name for frame in caught.traceback])
    assert seen == [seen[0]] * 3


def test_threads_that_wait_for_one_failed_task_all_have_its_frames(client):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            future, barrier = client.submit(fail, pure=False), threading.Barrier(6)

            def last_frame(_, future=future, barrier=barrier):
                barrier.wait()
                try:
                    future.result(DEADLINE)
                except ZeroDivisionError as error:
                    return traceback.extract_tb(error.__traceback__)[-1].name

            with ThreadPoolExecutor(6) as threads:
                assert list(threads.map(last_frame, range(6))) == ["fail"] * 6
    finally:
        sys.setswitchinterval(interval)


def test_retry_runs_a_failed_task_and_its_failed_arguments_again(client, tmp_path):
    def only_if(path):
        return open(path).read()

    path = tmp_path / "later"
    first = client.submit(only_if, str(path))
    second = client.submit(len, first)
    with pytest.raises(FileNotFoundError):
        second.result(DEADLINE)
    path.write_text("here")
    second.retry()
    assert second.result(DEADLINE) == 4
    assert first.result(DEADLINE) == "here"


def test_retries_is_how_often_a_task_that_raised_runs_again(client, tmp_path):
    def third_time(path):
        if count_calls(path) < 3:
            raise OSError("not yet")
        return "done"

    assert client.submit(third_time, str(tmp_path / "calls"), retries=3).result(DEADLINE) == "done"


def test_cancelled_futures_say_so_and_the_same_call_can_be_submitted_again(client, gate):
    running = client.map(gate.pass_through, [1, 2], pure=False)
    waiting = client.submit(inc, 5)
    until(gate.began.exists, "the tasks to begin")
    client.cancel([running[0], waiting])
    assert waiting.cancelled()
    assert running[0].status == "cancelled"
    for ask in (waiting.result, lambda: client.submit(inc, waiting), lambda: client.gather([waiting])):
        with pytest.raises(CancelledError, match=f"'{waiting.key}' was cancelled.* submit the task anew"):
            ask()
    gate.open()
    assert client.submit(inc, 5).result(DEADLINE) == 6
    assert running[1].result(DEADLINE) == 2


def test_a_task_waits_for_a_host_with_the_resources_it_asks_for(client):
    future = client.submit(inc, 1, resources={"GPU": 1})
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    future.cancel()
    assert future.cancelled()


def test_a_cancelled_future_wakes_who_waits_for_it(client, gate):
    running = client.submit(gate.pass_through, 1)
    until(gate.began.exists, "the task to begin")
    iterator = as_completed([running])
    running.cancel()
    assert next(iterator) is running


def test_what_needs_a_cancelled_future_is_cancelled_though_that_runs(client, gate):
    running = client.submit(gate.pass_through, 1)
    until(gate.began.exists, "the task to begin")
    needing = client.submit(inc, running)
    further = client.submit(sum, [needing, 1])
    persisted = dask.delayed(inc)(dask.delayed(inc)(running)).persist()
    beside, other = dask.persist(dask.delayed(inc)(running), dask.delayed(inc)(2))
    client.cancel(running)
    gate.open()
    for future in (needing, further, *futures_of([persisted, beside])):
        assert future.status == "cancelled"
        with pytest.raises(CancelledError, match="submit the task anew"):
            future.result(DEADLINE)
    assert other.compute() == 3
    assert client.submit(inc, 7).result(DEADLINE) == 8


def test_what_has_ended_stays_though_what_it_needed_is_cancelled(client):
    first = client.submit(inc, 1)
    second = client.submit(inc, first)
    assert second.result(DEADLINE) == 3
    client.cancel(first)
    assert (first.status, second.status) == ("cancelled", "finished")


def test_what_needs_a_future_of_another_client_is_cancelled_there(client, cluster, gate):
    with Client(cluster, set_as_default=False) as other:
        theirs = other.submit(gate.pass_through, 2)
        until(gate.began.exists, "the task to begin")
        needing = other.submit(inc, theirs)
        client.cancel(theirs)
        assert needing.cancelled()
        gate.open()


def test_futures_of_one_key_keep_their_own_values_as_arguments(client):
    first, second = (client.scatter({"x": value})["x"] for value in (1, 20))
    assert (first.result(), second.result()) == (1, 20)
    assert client.submit(operator.add, first, second).result(DEADLINE) == 21
    assert client.submit(sum, [first, second, first], pure=False).result(DEADLINE) == 22
    client.cancel(second)
    assert client.submit(sum, [first], key="x").result(DEADLINE) == 1


def test_a_future_of_another_client_is_cancelled_there(client, cluster, gate):
    with Client(cluster, set_as_default=False) as other:
        mine, theirs = client.submit(gate.pass_through, 1), other.submit(gate.pass_through, 2)
        task = theirs.engine_future
        assert mine.engine_future is not task
        client.cancel(theirs, force=True)
        assert task.cancelled()
        assert theirs.cancelled()
        gate.open()
        assert mine.result(DEADLINE) == 1


def test_cancel_by_force_ends_the_worker(client, gate):
    running = client.submit(gate.pass_through, 1)
    until(gate.began.exists, "the task to begin")
    client.cancel(running, force=True)
    assert running.cancelled()
    assert client.submit(inc, 1).result(20) == 2


def test_a_released_future_has_no_value(client):
    future = client.submit(inc, 1)
    future.release()
    assert future.status == "cancelled"
    with pytest.raises(CancelledError, match="released"):
        future.result()


def test_done_callbacks_get_the_future(client):
    heard = threading.Event()
    seen = []
    future = client.submit(inc, 1)
    future.add_done_callback(lambda done: (seen.append(done), heard.set()))
    assert heard.wait(10)
    assert seen == [future]


# ---- waiting ---------------------------------------------------------------------------------------------------------
def test_wait_for_all_or_the_first(client, gate):
    slow, fast = client.submit(gate.pass_through, 1), client.submit(inc, 1)
    done, not_done = wait([slow, fast], return_when="FIRST_COMPLETED", timeout=10)
    assert (done, not_done) == ({fast}, {slow})
    with pytest.raises(TimeoutError, match="1 of 2 futures"):
        wait([slow, fast], timeout=0.01)
    gate.open()
    assert wait([slow, fast], timeout="10 s").done == {slow, fast}
    assert wait([]).done == set()


def test_as_completed_gives_futures_as_they_end(client, gate):
    slow = client.submit(gate.pass_through, "slow")
    iterator = as_completed([slow, client.submit(inc, 1)], with_results=True)
    assert next(iterator)[1] == 2
    assert not iterator.has_ready()
    iterator.add(client.submit(inc, 2))
    assert next(iterator)[1] == 3
    assert iterator.count() == 1
    gate.open()
    assert list(iterator) == [(slow, "slow")]
    assert iterator.is_empty()


def test_as_completed_in_batches_and_with_errors(client):
    futures = client.map(inc, range(20))
    batches = list(as_completed(futures, with_results=True).batches())
    assert sorted(value for batch in batches for _, value in batch) == list(range(1, 21))
    bad = client.submit(fail)
    ((future, (kind, error, _)),) = as_completed([bad], with_results=True, raise_errors=False)
    assert (future, kind, str(error)) == (bad, ZeroDivisionError, "no such luck")
    with pytest.raises(ZeroDivisionError):
        next(as_completed([bad], with_results=True))


def test_as_completed_gives_up_after_its_timeout(client, gate):
    with pytest.raises(TimeoutError):
        next(as_completed([client.submit(gate.pass_through)], timeout=0.01))


def test_progress_prints_a_bar_that_ends_full(client):
    out = io.StringIO()
    progress(client.map(inc, range(3)), file=out)
    assert "100%" in out.getvalue()


def test_values_are_let_go_of_with_the_last_future(client):
    futures = client.map(numpy.arange, [200_000, 200_001])
    collection = client.persist(delayed(len)(futures[0]))
    assert client.gather(client.submit(len, futures)) == 2
    wait([futures, collection], timeout=10)
    list(as_completed(futures, with_results=True))
    states = [weakref.ref(future.state) for future in (*futures, *futures_of(collection))]
    tasks = [weakref.ref(state().task) for state in states]
    del futures, collection
    until(lambda: not any(ref() for ref in (*states, *tasks)), "the futures to be gone")


def test_a_client_on_one_of_scalers_own_leaves_it_open(cluster):
    with scaler.Client(cluster.address) as engine:
        with Client(engine, set_as_default=False) as client:
            assert client.engine is engine
            future = client.submit(inc, 1)
        assert (future.result(DEADLINE), client.status) == (2, "running")
        assert engine.submit(inc, 2).result(DEADLINE) == 3


def test_a_closed_client_gives_out_no_futures_that_it_has_either(cluster):
    client = Client(cluster)
    known, x = client.submit(inc, 0), client.persist(da.ones(10, chunks=5))
    assert known.result(DEADLINE) == 1
    slow = client.submit(time.sleep, 60)
    client.close()
    for call in (
        lambda: client.submit(inc, 0),
        lambda: client.map(inc, [0]),
        lambda: client.compute(x),
        lambda: client.persist(x),
        lambda: client.get({"a": (inc, 0)}, "a"),
        lambda: client.scatter(known),
    ):
        with pytest.raises(ClientClosed, match="make a new Client"):
            call()
    assert known.result() == 1
    with pytest.raises(CancelledError, match="its client was closed before it ended"):
        slow.result(DEADLINE)


def test_a_future_can_be_made_of_a_key_that_one_is_held_of(client):
    made = client.submit(operator.add, 1, 2)
    for again in (Future(made.key, client), Future(made.key)):
        assert again.result(DEADLINE) == 3
        assert again.client is client
    with pytest.raises(ValueError, match="no future of 'nobodys' is held here"):
        Future("nobodys", client)
    del made, again


def test_a_client_knows_the_cluster_that_it_was_given(client, cluster):
    assert client.cluster is cluster
    with Client(cluster.address, set_as_default=False) as other:
        assert other.cluster is None
        with Client(other.engine, set_as_default=False) as shared:
            assert shared.cluster is None
    assert cluster.is_running


@pytest.mark.parametrize(
    "wait_for",
    [
        lambda client, timeout: client.submit(operator.add, 1, 1).result(timeout),
        lambda client, timeout: client.submit(operator.add, 1, 2).exception(timeout),
        lambda client, timeout: client.submit(operator.add, 1, 3).traceback(timeout),
        lambda client, timeout: wait([client.submit(operator.add, 1, 4)], timeout),
        lambda client, timeout: list(as_completed([client.submit(operator.add, 1, 5)], timeout=timeout)),
        lambda client, timeout: client.wait_for_workers(1, timeout),
        lambda client, timeout: Client(client.scheduler.address, timeout=timeout, set_as_default=False).close(),
    ],
    ids=["result", "exception", "traceback", "wait", "as_completed", "wait_for_workers", "Client"],
)
def test_an_infinite_timeout_is_none(client, wait_for):
    wait_for(client, math.inf)


def test_a_timeout_says_of_what_and_how_long(client, gate):
    def give_up():
        raise TimeoutError

    slow, own = client.submit(gate.pass_through, key="slow"), client.submit(give_up)
    for read in slow.result, slow.exception, slow.traceback:
        with pytest.raises(TimeoutError, match=r"'slow': timed out after 0\.01 s"):
            read(timeout=0.01)
    with pytest.raises(TimeoutError) as raised:
        own.result(timeout=DEADLINE)
    assert str(raised.value) == ""


# ---- collections -----------------------------------------------------------------------------------------------------
def test_it_is_the_default_scheduler_while_it_lives(cluster):
    before = dask.config.get("scheduler", None)
    with Client(cluster) as outer:
        assert dask.base.get_scheduler() == outer.get
        assert dask.config.get("dataframe.shuffle.method") == "tasks"
        assert dask.config.get("array.rechunk.method") == "tasks"
        with Client(cluster) as inner:
            assert default_client() is inner
        assert dask.base.get_scheduler() == outer.get
        assert delayed(os.getpid)().compute() != os.getpid()
        with Client(cluster, set_as_default=False):
            assert default_client() is outer
    assert dask.config.get("scheduler", None) == before
    assert dask.config.get("dataframe.shuffle.method", None) is None
    with pytest.raises(ValueError, match="No clients found"):
        default_client()


@pytest.mark.parametrize("name", ["distributed", "dask.distributed", "Distributed"])
def test_the_scheduler_named_distributed_is_the_clients_while_it_lives(cluster, name):
    with Client(cluster) as client:
        assert delayed(os.getpid)().compute(scheduler=name) != os.getpid()
        assert dask.base.get_scheduler(scheduler=name) == client.get
        with dask.config.set(scheduler=name):
            assert dask.compute(delayed(abs)(-1), delayed(os.getppid)()) != (1, os.getppid())
            assert delayed(abs)(-1).persist().compute() == 1
        with Client(cluster, set_as_default=False):
            assert dask.base.get_scheduler(scheduler=name) == client.get
    with pytest.raises(RuntimeError, match="no Client active"):
        delayed(abs)(-1).compute(scheduler=name)


def test_whoever_was_called_distributed_before_is_again(cluster, monkeypatch):
    monkeypatch.setitem(dask.base.named_schedulers, "distributed", dask.get)
    with Client(cluster) as client:
        assert dask.base.get_scheduler(scheduler="distributed") == client.get
    assert dask.base.get_scheduler(scheduler="distributed") == dask.get


@pytest.mark.skipif(not hasattr(dask.base, "_ensure_not_async"), reason="this dask asks no client whether it blocks")
def test_an_asynchronous_client_is_no_scheduler_of_blocking_calls_by_name_either(cluster):
    async def program():
        async with Client(cluster, asynchronous=True):
            with pytest.raises(RuntimeError, match="synchronous context"):
                delayed(abs)(-1).compute(scheduler="distributed")

    asyncio.run(program())


def test_what_a_closed_client_has_persisted_is_said_to_have_been_its_own(cluster):
    with Client(cluster) as closed:
        x = closed.persist(da.ones(10, chunks=5))
    with Client(cluster), pytest.raises(ClientClosed, match=r"'ones_like-.* was with a client that is closed"):
        x.sum().compute()


def test_a_signal_at_any_point_of_making_and_closing_a_client_leaves_dask_none_that_is_closed(cluster, monkeypatch):
    def look():
        if left := default_scheduler.current():
            assert delayed(abs)(-1).compute() == 1
            left.close()
        assert default_scheduler.current() is None
        assert dask.config.get("scheduler", None) is None

    monkeypatch.setattr(signals_at, "FILES", (str(Path(scaler_dask.__file__).parent),))
    Client(cluster).close()
    assert signals_at.signals_at_each_point(lambda: Client(cluster).close(), look, 7) > 30


def test_clients_may_be_closed_in_any_order(cluster):
    first, second = Client(cluster), Client(cluster)
    first.close()
    assert dask.base.get_scheduler() == dask.base.get_scheduler(scheduler="distributed") == second.get
    second.close()
    assert dask.config.get("scheduler", None) is None
    first, second = Client(cluster), Client(cluster)
    second.close()
    assert dask.base.get_scheduler() == dask.base.get_scheduler(scheduler="distributed") == first.get
    first.close()


def test_compute_gives_a_future_for_each_collection(client):
    x = da.ones((100, 100), chunks=(50, 50))
    total, mean = client.compute([x.sum(), x.mean()])
    assert client.gather([total, mean]) == [10_000, 1]
    assert client.compute(x.sum(), sync=True) == 10_000
    assert client.compute(delayed(inc)(1)).result(DEADLINE) == 2
    assert client.compute(x).result(DEADLINE).shape == (100, 100)
    assert client.gather(client.compute([[delayed(inc)(1), 5], 7])) == [[2, 5], 7]


def test_persisted_collections_flow_into_further_ones_without_coming_back(client):
    x = client.persist(da.random.random((1000, 1000), chunks=(250, 1000)))
    parts = futures_of(x)
    assert len(parts) == 4
    total = float(x.sum().compute())
    y = client.persist(x + 1)
    assert float(y.sum().compute()) == pytest.approx(total + 1_000_000)
    assert float((x + y[::-1]).mean().persist().compute()) == pytest.approx(2 * total / 1e6 + 1)
    assert float(client.compute(x.sum()).result(DEADLINE)) == total
    for part in parts:
        assert part.state.task.is_stored
        assert "_result" not in vars(part.state.task)


def test_persist_of_dask_itself_leaves_the_values_where_they_are(client):
    x = da.ones((1000, 1000), chunks=(500, 1000)).persist()
    (y,) = dask.persist(x + 1)
    assert [len(futures_of(z)) for z in (x, y)] == [2, 2]
    assert wait(y, timeout=10).not_done == set()
    assert y.sum().compute() == 2_000_000


def test_callbacks_see_graphs_of_futures_and_options_are_those_of_tasks(client, tmp_path):
    seen = []
    x = client.persist(delayed(numpy.arange)(200_000))
    with Callback(posttask=lambda key, value, *_: seen.append(value)):
        assert delayed(len)(x).compute(scheduler=client) == 200_000
    assert 200_000 in [value for value in seen if isinstance(value, int)]

    def third_time(path):
        if count_calls(path) < 3:
            raise OSError("not yet")
        return "done"

    assert client.compute(delayed(third_time)(str(tmp_path / "a")), retries=3).result(DEADLINE) == "done"
    assert client.get({"x": (third_time, str(tmp_path / "b"))}, "x", retries=3, priority=2) == "done"
    with dask.annotate(retries=3):
        said = delayed(third_time)(str(tmp_path / "c"))
    assert client.compute(said, optimize_graph=False).result(DEADLINE) == "done"


def test_futures_of_another_client_are_refused_by_name(client, cluster):
    with Client(cluster, set_as_default=False) as other:
        future = other.submit(numpy.arange, 200_000)
        wait(future)
        with pytest.raises(ValueError, match="belongs to another client"):
            delayed(len)(future).compute()
        with pytest.raises(ValueError, match="belongs to another client"):
            client.submit(len, future)


def test_what_is_pending_flows_into_further_graphs_too(client, gate):
    x = client.persist(delayed(gate.pass_through)(numpy.arange(200_000)))
    total = client.compute(delayed(numpy.sum)(x) + delayed(inc)(1))
    assert total.status == "pending"
    gate.open()
    assert total.result(DEADLINE) == sum(range(200_000)) + 2


def test_small_persisted_values_flow_into_graphs(client):
    x = client.persist([delayed(inc)(1), delayed(inc)(2)])
    wait(x, timeout=10)
    assert dask.compute(delayed(sum)(x)) == (5,)
    (y,) = dask.persist(delayed(sum)(x))
    assert y.compute() == 5


@pytest.mark.parametrize("chunk", [5, 50_000], ids=["small", "stored"])
def test_what_a_client_has_persisted_flows_into_graphs_without_it(client, chunk):
    get = functools.partial(scaler_dask.scaler_get, client=client.engine)
    x = client.persist(da.ones(2 * chunk, chunks=chunk))
    assert x.compute(scheduler=get).tolist() == [1] * 2 * chunk
    assert (x + 1).sum().compute(scheduler=get) == 4 * chunk
    assert delayed(inc)(client.submit(inc, 5)).compute(scheduler=get) == 7
    failed = client.persist(delayed(fail)())
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        delayed(inc)(failed).compute(scheduler=get)


def test_futures_and_scattered_values_are_arguments_of_delayed_calls(client):
    future, table = client.submit(inc, 1), client.scatter(numpy.arange(200_000))
    assert delayed(operator.add)(future, 1).compute() == 3
    assert delayed(sum)([future, future]).compute() == 4
    assert delayed(len)(table).compute() == 200_000
    assert client.get({"a": (len, table), "b": (operator.add, "a", future)}, "b") == 200_002


def test_an_array_of_futures(client):
    parts = client.map(numpy.full, [(100_000,)] * 2, [1, 2])
    x = da.concatenate([da.from_delayed(delayed(part), (100_000,), int) for part in parts])
    assert x.sum().compute() == 300_000


def test_a_persisted_part_that_failed_fails_what_needs_it(client):
    x = client.persist(delayed(fail)())
    with pytest.raises(ZeroDivisionError):
        wait(x, timeout=10).done.pop().result()
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        delayed(inc)(x).compute()
    with pytest.raises(ZeroDivisionError, match="no such luck"):
        delayed(inc)(client.persist(delayed(fail)(2))).compute()


def test_get_takes_graphs_and_nested_keys(client):
    graph = {"a": 1, "b": (inc, "a"), "c": (inc, "b")}
    assert client.get(graph, "c") == 3
    assert client.get(graph, [["a", "b"], "c"]) == [[1, 2], 3]
    futures = client.get(graph, [["b"], "c"], sync=False)
    assert client.gather(futures) == [[2], 3]
    with pytest.raises(KeyError):
        client.get(graph, "d")


def test_an_address_may_be_written_as_for_distributed(cluster):
    with Client(cluster.address.removeprefix("tcp://"), set_as_default=False) as client:
        assert client.submit(inc, 1).result() == 2


def test_data_frames_persist_and_shuffle(client):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    dd = pytest.importorskip("dask.dataframe")
    frame = pandas.DataFrame({"k": [n % 3 for n in range(300)], "v": range(300)})
    x = dd.from_pandas(frame, npartitions=4).persist()
    assert len(futures_of(x)) == 4
    expected = frame.groupby("k").v.sum()
    assert (x.groupby("k").v.sum().compute().sort_index() == expected).all()
    shuffled = x.shuffle("k").persist()
    assert len(shuffled.compute()) == 300
    assert client.compute(x.v.sum()).result(20) == frame.v.sum()


# ---- asynchronous use ------------------------------------------------------------------------------------------------
def test_asynchronous_use(cluster):
    async def program():
        async with Client(cluster, asynchronous=True) as client:
            future = client.submit(inc, 1)
            assert await future == 2
            assert await future.result() == 2
            assert await client.gather([future, client.submit(inc, 2)]) == [2, 3]
            with pytest.raises(ZeroDivisionError):
                await client.gather([future, client.submit(fail)])
            assert await client.gather([future, client.submit(fail)], errors="skip") == [2]
            assert isinstance(await client.submit(fail).exception(), ZeroDivisionError)
            with pytest.raises(ZeroDivisionError):
                await client.submit(fail)
            with pytest.raises(RuntimeError, match="StopIteration"):
                await client.submit(next, iter(()))
            (table,) = await client.scatter([numpy.arange(200_000)])
            assert await client.submit(len, table) == 200_000
            assert (await wait([future])).done == {future}
            seen = [value async for _, value in as_completed(client.map(inc, range(5)), with_results=True)]
            assert sorted(seen) == [1, 2, 3, 4, 5]
            assert await client.compute(da.ones(10, chunks=5).sum()) == 10
            assert await client.compute(da.ones(10, chunks=5).sum(), sync=True) == 10
            x = client.persist(da.ones(200_000, chunks=100_000))
            assert await client.compute(x.sum()) == 200_000
            assert await client.get({"a": 1, "b": (inc, "a")}, "b") == 2
        assert client.status == "closed"

    asyncio.run(program())


def test_an_asynchronous_wait_gives_up_after_its_timeout(cluster, gate):
    async def program():
        async with Client(cluster, asynchronous=True) as client:
            slow = client.submit(gate.pass_through)
            with pytest.raises(TimeoutError):
                await wait([slow], timeout=0.01)
            with pytest.raises(TimeoutError, match=r"timed out after 0\.01 s"):
                await slow.result(timeout=0.01)
            await client.cancel([slow])
            assert slow.cancelled()

    asyncio.run(program())


def test_an_asynchronous_client_says_that_it_has_to_be_awaited(cluster):
    client = Client(cluster, asynchronous=True)
    with pytest.raises(RuntimeError, match="async with"):
        client.submit(inc, 1)


# ---- inside tasks ----------------------------------------------------------------------------------------------------
def test_tasks_use_the_client_of_the_cluster_around_them(client):
    def outer(n):
        client = get_client()
        futures = client.map(inc, range(n))
        ended = sum(value for _, value in as_completed(futures, with_results=True))
        return ended, sum(client.gather(futures)), client.submit(sum, futures).result()

    assert client.gather(client.map(outer, [3, 4, 5, 6])) == [(6,) * 3, (10,) * 3, (15,) * 3, (21,) * 3]


def test_collections_are_computed_inside_tasks(client):
    def outer():
        with worker_client():
            pids = dask.compute(*[delayed(os.getpid)() for _ in range(3)])
            total = float(da.ones(10, chunks=5).sum().compute())
        return total, pids, dask.config.get("scheduler", None)

    total, _, scheduler = client.submit(outer).result(30)
    assert (total, scheduler) == (10.0, None)


def test_a_client_travels_into_tasks(client):
    def outer(client):
        return client.submit(inc, 1).result()

    assert client.submit(outer, client).result(20) == 2


def test_get_client_outside_of_tasks_is_the_default_one(client):
    assert get_client() is client
    assert Client.current() is client


# ---- the cluster -----------------------------------------------------------------------------------------------------
def test_run_calls_a_function_once_in_each_worker(client):
    pids = client.run(os.getpid)
    assert len(pids) == len(set(pids.values())) == 2
    with pytest.raises(ZeroDivisionError):
        client.run(fail)
    assert all(isinstance(error, ZeroDivisionError) for error in client.run(fail, on_error="return").values())
    assert client.run(fail, on_error="ignore") == {}


class OfTwo(Exception):
    """Can't be pickled as a value: its constructor wants more than its text."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


def test_what_a_function_raises_in_each_worker_is_its_own_whatever_its_constructor_takes(client):
    def fail():
        raise OfTwo(7, "so")

    with pytest.raises(OfTwo, match="7: so") as caught:
        client.run(fail)
    assert caught.value.code == 7
    returned = client.run(fail, on_error="return")
    assert len(returned) == 2
    assert all(type(error) is OfTwo for error in returned.values())
    names = client.run(lambda dask_worker: dask_worker.name)
    assert list(names) == list(names.values())


def test_plugins_set_up_workers_that_are_there_and_those_that_come(cluster):
    class Plugin(WorkerPlugin):
        name = "marking"

        def __init__(self, mark):
            self.mark = mark

        def setup(self, worker):
            assert worker.name
            os.environ["SCALER_TEST_MARK"] = self.mark

        def teardown(self, worker):
            os.environ.pop("SCALER_TEST_MARK")

    def mark(_=None):
        return os.environ.get("SCALER_TEST_MARK")

    with Client(cluster) as client:
        assert len(client.register_plugin(Plugin("red"))) == 2
        assert set(client.run(mark).values()) == {"red"}
        with pytest.raises(WorkerLost):
            client.submit(os._exit, 1, pure=False).result(30)
        assert set(client.gather(client.map(mark, range(20), pure=False))) == {"red"}
        assert set(dask.compute(*[delayed(mark)(n) for n in range(20)])) == {"red"}
        client.unregister_worker_plugin("marking")
        client.submit(inc, 1).result(DEADLINE)


def test_what_is_run_in_each_worker_and_before_tasks_travels_as_functions_of_tasks_do(cluster):
    """As cloudpickle alone sends it, a function made by singledispatch does not."""

    @functools.singledispatch
    def kind(_):
        return "other"

    @kind.register
    def _(_: int):
        return "number"

    class Plugin:
        name = "dispatching"

        def setup(self, worker):
            assert kind(1) == "number"

    with Client(cluster) as client:
        assert set(client.run(kind, 1).values()) == {"number"}
        client.register_plugin(Plugin())
        assert client.gather(client.map(kind, [1, "a"])) == ["number", "other"]
        client.unregister_worker_plugin("dispatching")


def test_what_sets_workers_up_may_be_awaited_and_want_to_know_its_worker(cluster):
    class Plugin(WorkerPlugin):
        name = "awaited"

        async def setup(self, worker):
            os.environ["SCALER_TEST_AWAITED"] = worker.name

    async def called(dask_worker):
        os.environ["SCALER_TEST_CALLED"] = dask_worker.name

    with Client(cluster) as client:
        client.register_plugin(Plugin())
        client.register_worker_callbacks(called)
        names = client.run(lambda: (os.environ.get("SCALER_TEST_AWAITED"), os.environ.get("SCALER_TEST_CALLED")))
        assert names == {name: (name, name) for name in names}
        client.unregister_worker_plugin("awaited")


def test_tasks_have_the_names_of_their_functions_whatever_is_around_these(cluster):
    def made():
        return threading.Lock()

    async def made_later():
        return threading.Lock()

    class Plugin(WorkerPlugin):
        name = "around"

        def setup(self, worker):
            pass

    with Client(cluster) as client:
        with pytest.raises(scaler.SerializationError, match=r"^task \S+made_later: "):
            client.submit(made_later).result(DEADLINE)
        with pytest.raises(scaler.SerializationError, match=r"^task \S+made: "):
            client.run(made)
        client.register_plugin(Plugin())
        for function in (made, made_later):
            with pytest.raises(scaler.SerializationError, match=rf"^task \S+{function.__name__}: "):
                client.submit(function).result(DEADLINE)
        client.unregister_worker_plugin("around")


@pytest.mark.parametrize("option", ["priority", "retries"])
def test_an_option_that_is_no_number_is_called_by_its_name(client, option):
    with pytest.raises(TypeError, match=f"{option} .*'hi'"):
        client.submit(inc, 1, **{option: "hi"})


def test_a_plugin_without_a_setup_is_refused(client):
    with pytest.raises(NotImplementedError, match=r"setup\(worker\)"):
        client.register_plugin(object())


def test_uploaded_modules_can_be_imported_in_tasks(cluster, tmp_path):
    name = f"module_{uuid.uuid4().hex}"
    path = tmp_path / f"{name}.py"
    path.write_text("def answer(): return 42\n")

    def use(_):
        import importlib

        return importlib.import_module(name).answer()

    with Client(cluster) as client:
        client.upload_file(path)
        assert client.gather(client.map(use, range(8))) == [42] * 8
        path.write_text("def answer(): return 43\n")
        client.upload_file(path)
        assert set(client.gather(client.map(use, range(8), pure=False))) == {43}
    assert not list(Path(tempfile.gettempdir()).glob(f"scaler-upload-*/{name}.py")), "nothing is left on disk"


def test_what_there_is_to_know_of_the_cluster(client):
    future = client.submit(inc, 1)
    wait([future])
    assert client.who_has([future]) == {future.key: (client.engine.address,)}
    assert sum(client.nthreads().values()) == sum(client.ncores().values()) == 2
    assert len(client.scheduler_info()["workers"]) == 2
    assert client.dashboard_link is None
    assert len(client.get_versions(check=True)["workers"]) == 2
    client.wait_for_workers(2, timeout=10)
    client.replicate([future])
    client.rebalance()
    fire_and_forget(future)


def test_task_streams_and_reports_have_the_tasks_of_their_time(client, tmp_path):
    report = tmp_path / "report.html"
    with performance_report(str(report)), get_task_stream() as stream:
        future, failed = client.submit(inc, 41), client.submit(int, "<x>")
        wait([future, failed])
    assert [(record["key"], record["status"], record["error"]) for record in stream.data] == [
        (future.key, "finished", ""),
        (failed.key, "error", "ValueError: invalid literal for int() with base 10: '<x>'"),
    ]
    page = report.read_text()
    assert future.key in page
    assert "<td>ValueError: invalid literal for int() with base 10: &#x27;&lt;x&gt;&#x27;</td>" in page
    client.submit(inc, 42).result(DEADLINE)
    assert len(stream.data) == 2


def test_a_client_without_an_address_has_a_cluster_of_its_own_and_can_restart_it():
    with Client(n_workers=1, threads_per_worker=4, resources={"GPU": 2}) as client:
        assert client.submit(inc, 1).result(DEADLINE) == 2
        assert client.submit(inc, 2, resources={"GPU": 1}).result(DEADLINE) == 3
        pid, held = client.submit(os.getpid, pure=False).result(DEADLINE), client.submit(inc, 7)
        client.restart()
        assert held.cancelled()
        assert client.submit(os.getpid, pure=False, resources={"GPU": 1}).result(DEADLINE) != pid
        future = client.submit(inc, 1)
        future.result(DEADLINE)
    assert client.status == "closed"
    assert future.result() == 2
    with pytest.raises(ClientClosed):
        client.submit(inc, 3)
    client.close()


def test_the_cluster_of_a_client_has_the_names_of_dasks_clusters_or_says_what_to_use():
    with Client(n_workers=1) as client:
        cluster = client.cluster
        assert isinstance(cluster, SchedulerClusterCombo)
        assert cluster.scheduler_address == cluster.scheduler.address == cluster.name == client.scheduler.address
        assert not cluster.asynchronous
        with Client(cluster, set_as_default=False) as other:
            assert other.submit(inc, 1).result(DEADLINE) == 2
        with pytest.raises(AttributeError, match=r"LocalCluster.scale: .*Client\(n_workers=...\)"):
            cluster.scale(3)
        with pytest.raises(AttributeError, match=r"scaler\.Cluster"):
            cluster.adapt(minimum=1)
        with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
            cluster.no_such_thing  # noqa: B018
        with pytest.raises(AttributeError, match="another process"):
            client.scheduler.identity()
        restarted = client.restart().cluster
        assert (cluster.status, restarted.status) == ("closed", "running")
        with restarted:
            pass
        restarted.close()
        assert restarted.status == "closed"


def test_what_distributed_calls_its_own_is_here_or_says_what_to_use():
    distributed = pytest.importorskip("distributed")

    def names(kind):
        return {name for name in dir(kind) if not name.startswith("_")}

    assert names(distributed.Client) - names(Client) - absent.OF_CLIENT.keys() == {"asynchronous"}  # of each object
    assert names(distributed.LocalCluster) - names(OwnCluster) - absent.OF_CLUSTER.keys() == set()
    assert names(Client) & absent.OF_CLIENT.keys() == names(OwnCluster) & absent.OF_CLUSTER.keys() == set()


def test_a_client_says_which_keys_it_has_futures_of_and_where_its_scheduler_is(client, cluster):
    future, failing = client.submit(inc, 1), client.submit(fail)
    wait([future, failing])
    assert {key: state.status for key, state in client.futures.items()} == {
        future.key: "finished",
        failing.key: "error",
    }
    assert client.scheduler.address == cluster.address
    assert repr(client.scheduler) == f"<Scheduler {cluster.address!r}>"
    with Client(client.scheduler.address, security=client.security, set_as_default=False) as other:
        assert other.submit(inc, 1).result(DEADLINE) == 2
    with pytest.raises(AttributeError, match="`futures` has the keys"):
        client.refcount  # noqa: B018


def test_an_executor_on_the_cluster(client):
    with client.get_executor() as executor:
        assert list(executor.map(inc, range(3))) == [1, 2, 3]
    assert client.submit(inc, 1).result(DEADLINE) == 2


def test_what_is_missing_says_what_to_use_instead(client):
    with pytest.raises(AttributeError, match="persisted collection"):
        client.publish_dataset()
    with pytest.raises(ImportError, match="SchedulerClusterCombo"):
        from scaler_dask import LocalCluster  # noqa: F401
    with pytest.raises(ImportError, match="state that tasks share"):
        scaler_dask.Lock("name")
    with pytest.raises(AttributeError, match="no attribute 'no_such_thing'"):
        scaler_dask.no_such_thing  # noqa: B018
    with pytest.raises(NotImplementedError, match="no actors"):
        client.submit(inc, 1, actor=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Client(colour="red")
    with pytest.raises(TypeError, match="the address of scaler_scheduler"):
        Client(scheduler_file="scheduler.json")
    with pytest.raises(TypeError, match=r"SchedulerClusterCombo.*, not 8786"):
        Client(8786)
    with pytest.raises(TypeError, match="callable function"):
        client.submit(5)
    with pytest.raises(ValueError, match="no worker plugin 'unknown'"):
        client.unregister_worker_plugin("unknown")
    assert not hasattr(client, "no_such_thing")


def test_a_persisted_collection_that_is_given_to_a_task_has_its_values_there(client):
    x = client.persist(da.ones(10, chunks=5))
    assert client.submit(lambda collection: float(collection.sum().compute()), x).result(30) == 10
    assert float((x + 1).sum().compute()) == 20
    assert x.compute(scheduler="threads").sum() == 10


@pytest.mark.parametrize("size", [3, 300_000])  # of values that travel in messages, and of such as are stored
def test_changing_a_result_changes_nothing_for_others(client, size):
    future = client.submit(list, range(size))
    mine = future.result()
    mine.append("mine")
    assert len(future.result()) == len(client.gather([future])[0]) == size
    assert client.submit(len, future).result(DEADLINE) == size
    assert client.submit(len, [future]).result(DEADLINE) == 1
    kept = client.persist(delayed(list)(range(size)))
    kept.compute().append("mine")
    assert len(kept.compute()) == size
    assert delayed(len)(kept).compute() == size
    given = client.get({"given": list(range(size))}, ["given"], sync=False)[0]
    given.result().append("mine")
    assert len(given.result()) == size


def test_a_callback_may_wait_for_other_futures_and_its_errors_harm_nobody(client, caplog):
    told = []

    def follow(future):
        told.append(client.submit(inc, future).result(20))

    def refuse(_):
        raise LookupError("not mine")

    first = client.submit(inc, 1)
    first.add_done_callback(refuse)
    first.add_done_callback(follow)
    until(lambda: told == [3])
    first.add_done_callback(follow)
    until(lambda: told == [3, 3])
    assert "not mine" in caplog.text


def test_a_chain_of_futures_keeps_no_value_but_the_last(client):
    future = client.submit(numpy.ones, 300_000)
    for _ in range(20):
        future = client.submit(numpy.negative, future)
    wait(future)
    until(lambda: len(client._registry.states()) == 1)
    assert future.result().sum() == 300_000


def test_what_is_forgotten_ends_before_its_client_does(cluster, tmp_path, gate):
    def write(path):
        gate.pass_through()
        path.touch()

    paths = [tmp_path / str(n) for n in range(4)]
    opens = threading.Timer(0.1, gate.open)
    with Client(cluster) as client:
        scaler_dask.fire_and_forget(client.map(write, paths, pure=False))
        opens.start()
    opens.join()
    assert all(path.exists() for path in paths)


def test_a_close_waits_no_longer_for_what_is_forgotten_than_it_is_told(cluster, gate):
    client = Client(cluster)
    scaler_dask.fire_and_forget(client.submit(gate.pass_through, 1))
    client.close(timeout="100ms")
    assert client.status == "closed"


def test_nothing_is_kept_of_what_is_forgotten_once_it_has_ended(client):
    futures = client.map(inc, range(50))
    scaler_dask.fire_and_forget(futures)
    wait(futures)
    until(lambda: not client._awaited_at_close)


def test_keys_that_the_client_has_are_not_computed_again(client, tmp_path):
    path = str(tmp_path / "calls")
    one = delayed(count_calls)(path, dask_key_name="one")
    held = client.compute(one)
    assert held.result(DEADLINE) == 1
    assert client.compute(one + 1).result(DEADLINE) == 2
    assert (one + 2).compute() == 3
    assert client.persist(one).compute() == 1
    held.release()
    del held
    assert (one + 3).compute() == 5


def test_what_depends_on_a_cancelled_future_is_cancelled(client, gate):
    holding = client.map(gate.pass_through, range(2), pure=False)
    first = client.submit(inc, holding[0])
    second = client.submit(inc, first)
    client.cancel(first)
    gate.open()
    with pytest.raises(CancelledError):
        second.result(DEADLINE)
    assert second.status == "cancelled"
    assert client.gather(holding) == [0, 1]


def test_a_long_chain_that_failed_is_run_again(client, tmp_path):
    path = str(tmp_path / "calls")

    def second_time(path):
        if count_calls(path) < 2:
            raise OSError("not yet")
        return 0

    future = client.submit(second_time, path)
    for _ in range(1500):
        future = client.submit(inc, future)
    assert isinstance(future.exception(patience(20)), OSError)
    future.retry()
    assert future.result(patience(20)) == 1500


def test_waits_that_end_leave_nothing_behind(client, gate):
    futures = client.map(gate.pass_through, range(3), pure=False)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            wait(futures, timeout=0.01)
    assert not [callback for future in futures for callback in future.state._watchers]
    told = []
    for future in futures:
        future.add_done_callback(lambda future: told.append(future.result()))
    gate.open()
    assert not wait(futures, timeout=20).not_done
    until(lambda: sorted(told) == [0, 1, 2])
