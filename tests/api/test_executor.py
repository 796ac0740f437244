"""`scaler.Executor` is what `concurrent.futures` says an executor is."""

import concurrent.futures
import os
import time

import pytest

from scaler import Executor


def double(x):
    return 2 * x


@pytest.fixture
def pool(cluster):
    with Executor(address=cluster.address) as pool:
        yield pool


def test_it_starts_a_cluster_of_its_own_and_ends_it(traces):
    with Executor(2) as pool:
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


def test_map_raises_timeout_error(pool):
    with pytest.raises(TimeoutError):
        list(pool.map(time.sleep, [0.5], timeout=0.05))


def test_keywords_that_the_client_knows_are_passed_on(pool):
    assert pool.submit(lambda **kwargs: sorted(kwargs), profiling=1, stream_output=2).result(20) == [
        "profiling",
        "stream_output",
    ]


def test_shutdown_waits_for_what_is_under_way(cluster):
    pool = Executor(address=cluster.address)
    futures = [pool.submit(time.sleep, 0.05) for _ in range(4)]
    pool.shutdown()
    assert all(future.done() and not future.cancelled() for future in futures)


def test_shutdown_can_cancel_what_has_not_begun(cluster):
    pool = Executor(address=cluster.address)
    futures = [pool.submit(time.sleep, 0.2) for _ in range(50)]
    began = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - began < 3
    assert all(future.done() for future in futures)
    assert sum(future.cancelled() for future in futures) > 30


def test_shutdown_without_waiting_lets_the_tasks_end(cluster):
    pool = Executor(address=cluster.address)
    future = pool.submit(time.sleep, 0.1)
    began = time.monotonic()
    pool.shutdown(wait=False)
    assert time.monotonic() - began < 0.1
    assert future.result(20) is None


def test_the_initializer_runs_once_in_each_worker(traces, tmp_path):
    log = str(tmp_path / "log")

    def note(path, text):
        with open(path, "a") as file:
            file.write(f"{os.getpid()} {text}\n")

    with Executor(2, initializer=note, initargs=(log, "hello")) as pool:
        pids = set(pool.map(lambda _: (time.sleep(0.005), os.getpid())[1], range(100)))
    with open(log) as file:
        lines = file.read().splitlines()
    assert sorted(lines) == sorted(f"{pid} hello" for pid in pids)
    with pytest.raises(TypeError, match="callable"):
        Executor(1, initializer="no function")
