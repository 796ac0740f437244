"""`scaler.Executor` is what `concurrent.futures` says an executor is."""

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import itertools
import multiprocessing
import os
import re
import sys
import threading
import time
import weakref
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest.mock import Mock

import dask
import numpy
import pytest
from support import ROOT, until, within

from scaler import Client, Executor, SerializationError
from scaler.executor import executor as executor_module

WITH_SERIALIZERS = True


def double(x):
    return 2 * x


def when(path):
    """Wait until somebody has made this file; without one return at once."""
    while path and not os.path.exists(path):
        time.sleep(0.001)
    return path


def appended(path, line):
    with open(path, "a") as file:
        file.write(f"{line}\n")


class Thing:
    def method(self, x=None):
        return x

    def fail(self):
        raise LookupError("of a method")


class Counter:
    def __init__(self):
        self.calls = 0

    def count(self, by):
        self.calls += by
        return self.calls


def added(items, item):
    items.append(item)
    return items


@pytest.fixture
def new_pool(serializer):
    """Makes executors."""
    return functools.partial(Executor, serializer=serializer)


@pytest.fixture
def pool(cluster, new_pool):
    with new_pool(address=cluster.address) as pool:
        yield pool


def test_it_starts_a_cluster_of_its_own_and_ends_it(new_pool, traces):
    with new_pool(2) as pool:
        assert isinstance(pool, concurrent.futures.Executor)
        assert pool.submit(double, 4).result(20) == 8
        assert len(set(pool.map(lambda _: (time.sleep(0.01), os.getpid())[1], range(50)))) == 2
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(double, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.map(double, [1])
    pool.shutdown()


def test_map_is_that_of_the_standard_library(pool):
    assert list(pool.map(double, range(100), chunksize=7)) == [2 * x for x in range(100)]
    assert list(pool.map(lambda pair: pair, [(1, 2)])) == [(1, 2)]
    assert list(pool.map(pow, [2, 3, 4], [2, 2])) == [4, 9]
    assert list(pool.map(double, [])) == []
    assert list(pool.map(double, range(10), buffersize=3)) == [2 * x for x in range(10)]
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(double, [1], chunksize=0)


def test_map_gives_results_before_one_that_fails(pool):
    results = pool.map(lambda x: 1 / (3 - x), range(5))
    assert [next(results) for _ in range(3)] == [1 / 3, 1 / 2, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("options", [{}, {"chunksize": 7}, {"buffersize": 2}, {"chunksize": 7, "buffersize": 2}])
@pytest.mark.parametrize("rows", [60, 2000])
def test_an_error_of_a_map_says_which_item(pool, options, rows):
    with pytest.raises(ZeroDivisionError) as caught:
        list(pool.map(lambda x: 1 // (50 - x), range(rows), **options))
    assert caught.value.__notes__ == ["while mapping item [50]: 50"]
    with pytest.raises(ZeroDivisionError) as caught:
        list(pool.map(divmod, [1] * rows, range(50, 50 - rows, -1), **options))
    assert caught.value.__notes__ == ["while mapping item [50]: (1, 0)"]


def test_an_error_of_a_map_says_which_item_after_an_initializer(new_pool, cluster):
    with new_pool(address=cluster.address, initializer=double, initargs=(1,)) as pool:
        for size in (1, 3):
            with pytest.raises(ZeroDivisionError) as caught:
                list(pool.map(lambda x: 1 // (5 - x), range(8), chunksize=size))
            assert caught.value.__notes__ == ["while mapping item [5]: 5"]


@pytest.mark.parametrize("rows", [3, 2_000])
def test_an_iterable_is_asked_for_its_items_once(pool, rows):
    class Once:
        asked = 0

        def __iter__(self):
            self.asked += 1
            return iter(range(rows))

    items = Once()
    assert list(pool.map(abs, items)) == list(range(rows))
    assert items.asked == 1


def test_items_are_not_kept_longer_than_their_results(pool):
    items = [Thing() for _ in range(20)]
    seen = [weakref.ref(item) for item in items]
    for options in ({"chunksize": 5}, {}):
        results = pool.map(type, iter(items), **options)
        for _ in range(10):
            next(results)
        if options:
            del items[:]
            gc.collect()
            assert [ref() is None for ref in seen[:9]] == [True] * 9
            items.extend(Thing() for _ in range(20))
            seen = [weakref.ref(item) for item in items]
    del items[:]
    gc.collect()
    assert [ref() is None for ref in seen[:9]] == [True] * 9
    results.close()


def test_arguments_that_do_not_fit_are_the_futures_error(pool):
    """As with the standard executors."""
    with pytest.raises(TypeError, match="positional argument"):
        pool.submit(double).result(20)


def test_an_argument_or_function_that_cannot_be_pickled_is_the_futures_error(pool):
    lock = threading.Lock()
    for future in (pool.submit(double, lock), pool.submit(double, x=lock), pool.submit(lambda: lock)):
        assert isinstance(future.exception(20), SerializationError)
        assert "lock" in str(future.exception())
    assert "argument 'x' of" in str(pool.submit(double, x=lock).exception(20))
    assert pool.submit(double, 4).result(20) == 8
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(double, lock)


@pytest.mark.parametrize("options", [{}, {"chunksize": 1_500}])
@pytest.mark.parametrize("rows", [10, 2_000])
def test_a_map_yields_what_comes_before_an_item_that_cannot_be_pickled(pool, rows, options):
    results = pool.map(double, [*range(rows), threading.Lock(), 1], **options)
    assert list(itertools.islice(results, rows)) == [2 * x for x in range(rows)]
    with pytest.raises(SerializationError, match=r"argument 0 of .*double.*lock") as info:
        next(results)
    assert f"item [{rows}]" in info.value.__notes__[0]


@pytest.mark.parametrize("rows", [10, 2_000])
def test_a_map_of_a_function_that_cannot_be_pickled_raises_at_its_first_result(pool, rows):
    lock = threading.Lock()
    results = pool.map(lambda _: lock, range(rows))
    with pytest.raises(SerializationError, match="lock"):
        next(results)
    assert list(pool.map(lambda _: lock, [], chunksize=2)) == []


def test_a_result_that_cannot_be_pickled_is_called_by_its_type(client):
    called = "an object of type" if client._parts.serializer is None else "cannot pickle"
    with pytest.raises(SerializationError, match=f"the result of .*: {called} '?_thread.lock"):
        client.submit(threading.Lock).result(20)


def test_an_executor_that_is_given_to_a_task_says_what_to_give_it(pool):
    advice = r"make scaler.Client\(\) in the task, or give it the executor's `client`"
    with pytest.raises(SerializationError, match=advice):
        pool.submit(double, pool).result(20)
    with pytest.raises(SerializationError, match=advice):
        pool.submit(lambda: pool.submit(double, 1).result(20)).result(20)
    assert pool.submit(lambda client: client.submit(double, 1).result(20), pool.client).result(20) == 2


async def coroutine(number):
    raise AssertionError


async def async_generator(number):
    yield number


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (coroutine, "call asyncio.run in the function"),
        (lambda number: coroutine(number), "call asyncio.run in the function"),
        (lambda number: (n for n in ()), "return a list"),
        (async_generator, "return a list"),
    ],
)
def test_a_result_that_nobody_has_run_says_what_to_do(client, pool, make, advice):
    for future in client.submit(make, 1), pool.submit(make, 1):
        with pytest.raises(SerializationError, match=f"the result of .*: .*{advice}"):
            future.result(20)
    with pytest.raises(SerializationError, match=advice):
        client.map(make, [1, 2])
    with pytest.raises(SerializationError, match=advice):
        client.get({"a": (make, 1)}, ["a"])


def test_python_warns_of_no_coroutine_that_a_task_returns(scripts):
    said = scripts.run("""
    import scaler

    async def coroutine():
        pass

    with scaler.Executor(1) as pool:
        assert pool.submit(coroutine).exception(40)
    """)
    assert "never awaited" not in said


def test_arguments_of_the_standard_executors_are_taken(cluster):
    context = multiprocessing.get_context("spawn")
    with Executor(2, address=cluster.address, mp_context=context, thread_name_prefix="pool") as pool:
        assert pool.submit(double, 4).result(20) == 8


def test_an_argument_that_nobody_knows_is_refused_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(executor_module, "SchedulerClusterCombo", Mock(side_effect=AssertionError))
    with pytest.raises(TypeError, match=r"^Executor\(\) got an unexpected keyword argument 'workers'"):
        Executor(1, workers=3)


def test_map_raises_timeout_error(pool):
    with pytest.raises(TimeoutError):
        list(pool.map(time.sleep, [0.5], timeout=0.05))


def test_keywords_that_the_client_knows_are_passed_on(pool):
    assert pool.submit(lambda **kwargs: sorted(kwargs), profiling=1, stream_output=2).result(20) == [
        "profiling",
        "stream_output",
    ]


def test_shutdown_waits_for_what_is_under_way(new_pool, cluster):
    pool = new_pool(address=cluster.address)
    futures = [pool.submit(time.sleep, 0.05) for _ in range(4)]
    pool.shutdown()
    assert all(future.done() and not future.cancelled() for future in futures)


def test_shutdown_can_cancel_what_has_not_begun(new_pool, cluster):
    pool = new_pool(address=cluster.address)
    futures = [pool.submit(time.sleep, 0.2) for _ in range(50)]
    with within(3.0):
        pool.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) > 30


def test_what_workers_are_there_for_is_not_cancelled(new_pool, traces):
    for _ in range(5):
        pool = new_pool(2)
        futures = [pool.submit(time.sleep, 0.01) for _ in range(50)]
        pool.shutdown(cancel_futures=True)
        assert all(future.done() for future in futures)
        assert [future.cancelled() for future in futures[:2]] == [False, False]
        assert sum(future.cancelled() for future in futures) > 20


def test_shutdown_without_waiting_lets_the_tasks_end(new_pool, cluster, tmp_path):
    pool = new_pool(address=cluster.address)
    mark = tmp_path / "mark"
    future = pool.submit(when, str(mark))
    pool.shutdown(wait=False)
    assert not future.done()
    mark.touch()
    assert future.result(20) == str(mark)


def test_shutdown_that_waits_comes_after_one_that_does_not(new_pool, start_cluster, tmp_path):
    pool = new_pool(address=start_cluster(1).address)
    future = pool.submit(when, str(tmp_path / "file"))
    pool.shutdown(wait=False)
    threading.Timer(0.1, (tmp_path / "file").touch).start()
    pool.shutdown()
    assert future.done()
    assert pool.client.closed


def test_calls_that_race_with_shutdown_end_or_are_refused(new_pool, cluster):
    pool = new_pool(address=cluster.address)
    taken, refused = [], threading.Event()

    def submit():
        with contextlib.suppress(RuntimeError):
            taken.extend((pool.submit(double, n), n) for n in itertools.count())
        refused.set()

    threading.Thread(target=submit).start()
    until(lambda: len(taken) > 100)
    pool.shutdown()
    assert refused.wait(20)
    assert [future.result(0) for future, _ in taken] == [2 * n for _, n in taken]


# ---- map -------------------------------------------------------------------------------------------------------------
def test_map_yields_each_result_when_it_is_there(new_pool, cluster, tmp_path):
    with new_pool(address=cluster.address) as pool:
        last = str(tmp_path / "last")
        results = pool.map(when, [None] * 20 + [last])
        assert [next(results) for _ in range(20)] == [None] * 20
        Path(last).touch()
        assert list(results) == [last]


def test_the_time_of_map_runs_from_its_call_and_what_is_there_is_yielded(new_pool, cluster, tmp_path):
    with new_pool(address=cluster.address) as pool:
        results = pool.map(when, [None, None, str(tmp_path / "never")] + [None] * 50, timeout=1.0)
        time.sleep(1.0)
        with contextlib.closing(results):
            assert [next(results), next(results)] == [None, None]
            with within(0.9), pytest.raises(TimeoutError):
                next(results)
        (tmp_path / "never").touch()


def test_a_map_that_is_ended_early_cancels_what_has_not_begun(new_pool, start_cluster, tmp_path):
    log = str(tmp_path / "log")
    with new_pool(address=start_cluster(1).address) as pool:
        results = pool.map(lambda n: (appended(log, n), time.sleep(0.02)), range(500))
        next(results)
        results.close()
    assert len(Path(log).read_text().split()) < 100


def test_map_with_a_buffer_reads_only_so_many_items_ahead(new_pool, cluster):
    with new_pool(address=cluster.address) as pool:
        numbers = itertools.count()
        results = pool.map(double, numbers, buffersize=4)
        assert next(numbers) == 4
        assert [next(results) for _ in range(100)] == [2 * n for n in range(101) if n != 4]
        assert next(numbers) == 105
        chunks = pool.map(pow, itertools.count(), itertools.repeat(2), buffersize=2, chunksize=10)
        assert list(itertools.islice(chunks, 95)) == [n**2 for n in range(95)]
        for wrong, error in ((0, ValueError), (1.5, TypeError)):
            with pytest.raises(error, match="buffersize"):
                pool.map(double, [1], buffersize=wrong)


def test_a_map_keeps_the_executor_that_it_needs(new_pool, traces):
    assert list(new_pool(1).map(double, range(20), buffersize=2)) == list(range(0, 40, 2))
    gc.collect()
    traces.check(10.0)


def test_many_rows_and_chunks_are_those_of_few(new_pool, cluster):
    with new_pool(address=cluster.address) as pool:
        rows = range(5000)
        assert list(pool.map(double, rows)) == [2 * n for n in rows]
        assert list(pool.map(divmod, rows, rows[1:], chunksize=77)) == [divmod(n, n + 1) for n in rows[:-1]]
        assert list(pool.map(double, rows, chunksize=77, buffersize=3)) == [2 * n for n in rows]


def test_a_chunk_that_fails_comes_after_those_before_it(new_pool, cluster):
    with new_pool(address=cluster.address) as pool:
        results = pool.map(lambda n: 1 // (25 - n), range(100), chunksize=10, buffersize=2)
        assert len(list(itertools.islice(results, 20))) == 20
        with pytest.raises(ZeroDivisionError):
            next(results)


@pytest.mark.parametrize("options", [{}, {"buffersize": 2}, {"buffersize": 2, "chunksize": 5}])
@pytest.mark.parametrize("prepared", [{}, {"initializer": print}])
def test_a_map_captures_its_function_once(new_pool, prepared, options):
    times = []

    class Table:
        value = 1

        def __getstate__(self):
            times.append(1)
            return {}

    table = Table()
    with new_pool(1, **prepared) as pool:
        assert list(pool.map(lambda x: x + table.value, range(50), **options)) == list(range(1, 51))
    assert 1 <= len(times) <= 2  # what a class of the program's has in it is looked at again when it is known


def test_a_map_of_nothing_captures_nothing(new_pool):
    lock = threading.Lock()
    with new_pool(1) as pool:
        assert list(pool.map(lambda: lock, [])) == []
    assert list(pool.map(abs, [])) == []
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.map(lambda x: x, [1])


# ---- the end without shutdown ----------------------------------------------------------------------------------------
def test_a_forgotten_executor_lets_its_tasks_end_and_goes(new_pool, traces, tmp_path):
    gate = str(tmp_path / "gate")
    pool = new_pool(1)
    future, forgotten = pool.submit(when, gate), weakref.ref(pool)
    results = pool.map(double, range(2000))
    del pool
    gc.collect()
    assert forgotten() is None
    Path(gate).touch()
    assert future.result(20) == gate
    assert list(results) == list(range(0, 4000, 2))
    traces.check(10.0)


@pytest.mark.parametrize("ends", [True, False])
def test_an_executor_among_the_globals_of_its_functions_goes_with_them(new_pool, traces, ends):
    pool, namespace = new_pool(1), {}
    exec("def f(x): return x", namespace)
    namespace["pool"] = pool
    assert pool.submit(namespace["f"], 1).result(20) == 1
    assert list(pool.map(namespace["f"], range(2000))) == list(range(2000))
    if ends:
        pool.shutdown()
    forgotten = weakref.ref(pool)
    del pool, namespace
    gc.collect()
    assert forgotten() is None
    traces.check(10.0)


def test_the_interpreter_waits_for_what_is_under_way(scripts):
    text = scripts.run(
        """
        import atexit, sys, time
        import scaler

        def say():
            print("exit", future.done(), flush=True)
            try:
                pool.submit(abs, 1)
            except RuntimeError as error:
                print(error, flush=True)

        pool = scaler.Executor(1)
        atexit.register(say)
        future = pool.submit(time.sleep, 0.3)
        scaler.Executor(1).submit(lambda: (time.sleep(0.5), print("forgotten", flush=True)))
        sys.exit(0)
        """
    )
    assert text == "forgotten\nexit True\ncannot schedule new futures after interpreter shutdown\n"


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 2), reason="this Python starts no thread at its end")
def test_a_program_that_only_waits_for_calls_at_its_end_says_so(scripts, tmp_path):
    text = scripts.run(
        """
        import sys, time
        import scaler
        import scaler.executor.ending as ending

        def until_said(path):
            deadline = time.monotonic() + 60
            while not os.path.exists(path) and time.monotonic() < deadline:
                time.sleep(0.01)

        class Noticed:
            def write(self, text):
                open(gate, "w").close()
                return sys.__stdout__.write(text)
            def flush(self):
                sys.__stdout__.flush()

        import os
        gate = os.environ["GATE"]
        ending.SAY_AFTER = 0.2
        sys.stderr = Noticed()
        pool = scaler.Executor(1)
        done = pool.map(abs, [-1])
        list(done)
        for _ in range(2):
            pool.submit(until_said, gate)
        """,
        GATE=str(tmp_path / "gate"),
    )
    assert text == "scaler: the program is over but for 2 calls or maps of an Executor, and waits; Ctrl-C gives up\n"


def test_a_program_that_can_start_no_thread_at_its_end_waits_for_its_calls_all_the_same(scripts, tmp_path):
    text = scripts.run(
        """
        import os, threading, time
        import scaler

        def late(gate):
            time.sleep(0.3)
            open(gate, "w").close()

        def refused(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        pool = scaler.Executor(1)
        pool.submit(late, os.environ["GATE"])
        threading.Thread.start = refused  # as Python 3.12.1 does of itself
        """,
        GATE=str(tmp_path / "gate"),
    )
    assert text == ""
    assert (tmp_path / "gate").exists()


def test_a_forked_child_does_not_wait_for_its_parents_executor(scripts):
    text = scripts.run(
        """
        import os, sys, time
        import scaler

        pool = scaler.Executor(1)
        future = pool.submit(time.sleep, 1.0)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)  # runs what waits for executors
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        print(future.done(), future.result(20))
        """,
        PYTHONWARNINGS="ignore::DeprecationWarning",  # since 3.12: forking a program with threads
    )
    assert text == "False None\n"


# ---- what is submitted -----------------------------------------------------------------------------------------------
def test_the_object_of_a_method_is_not_kept(cluster):
    """A serializer of the user's would have to write what stands for it."""
    with Executor(address=cluster.address) as pool:
        thing = Thing()
        thing.itself = thing
        assert pool.submit(thing.method, pool.submit(double, 4)).result(20) == 8
        assert list(pool.map(thing.method, range(3))) == [0, 1, 2]
        gone = weakref.ref(thing)
        del thing
        gc.collect()
        assert gone() is None


def test_errors_around_a_method_are_those_of_a_function(new_pool, cluster):
    with new_pool(address=cluster.address) as pool:
        thing = Thing()
        with pytest.raises(LookupError, match="of a method") as info:
            pool.submit(thing.fail).result(20)
        assert "in fail" in str(info.value.__cause__)
        thing.lock = threading.Lock()
        with pytest.raises(SerializationError, match=r"Thing\.fail.*lock"):
            pool.submit(thing.fail).result(20)


@pytest.mark.parametrize("initializer", [None, list])
def test_each_call_has_the_object_as_it_was_submitted(new_pool, cluster, initializer):
    """Also one that a task runs itself while it waits for it."""
    counter, grown = Counter(), []

    def outer(address):
        inner_counter = Counter()
        with Executor(address=address) as inner:
            calls = [inner.submit(inner_counter.count, 2) for _ in range(5)]
            return [call.result() for call in calls], list(inner.map(inner_counter.count, [1] * 5)), inner_counter.calls

    with new_pool(address=cluster.address, initializer=initializer) as pool:
        assert [pool.submit(counter.count, 1).result(20) for _ in range(3)] == [1] * 3
        assert list(pool.map(counter.count, [3] * 6)) == [3] * 6
        assert [pool.submit(functools.partial(added, grown), 5).result(20) for _ in range(3)] == [[5]] * 3
        assert pool.submit(outer, cluster.address).result(30) == ([2] * 5, [1] * 5, 0)
    assert (counter.calls, grown) == (0, [])


def test_a_task_runs_a_method_that_it_submits_and_waits_for(new_pool, cluster):
    def outer(address):
        with Executor(address=address) as inner:
            return [future.result() for future in [inner.submit(Thing().method, n) for n in range(5)]]

    with new_pool(address=cluster.address) as pool:
        assert pool.submit(outer, cluster.address).result(30) == list(range(5))


# ---- in other hands --------------------------------------------------------------------------------------------------
def test_an_event_loop_runs_functions_in_it(new_pool, cluster):
    async def main():
        loop = asyncio.get_running_loop()
        with new_pool(address=cluster.address) as pool:
            numbers = [loop.run_in_executor(pool, double, n) for n in range(10)]
            with pytest.raises(ZeroDivisionError):
                await loop.run_in_executor(pool, divmod, 1, 0)
            return await asyncio.gather(*numbers)

    assert asyncio.run(main()) == list(range(0, 20, 2))


def test_dask_computes_in_it(new_pool, cluster):
    with new_pool(3, address=cluster.address) as pool:
        assert pool._max_workers == 3
        parts = [dask.delayed(double)(n) for n in range(20)]
        assert dask.compute(dask.delayed(sum)(parts), scheduler=pool) == (380,)
        assert os.getpid() not in dask.compute(*[dask.delayed(os.getpid)() for _ in range(3)], scheduler=pool)
    with new_pool(address=cluster.address) as pool:
        assert pool._max_workers == 2


def test_the_page_for_those_who_come_from_a_process_pool_holds(scripts):
    program = re.search(
        r"^```python\n(.*?)^```", (ROOT / "docs/from-processpool.md").read_text(), re.DOTALL | re.MULTILINE
    )
    scripts.run(program[1])


# ---- initializers ----------------------------------------------------------------------------------------------------
def test_the_initializer_runs_once_in_each_worker(new_pool, traces, tmp_path):
    log = str(tmp_path / "log")

    def note(path, text):
        appended(path, f"{os.getpid()} {text}")

    with new_pool(2, initializer=note, initargs=(log, "hello")) as pool:
        pids = set(pool.map(lambda _: (time.sleep(0.005), os.getpid())[1], range(100)))
    with open(log) as file:
        lines = file.read().splitlines()
    assert sorted(lines) == sorted(f"{pid} hello" for pid in pids)
    with pytest.raises(TypeError, match="callable"):
        new_pool(1, initializer="no function")


def test_each_executor_has_its_own_initializer(new_pool, start_cluster, tmp_path):
    log, address = str(tmp_path / "log"), start_cluster(1).address
    for _ in range(2):
        with new_pool(address=address, initializer=appended, initargs=(log, "here")) as pool:
            assert [pool.submit(lambda n: n, n).result(20) for n in range(5)] == list(range(5))
            assert list(pool.map(double, range(5), chunksize=2)) == list(range(0, 10, 2))
    assert Path(log).read_text() == "here\n" * 2


def test_an_initializer_that_raises_breaks_the_executor(new_pool, traces, tmp_path, caplog):
    gate = str(tmp_path / "gate")

    def raising(path):
        when(path)
        raise LookupError("not here")

    pool = new_pool(2, initializer=raising, initargs=(gate,))
    futures = [pool.submit(double, n) for n in range(50)]
    called = []
    futures[-1].add_done_callback(called.append)
    assert pool._broken is False
    Path(gate).touch()
    for future in futures:
        with pytest.raises(BrokenProcessPool, match=r"raising has raised .*LookupError: not here"):
            future.result(20)
    assert called == [futures[-1]]
    with pytest.raises(BrokenProcessPool, match="not here"):
        pool.submit(double, 1)
    with pytest.raises(BrokenProcessPool, match="not here"):
        pool.map(double, [1])
    assert "not here" in pool._broken
    (logged,) = (record for record in caplog.records if "in raising" in record.getMessage())
    assert logged.name == "concurrent.futures"
    assert logged.getMessage().endswith("LookupError: not here")  # and no empty line
    traces.check(10.0)
    pool.shutdown()


def test_one_worker_that_cannot_be_prepared_ends_the_tasks_of_all(new_pool, traces, tmp_path):
    first, gate = str(tmp_path / "first"), str(tmp_path / "gate")

    def second_raises(path):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise LookupError("second") from None

    pool = new_pool(2, initializer=second_raises, initargs=(first,))
    futures = [pool.submit(when, gate) for _ in range(10)]
    done, _ = concurrent.futures.wait(futures, timeout=20)
    assert {type(future.exception()).__name__ for future in done} == {"InitializerFailed"}
    assert len(done) == 10
    Path(gate).touch()
    pool.shutdown()


def test_a_broken_executor_in_a_task_does_not_break_the_one_around_it(new_pool, cluster):
    def outer(address):
        def raising():
            raise LookupError("inner")

        with Executor(address=address, initializer=raising) as inner:
            return inner.submit(abs, 1).result()

    with new_pool(address=cluster.address, initializer=double, initargs=(1,)) as pool:
        with pytest.raises(BrokenProcessPool, match="inner"):
            pool.submit(outer, cluster.address).result(30)
        assert pool._broken is False
        assert pool.submit(double, 2).result(20) == 4


def test_calls_have_the_names_of_their_functions_after_an_initializer(new_pool, cluster):
    def made(_=None):
        return threading.Lock()

    with new_pool(address=cluster.address, initializer=double, initargs=(1,)) as pool:
        with pytest.raises(SerializationError, match=r"^task \S+made: the result of \S+made: .*lock"):
            pool.submit(made).result(20)
        with pytest.raises(SerializationError, match=r"^task \S+made: the result of \S+made: .*lock"):
            list(pool.map(made, [1]))


class Unloadable:
    def __reduce__(self):
        return int, ("no number",)


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (1.5, TypeError, "max_workers must be an integer, not 1.5"),
        ("2", TypeError, "max_workers must be an integer, not '2'"),
        (0, ValueError, "max_workers must be greater than 0"),
    ],
)
def test_a_number_of_workers_that_is_none_is_called_by_its_name(monkeypatch, number, error, words):
    monkeypatch.setattr(executor_module, "SchedulerClusterCombo", Mock(side_effect=AssertionError))
    with pytest.raises(error, match=words):
        Executor(number)


def test_an_argument_of_an_initializer_that_cannot_be_pickled_is_named_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(executor_module, "SchedulerClusterCombo", Mock(side_effect=AssertionError))
    words = r"^initargs\[1\] of the initializer .*appended: .*_thread.lock cannot be pickled"
    with pytest.raises(SerializationError, match=words):
        Executor(1, initializer=appended, initargs=(1, threading.Lock()))
    lock = threading.Lock()
    with pytest.raises(SerializationError, match=r"^the initializer .*<lambda>.*lock"):
        Executor(1, initializer=lambda: lock)


def test_an_argument_of_an_initializer_that_cannot_be_unpickled_breaks_the_executor(cluster):
    with Executor(address=cluster.address, initializer=double, initargs=(Unloadable(),)) as pool:
        future = pool.submit(double, 1)
        words = r"the initializer .*double or its initargs cannot be unpickled .*ValueError.*no number"
        with pytest.raises(BrokenProcessPool, match=words):
            future.result(20)


@pytest.mark.parametrize("who", ["initializer", "call"])
def test_what_is_raised_when_the_program_is_over_is_known(scripts, who):
    """From there on `concurrent.futures.process`, which the error of an initializer derives from, can't be loaded."""
    told = scripts.run(
        """
        import sys, time
        from scaler import Executor

        def init(who):
            time.sleep(0.5)
            if who == "initializer":
                raise LookupError("not here")

        def fail():
            time.sleep(0.5)
            raise LookupError("not here")

        pool = Executor(1, initializer=init, initargs=(sys.argv[1],))
        pool.submit(fail).add_done_callback(lambda future: print(type(future.exception()).__name__, flush=True))
        """,
        who,
    )
    assert "calling callback" not in told
    assert ("Exception in initializer:" in told) is (who == "initializer")
    assert {"initializer": "InitializerFailed", "call": "LookupError"}[who] in told.splitlines()


def use_up_descriptors():
    """Open files until there are no more, and keep them."""
    os.kept = []
    while True:
        os.kept.append(os.open(os.devnull, os.O_RDONLY))


def test_an_initializer_that_leaves_no_descriptors_breaks_the_executor():
    with Executor(1, initializer=use_up_descriptors) as pool:
        with pytest.raises(BrokenProcessPool, match="use_up_descriptors has raised in a worker"):
            pool.submit(abs, -1).result(30)
        assert pool._broken


def test_what_cannot_be_pickled_after_an_initializer_is_named_as_without_one(cluster):
    with Executor(address=cluster.address, initializer=double, initargs=(1,)) as pool:
        lock = threading.Lock()
        for future, what in [
            (pool.submit(double, lock), r"argument 0 of .*double"),
            (pool.submit(double, x=lock), r"argument 'x' of .*double"),
            (pool.submit(lambda: lock), r"function .*<lambda>"),
        ]:
            with pytest.raises(SerializationError, match=f"^{what}: .*_thread.lock"):
                future.result(20)


def test_tasks_see_the_globals_that_an_initializer_of_the_same_script_has_set(scripts):
    told = scripts.run(
        """
        import functools
        from scaler import Executor

        model, counts = None, {}

        def init(value):
            global model
            model = value
            counts["inits"] = 1

        def work(x):
            return model, helper(), x

        def helper():
            return model, counts.get("inits")

        class Working:
            def __call__(self, x):
                return work(x)

            def method(self, x):
                return work(x)

        if __name__ == "__main__":
            with Executor(1, initializer=init, initargs=("m",)) as pool:
                print(pool.submit(work, 1).result())
                print(list(pool.map(work, [2, 3])), list(pool.map(work, [4, 5], chunksize=2)))
                print(pool.submit(functools.partial(work, 6)).result())
                print(pool.submit(Working(), 7).result(), pool.submit(Working().method, 8).result())
            print(model)
        """
    )
    seen = [("m", ("m", 1), n) for n in range(9)]
    assert told.splitlines() == [
        str(seen[1]), f"{seen[2:4]} {seen[4:6]}", str(seen[6]), f"{seen[7]} {seen[8]}", "None",
    ]  # fmt: skip


def test_a_worker_runs_so_many_tasks_and_a_fresh_one_takes_its_place(traces):
    with Executor(1, max_tasks_per_child=3) as pool:
        one_by_one = [pool.submit(os.getpid).result(20) for _ in range(7)]
        at_once = list(pool.map(lambda _: os.getpid(), range(10), chunksize=1))
    assert [one_by_one.count(pid) for pid in dict.fromkeys(one_by_one)] == [3, 3, 1]
    assert max(at_once.count(pid) for pid in set(at_once)) <= 3


@pytest.mark.parametrize(("given", "error"), [(0, ValueError), (1.5, TypeError)])
def test_a_number_of_tasks_per_worker_that_means_nothing_is_refused(given, error):
    with pytest.raises(error, match="max_tasks_per_child must be"):
        Executor(1, max_tasks_per_child=given)


def test_a_worker_can_only_be_told_its_number_of_tasks_where_it_is_started(cluster):
    with pytest.raises(ValueError, match="--max-tasks-per-worker"):
        Executor(1, address=cluster.address, max_tasks_per_child=1)


def test_a_task_may_have_a_worker_of_its_own(start_cluster):
    def count(counted=[]):  # noqa: B006 - that it lasts is what the test is about
        counted.append(os.getpid())
        return os.getpid(), len(counted)

    with Client(start_cluster(2).address) as client:
        others = [client.submit(os.getpid) for _ in range(20)]
        fresh = client.with_options(fresh_worker=True)
        seen = [fresh.submit(count).result(20) for _ in range(3)] + fresh.map(lambda _: count(), range(3))
        assert [counted for _, counted in seen] == [1] * 6
        assert len({pid for pid, _ in seen} | {other.result(20) for other in others}) >= 7
        assert client.submit(os.getpid).result(20) not in {pid for pid, _ in seen}


def set_first(array):
    array[0] = 1
    return float(array.sum())


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_mapped_file_is_a_copy_in_tasks(pool, tmp_path, mode):
    numpy.zeros(100_000).tofile(tmp_path / "file")
    mapped = numpy.memmap(tmp_path / "file", "f8", mode)
    assert [pool.submit(set_first, mapped).result(20) for _ in range(2)] == [1.0, 1.0]
    assert mapped[0] == 0
