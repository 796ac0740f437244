"""Futures are standard futures, and what the engine adds to them."""

import asyncio
import concurrent.futures
import gc
import os
import signal
import threading
import time
from concurrent.futures import CancelledError
from contextlib import nullcontext
from random import Random
from unittest.mock import Mock

import pytest
from support import no_descriptor_stays, until, within

from scaler import Client, Executor, TaskTimeout, WorkerLost
from scaler.client.io.line import Line
from scaler.protocol.messages import TaskCancel

WITH_SERIALIZERS = True


def double(x):
    return 2 * x


def fail(text):
    raise KeyError(text)


def occupy(client, tmp_path, n=2):
    """Keep all workers busy until the files that are returned are removed."""
    marks = []

    def wait_for_removal(path):
        open(path, "w").close()
        while os.path.exists(path):
            time.sleep(0.002)
        return "held"

    futures = []
    for i in range(n):
        marks.append(tmp_path / f"mark{i}")
        futures.append(client.submit(wait_for_removal, str(marks[-1])))
    until(lambda: all(mark.exists() for mark in marks), "the workers to be busy")
    return marks, futures


def test_a_future_is_a_standard_one(client):
    future = client.submit(double, 4)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(20) == 8
    assert future.exception() is None
    assert future.done()
    assert not future.running()
    assert not future.cancelled()


def test_the_standard_ways_to_wait(client):
    futures = [client.submit(double, x) for x in range(50)]
    assert {future.result() for future in concurrent.futures.as_completed(futures, timeout=20)} == {
        2 * x for x in range(50)
    }
    assert concurrent.futures.wait(futures, timeout=20).not_done == set()
    failed = client.submit(fail, "x")
    done, _ = concurrent.futures.wait([failed], timeout=20, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert done == {failed}


def test_callbacks_are_called_once_whenever_they_are_added(client):
    called = []
    future = client.submit(double, 4)
    future.add_done_callback(lambda f: called.append(("early", f.result())))
    assert future.result(20) == 8
    future.add_done_callback(lambda f: called.append(("late", f.result())))
    until(lambda: len(called) == 2)
    assert sorted(called) == [("early", 8), ("late", 8)]


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_a_callback_that_raises_whatever_it_is_harms_nobody(client, tmp_path, caplog, size):
    called = []
    marks, _ = occupy(client, tmp_path)
    future = client.submit(bytes, size)
    for ending in (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("on purpose")):
        future.add_done_callback(Mock(side_effect=ending))
    future.add_done_callback(called.append)
    for mark in marks:
        mark.unlink()
    until(lambda: called == [future])
    assert client.submit(double, 4).result(20) == 8
    client.submit(bytes, 2_000_000).add_done_callback(called.append)
    until(lambda: len(called) == 2)
    kinds = [record.exc_info[0] for record in caplog.records if record.message.startswith("exception calling callback")]
    assert kinds == [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError]


def test_a_callback_may_submit(client):
    second = []
    client.submit(double, 1).add_done_callback(lambda f: second.append(client.submit(double, f.result())))
    assert until(lambda: second)[0].result(20) == 4


def stop():
    raise StopIteration(7)


def test_who_awaits_a_task_that_raises_stopiteration_is_told(client):
    async def program():
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await asyncio.wait_for(client.submit(stop), 20)
        assert caught.value.__cause__.value == 7

    asyncio.run(program())
    assert isinstance(client.submit(stop).exception(20), StopIteration)


def test_a_future_whose_awaiting_is_cancelled_is_cancelled_and_the_other_way_round(client):
    async def program():
        future = client.submit(time.sleep, 60)
        waiting = asyncio.ensure_future(future)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        future.cancel(force=True)
        another = client.submit(time.sleep, 60)
        waiting = asyncio.ensure_future(another)
        await asyncio.sleep(0)
        another.cancel(force=True)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(program())


def test_futures_can_be_awaited(client):
    async def main():
        one = await client.submit(double, 1)
        two = await asyncio.wrap_future(client.submit(double, 2))
        three = await asyncio.gather(*[asyncio.wrap_future(client.submit(double, x)) for x in range(100)])
        with pytest.raises(KeyError):
            await client.submit(fail, "x")
        return one, two, sum(three)

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (2, 4, 9900)


def test_a_timeout_bounds_a_wait_and_loses_nothing(client, tmp_path):
    marks, futures = occupy(client, tmp_path)
    waiting = client.submit(double, 3)
    with within(2.0):
        words = r"^not done within 0\.05 s: client\.cluster\.explain\(future\) says what it waits for$"
        with pytest.raises(TimeoutError, match=words):
            waiting.result(0.05)
        with pytest.raises(TimeoutError, match=words):
            waiting.exception(0.05)
        with pytest.raises(TimeoutError):
            client.map(double, range(10), timeout=0.05)
    for mark in marks:
        mark.unlink()
    assert waiting.result(20) == 6
    assert [future.result(20) for future in futures] == ["held", "held"]


def test_cancel_takes_back_what_has_not_begun_and_nothing_else(client, tmp_path):
    marks, running = occupy(client, tmp_path)
    waiting = [client.submit(double, x) for x in range(100)]
    assert not running[0].cancel()
    assert not running[0].cancelled()
    assert waiting[0].cancel()
    assert waiting[0].cancelled()
    assert waiting[0].cancel()
    assert client.cancel(waiting[1:50]) == 49
    with pytest.raises(concurrent.futures.CancelledError):
        waiting[10].result(5)
    for mark in marks:
        mark.unlink()
    assert [future.result(20) for future in waiting[50:]] == [2 * x for x in range(50, 100)]
    assert [future.result(20) for future in running] == ["held", "held"]
    assert not running[0].cancel()


@pytest.mark.parametrize("order", ["as submitted", "backwards", "any"])
def test_futures_that_are_cancelled_one_by_one_take_few_messages(client, tmp_path, monkeypatch, order):
    """Each of those whose `cancel()` is true never runs, each other one does."""
    marks, _ = occupy(client, tmp_path)
    log = tmp_path / "ran"
    log.touch()

    def run(x):
        with open(log, "a") as file:
            file.write(f"{x}\n")

    futures = dict(enumerate(client.submit(run, x) for x in range(3000)))
    client.cancel(futures.pop(2999))  # it is answered behind them: all are where they wait
    sent, send = [], Line.send
    monkeypatch.setattr(Line, "send", lambda line, message: sent.append(type(message)) or send(line, message))
    chosen = [x for x in futures if x % 10]
    if order == "backwards":
        chosen.reverse()
    elif order == "any":
        Random(1).shuffle(chosen)
    cancelled = {x for x in chosen if futures[x].cancel()}
    for mark in marks:
        mark.unlink()
    for x in futures.keys() - cancelled:
        assert futures[x].result(20) is None
    assert {int(line) for line in log.read_text().split()} == futures.keys() - cancelled
    assert len(cancelled) > 2600
    assert all(futures[x].cancelled() for x in cancelled)
    assert sent.count(TaskCancel) < len(cancelled) / 2


def test_cancel_by_force_ends_the_worker_and_only_that(client, tmp_path):
    _, running = occupy(client, tmp_path)
    behind = [client.submit(double, x) for x in range(20)]
    assert running[0].cancel(force=True)
    assert running[0].cancelled()
    assert not running[1].done()
    assert [future.result(20) for future in behind] == [2 * x for x in range(20)]
    assert client.cancel(running, force=True) == 2
    assert client.map(double, range(4), timeout=20) == [0, 2, 4, 6]


def test_clear_cancels_everything_and_the_client_works_on(client, tmp_path):
    _, running = occupy(client, tmp_path)
    waiting = [client.submit(double, x) for x in range(100)]
    client.clear()
    assert all(future.cancelled() for future in [*running, *waiting])
    assert client.submit(double, 5).result(20) == 10


def test_profiling_tells_duration_and_memory(client):
    def fill():
        time.sleep(0.02)
        return len(bytearray(30_000_000))

    future = client.submit(fill, profiling=True)
    assert future.result(20) == 30_000_000
    info = future.profiling_info()
    assert 20_000 <= info.duration_us < 5_000_000
    assert info.peak_memory > 1_000_000
    plain = client.submit(double, 1)
    plain.result(20)
    with pytest.raises(ValueError, match="profiling=True"):
        plain.profiling_info()


def test_what_never_ran_has_no_profile_and_says_so(cluster, tmp_path):
    with Client(cluster.address, profiling=True) as client:
        (constant,) = client.submit_graph({"a": 1}, ["a"])
        broken = client.submit(fail, "broken")
        broken.exception(20)
        dependent = client.submit(double, broken)
        for future in (constant, dependent):
            with pytest.raises(ValueError, match="the task never ran"):
                future.profiling_info()
        marks, _ = occupy(client, tmp_path)
        waiting = client.submit(double, 1)
        with pytest.raises(ValueError, match="not done yet"):
            waiting.profiling_info()
        assert waiting.cancel()
        with pytest.raises(ValueError, match="was cancelled"):
            waiting.profiling_info()
        for mark in marks:
            mark.unlink()


def test_futures_are_arguments_whatever_state_they_are_in(client, tmp_path):
    marks, _ = occupy(client, tmp_path)
    pending = client.submit(double, 1)
    chain = client.submit(double, client.submit(double, pending))
    for mark in marks:
        mark.unlink()
    assert chain.result(20) == 8
    assert client.submit(double, chain).result(20) == 16
    assert client.submit(pow, 2, exp=pending).result(20) == 4
    broken = client.submit(fail, "x")
    for _ in range(2):  # pending, then done
        with pytest.raises(KeyError, match="x"):
            client.submit(double, broken).result(20)


def test_a_future_of_another_client_is_refused_as_an_argument(client, cluster):
    with Client(cluster.address) as other, pytest.raises(ValueError, match="another client"):
        client.submit(double, other.submit(double, 1))


def test_the_users_exception_comes_back_with_the_remote_traceback(client):
    with pytest.raises(KeyError, match="where") as caught:
        client.submit(fail, "where").result(20)
    assert "in fail" in str(caught.value.__cause__)


def test_a_task_over_its_timeout_fails_alone(client):
    with within(5.0):
        slow = client.with_options(timeout=0.2).submit(time.sleep, 100)
        quick = [client.submit(double, x) for x in range(20)]
        with pytest.raises(TaskTimeout, match="sleep"):
            slow.result(20)
    assert [future.result(20) for future in quick] == [2 * x for x in range(20)]
    assert client.with_options(timeout=30).submit(double, 2).result(20) == 4


def test_a_task_that_raises_is_tried_again_if_that_was_asked_for(client, tmp_path):
    def fail_twice(path):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) < 3:
            raise OSError("not yet")
        return os.path.getsize(path)

    assert client.with_options(retries=2).submit(fail_twice, str(tmp_path / "a")).result(20) == 3
    with pytest.raises(OSError, match="not yet"):
        client.with_options(retries=1).submit(fail_twice, str(tmp_path / "b")).result(20)


def test_an_urgent_task_does_not_wait_for_a_backlog_that_was_misjudged(start_cluster, connect):
    """The first call was quick, so many of the next ones are with the worker already."""

    def takes(seconds):
        time.sleep(seconds)
        return "done"

    client = connect(start_cluster(1))
    assert client.submit(takes, 0).result(20) == "done"
    backlog = [client.submit(takes, 0.05) for _ in range(400)]
    assert backlog[0].result(20) == "done"
    assert client.with_options(priority=10).submit(abs, -1).result(20) == 1
    assert not backlog[200].done()
    client.clear()


def test_larger_priorities_run_first(client, tmp_path):
    marks, _ = occupy(client, tmp_path)
    held_since = time.monotonic()  # rows are no longer handed out behind a row that takes this long
    until(lambda: time.monotonic() - held_since > 0.1, "both workers to be overdue")
    for _ in range(8):  # so many may be on their way to a worker already, whatever comes afterwards
        client.submit(double, 0)
    log = str(tmp_path / "log")

    def note(text):
        with open(log, "a") as file:
            file.write(text)

    futures = [client.with_options(priority=p).submit(note, str(p)) for p in (1, 3, 2, 0) for _ in range(3)]
    assert client.submit(double, 0).cancel()  # it is answered behind them: all are where they wait
    marks[0].unlink()
    concurrent.futures.wait(futures, timeout=20)
    marks[1].unlink()
    with open(log) as file:
        noted = file.read()
    assert sorted(noted) == sorted("333222111000")
    # one of a function of which nothing is known may be with the agent before the others have come
    orders = [noted[:i] + noted[i + 1 :] for i in range(len(noted))]
    assert any(list(order) == sorted(order, reverse=True) for order in orders), noted


@pytest.mark.parametrize(
    "options", [{"retries": -1}, {"timeout": 0}, {"timeout": -1}, {"threads": 0}, {"threads": 1 << 40}]
)
def test_options_that_make_no_sense_are_refused(client, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        client.with_options(**options)


@pytest.mark.parametrize("threads", [1.5, "4", [2]])
def test_threads_are_a_whole_number(client, threads):
    with pytest.raises(TypeError, match="threads must be a whole number"):
        client.with_options(threads=threads)


def test_tasks_are_in_the_main_thread_and_may_use_signals_and_asyncio(client):
    def look():
        async def answer():
            await asyncio.sleep(0)
            return 42

        signal.signal(signal.SIGUSR2, lambda *_: None)
        return threading.current_thread() is threading.main_thread(), asyncio.run(answer())

    assert client.submit(look).result(20) == (True, 42)


def test_what_a_task_prints_is_streamed_to_the_client(cluster, capfd):
    def speak(x):
        print("row", x)
        return x

    with Client(cluster.address, stream_output=True) as client:
        assert client.map(speak, range(3), timeout=20) == [0, 1, 2]
        out = ""

        def seen():
            nonlocal out
            out += capfd.readouterr().out
            return all(f"row {x}\n" in out for x in range(3))

        until(seen)


def test_a_worker_that_a_task_ends_is_named(client):
    with pytest.raises(WorkerLost, match="SIGTERM"):
        client.submit(lambda: os.kill(os.getpid(), signal.SIGTERM)).result(20)


def test_a_future_that_nobody_keeps_does_no_harm(client):
    for x in range(100):
        client.submit(double, x)
    gc.collect()
    assert client.submit(double, 1).result(20) == 2


def test_clients_leave_neither_threads_nor_descriptors(cluster):
    def use():
        with Client(cluster.address) as client:
            assert client.submit(double, 1).result(20) == 2

    use()
    before = set(threading.enumerate())
    with no_descriptor_stays():
        for _ in range(10):
            use()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("kind", ["result", "map", "wait", "cancel", "large argument"])
def test_a_callback_may_wait_for_whatever_comes_after_it(client, kind):
    """Also while other tasks are under way; the thread that calls it is not missed."""
    other = client.submit(time.sleep, 5)
    first = client.submit(lambda: time.sleep(0.3) or 2)
    ended = concurrent.futures.Future()

    def waits(future):
        try:
            if kind == "result":
                ended.set_result(client.submit(double, future.result()).result(20))
            elif kind == "map":
                ended.set_result(client.map(double, [2])[0])
            elif kind == "wait":
                following = client.submit(double, 2)
                concurrent.futures.wait([following], 20)
                ended.set_result(following.result(0))
            elif kind == "cancel":
                began = time.monotonic()
                assert client.cancel([other], force=True) == 1
                ended.set_result(4 if time.monotonic() - began < 4 else "late")
            else:
                ended.set_result(client.submit(len, b"4" * 1_000_000).result(20) // 250_000)
        except BaseException as error:
            ended.set_exception(error)

    first.add_done_callback(waits)
    assert ended.result(30) == 4
    assert client.submit(double, 5).result(20) == 10
    client.cancel(other, force=True)  # one alone, as under other clients
    assert other.cancelled()


def test_a_callback_may_wait_for_what_came_together_with_its_future(client):
    futures = [client.submit(double, n) for n in range(100)]
    sums = []
    for future in futures[:3]:
        future.add_done_callback(lambda _: sums.append(sum(other.result(20) for other in futures)))
    until(lambda: len(sums) == 3)
    assert sums == [9900] * 3


def test_callbacks_that_do_not_end_keep_nobody_from_results_and_their_callbacks(client):
    """They sleep or compute: nobody is told, as of one that waits for a task."""
    goes_on, stuck, called = threading.Event(), [], []
    try:
        for number in range(3):
            client.submit(double, number).add_done_callback(lambda _: (stuck.append(0), goes_on.wait(60)))
            until(lambda number=number: len(stuck) == number + 1)
        client.submit(double, 5).add_done_callback(lambda future: called.append(future.result(0)))
        assert client.submit(double, 6).result(20) == 12
        until(lambda: called == [10])
    finally:
        goes_on.set()


def test_callbacks_that_wait_end_when_the_client_is_closed(client):
    others = [client.submit(time.sleep, 60) for _ in range(20)]
    seen = []
    others[0].add_done_callback(lambda _: seen.append([other.cancelled() for other in others]))
    client.disconnect()
    assert seen == [[True] * 20]


def test_what_had_not_ended_says_that_its_client_was_closed_or_cleared(client, cluster):
    cleared = client.submit(time.sleep, 60)
    client.clear()
    with pytest.raises(CancelledError, match="`clear` has cancelled all"):
        cleared.result(20)
    watched, future = client.submit(time.sleep, 60), client.submit(time.sleep, 60)
    watched.add_done_callback(lambda _: None)
    client.disconnect()
    for each in watched, future:
        for read in each.result, each.exception, each.fresh_result:
            with pytest.raises(CancelledError, match="its client was closed before it ended"):
                read(20)
    with Client(cluster.address) as other:
        taken_back = other.submit(time.sleep, 60)
        taken_back.cancel(force=True)
        with pytest.raises(CancelledError) as cancelled:
            taken_back.result(20)
    assert str(cancelled.value) == ""


@pytest.mark.parametrize("of", ["client", "executor"])
def test_a_task_that_runs_for_a_while_is_known_to_run(of, client, cluster, tmp_path):
    """A program that polls `running` goes on; short tasks are never said to run."""

    def wait_for(path):
        while not path.exists():
            time.sleep(0.01)
        return 5

    with Executor(address=cluster.address) if of == "executor" else nullcontext(client) as pool:
        future = pool.submit(wait_for, tmp_path / "go")
        try:
            until = time.monotonic() + 20
            while not future.running():
                assert time.monotonic() < until, "it is not known to run"
                time.sleep(0.01)
            assert not future.done()
            assert not future.cancel()
        finally:
            (tmp_path / "go").touch()
        assert future.result(20) == 5
        assert not future.running()
