"""Handlers of signals that raise, as time limits do, leave executors and clients whole."""

from collections.abc import Iterable

import pytest

from scaler import Client, ConnectionFailed, SchedulerClusterCombo
from scaler.client.client import parts_of

#: the deeds of a client that a signal comes in
DEEDS = {
    "submit": "client.submit(abs, -1)",
    "large argument": "client.submit(len, bytes(100_000))",
    "result": "client.submit(abs, -1).result()",
    "map": "client.map(abs, range(3))",
    "get": "client.get({'a': (pow, 2, 3), 'b': (abs, 'a')}, ['b'])",
    "cancel": "client.cancel([client.submit(abs, -1)])",
    "force": "client.cancel([client.submit(abs, -1)], force=True)",
}

#: and of dask's
DASK_DEEDS = {
    "wait": "wait([dask_client.submit(abs, -1, pure=False)])",
    "as_completed": "list(as_completed([dask_client.submit(abs, -1, pure=False)]))",
}

EACH_POINT = """
    import gc, scaler, sys
    from support.signals_at import signals_at_each_point

    def works_on():
        "And nothing of before is under way afterwards."
        assert client.submit(abs, -2).result(20) == 2
        while client_is_busy():
            assert client.submit(abs, -2).result(20) == 2
        assert gc.isenabled()

    def client_is_busy():
        return parts_of(client)[0].driver.session.pending.by_id

    from scaler.client.client import parts_of
"""


def each_of(heavy: int, quick: int) -> pytest.MarkDecorator:
    """A signal comes at one of so many points in the quick suite, at more of them in `make test-interrupts`."""
    return pytest.mark.parametrize("every", [pytest.param(heavy, marks=pytest.mark.heavy), quick])


@each_of(1, 7)
def test_a_signal_at_any_point_of_a_call_leaves_an_executor_that_ends(scripts, every):
    text = scripts.run(
        EACH_POINT
        + f"""
    with scaler.Executor(2) as pool:
        client = pool.client
        pool.submit(abs, -1).result()
        assert signals_at_each_point(lambda: pool.submit(abs, -1), works_on, {every}) > 300 // {every}
        assert signals_at_each_point(lambda: list(pool.map(abs, range(300))), works_on, 200 * {every} + 1) > 10
    print("ended")
    """,
        within=90,
    )
    assert text.endswith("ended\n")


@each_of(2, 7)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_signal_at_any_point_of_what_a_client_does_leaves_it_whole(scripts, deed, every):
    text = scripts.run(
        EACH_POINT
        + f"""
    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        {DEEDS[deed]}
        assert signals_at_each_point(lambda: {DEEDS[deed]}, works_on, {every}) > 200 // {every}
    print("works on")
    """,
        within=90,
    )
    assert text.endswith("works on\n")


@each_of(1, 7)
def test_a_handler_may_wait_for_a_task_at_any_point_of_a_wait_for_another(scripts, every):
    text = scripts.run(
        EACH_POINT
        + f"""
    def waits():
        assert client.submit(abs, -3).result(20) == 3

    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        points = signals_at_each_point(lambda: client.submit(abs, -1).result(), works_on, {every}, waits)
        assert points > 200 // {every}
    print("works on")
    """,
        within=90,
    )
    assert text.endswith("works on\n")


@each_of(3, 13)
@pytest.mark.parametrize("deed", DASK_DEEDS)
def test_a_signal_at_any_point_of_a_wait_for_dasks_futures_leaves_the_client_whole(scripts, deed, every):
    text = scripts.run(
        EACH_POINT
        + f"""
    from scaler_dask import Client, as_completed, wait

    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, Client(cluster.address) as dask_client:
        client = dask_client.engine
        {DASK_DEEDS[deed]}
        assert signals_at_each_point(lambda: {DASK_DEEDS[deed]}, works_on, {every}) > 60 // {every}
    print("works on")
    """,
        within=90,
    )
    assert text.endswith("works on\n")


def test_a_signal_at_any_point_of_a_wait_inside_a_task_leaves_its_client_whole(scripts):
    text = scripts.run(
        EACH_POINT
        + """
    def task():
        global client
        with scaler.Client() as client:
            client.submit(abs, -1).result()
            return signals_at_each_point(lambda: client.submit(abs, -1).result(), works_on, 7)

    with scaler.Executor(2) as pool:
        assert pool.submit(task).result(80) > 100
    print("works on")
    """,
        within=90,
    )
    assert text.endswith("works on\n")


def test_ctrl_c_in_a_loop_of_submits_leaves_an_executor_that_ends(scripts):
    text = scripts.run("""
    import os, signal, threading
    from scaler import Executor

    signal.signal(signal.SIGINT, signal.default_int_handler)
    pool = Executor(2)
    for _ in range(10):
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                pool.submit(abs, 1)
        except KeyboardInterrupt:
            timer.join()
    assert pool.submit(abs, -1).result(20) == 1
    pool.shutdown()
    print("ended")
    """)
    assert text.endswith("ended\n")


def test_time_limits_by_alarms_leave_a_client_that_works_on(scripts):
    text = scripts.run("""
    import random, signal, sys, time
    from scaler import Executor

    class Late(Exception):
        pass

    def handler(*_):
        if is_limited:
            raise Late

    seed = random.randrange(1 << 32)
    print("seed", seed, file=sys.stderr)
    draw = random.Random(seed)
    is_limited = False
    signal.signal(signal.SIGALRM, handler)
    with Executor(2) as pool:
        for round in range(40):
            try:
                is_limited = True
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.03))
                for future in [pool.submit(time.sleep, 0.002) for _ in range(50)]:
                    future.cancel()
                is_limited = False
            except Late:
                pass
            is_limited = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert pool.submit(abs, -2).result(20) == 2, round
    print("ended")
    """)
    assert text.endswith("ended\n")


def test_a_call_from_a_handler_while_a_call_is_sent_and_the_end_there_wait_for_nothing(scripts):
    text = scripts.run("""
    import signal
    from scaler import Executor
    from scaler.executor import runner

    def ends(*_):
        pool.shutdown()
        raise SystemExit

    signal.signal(signal.SIGTERM, ends)
    pool = Executor(2)
    future = pool.submit(abs, -1)
    submit_call = runner.submit_call

    def interrupted(*args):
        signal.raise_signal(signal.SIGTERM)
        return submit_call(*args)

    runner.submit_call = interrupted
    try:
        pool.submit(abs, -2)
    except SystemExit:
        print(future.result())
    """)
    assert text == "1\n"


@pytest.mark.parametrize(
    "place",
    ["scaler.executor.ending.Ending._await", "scaler.client.lifetime.Lifetime.disconnect", "subprocess.Popen.poll"],
)
def test_an_executor_that_is_being_shut_down_may_be_shut_down_by_a_handler(scripts, place):
    text = scripts.run(f"""
    import functools, pkgutil, signal
    from scaler import Executor

    def ends(*_):
        pool.shutdown()
        print("by the handler:", pool._ending.cluster.is_running)

    def interrupted(*args, **kwargs):
        setattr(holder, name, original)
        signal.raise_signal(signal.SIGTERM)
        return original(*args, **kwargs)

    signal.signal(signal.SIGTERM, ends)
    pool = Executor(1)
    holder, _, name = {place!r}.rpartition(".")
    holder = pkgutil.resolve_name(holder)
    original = getattr(holder, name)
    setattr(holder, name, interrupted)
    future = pool.submit(sum, range(10_000_000))
    pool.shutdown()
    print("ended:", pool._ending.cluster.is_running, future.done())
    """)
    assert text == "by the handler: False\nended: False True\n"


def test_what_is_raised_in_the_midst_of_sending_ends_all_futures_with_a_line(
    cluster: SchedulerClusterCombo, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(BaseException):
        pass

    def fail(events: Iterable[object]) -> None:
        next(iter(events), None)
        raise Odd("of all things")

    with Client(cluster.address) as client:
        driver = parts_of(client)[0].driver
        with driver.lock:  # the first is sent, and the others are queued
            futures = [client.submit(abs, -1), client.submit(abs, -2), client.submit(len, bytes(20_000))]
            monkeypatch.setattr(driver, "_handle", fail)
            with pytest.raises(Odd):
                driver.flush()
        for future in futures:
            with pytest.raises(ConnectionFailed, match=r"Odd\('of all things'\) was raised .* make a new Client"):
                future.result(20)
        with pytest.raises(ConnectionFailed, match="make a new Client"):
            client.submit(abs, -1)
