"""However a program with a cluster of its own ends: at once, in its own words, and without leaving anything behind."""

import os
import signal
import sys
from pathlib import Path

import pytest
from support.ports import fresh_address
from support.waiting import until

LOCAL = """
    import os, signal, sys, time
    import scaler

    cluster = scaler.SchedulerClusterCombo(n_workers=2)
    client = scaler.Client(cluster.address)
    assert client.submit(pow, 2, 5).result(20) == 32
    futures = [client.submit(time.sleep, 1000) for _ in range(100)]
    print("ready", cluster.pid, flush=True)
"""


def start(scripts, ending, **options):
    script = scripts.start(LOCAL + ending, **options)
    script.says(r"ready \d+\n")
    return script


def test_a_script_that_raises_ends_with_its_traceback(scripts, traces):
    script = scripts.start(LOCAL + "    raise RuntimeError('on purpose')\n")
    script.says("ready")
    assert script.ends(2.0) == 1
    before, _, after = script.text.partition("Traceback (most recent call last):\n")
    assert before.startswith("ready ")
    assert len(before.splitlines()) == 1
    assert after.endswith("RuntimeError: on purpose\n")
    assert after.count("Error") == after.count("RuntimeError")
    traces.check(1.0)


def test_a_script_that_raises_inside_with_blocks_ends_with_its_traceback(scripts, traces):
    script = scripts.start(
        """
        import time
        import scaler

        with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
            futures = [client.submit(time.sleep, 1000) for _ in range(10)]
            print("ready", flush=True)
            raise RuntimeError("on purpose")
        """
    )
    script.says("ready")
    assert script.ends(2.0) == 1
    assert script.text.endswith("RuntimeError: on purpose\n")
    traces.check(1.0)


def test_an_exit_code_is_kept(scripts, traces):
    script = start(scripts, "    sys.exit(3)\n")
    assert script.ends(2.0) == 3
    assert len(script.text.splitlines()) == 1
    traces.check(1.0)


def test_a_script_that_reaches_its_end_without_a_goodbye_just_ends(scripts, traces):
    script = start(scripts, "    pass\n")
    assert script.ends(2.0) == 0
    assert len(script.text.splitlines()) == 1
    traces.check(1.0)


@pytest.mark.parametrize(
    "way", ["os._exit(5)", "os.kill(os.getpid(), signal.SIGKILL)", "os.kill(os.getpid(), signal.SIGTERM)"]
)
def test_a_script_that_has_no_time_to_clean_up_leaves_nothing_either(scripts, traces, way):
    script = start(scripts, f"    {way}\n")
    assert script.ends(2.0) in (5, -signal.SIGKILL, -signal.SIGTERM)
    traces.check(2.0)


def door_of(address):
    """Where monitors of a cluster at this address connect. `traces.check` removes it if nobody listens."""
    return Path("/tmp", address.removeprefix("tcp://").replace(":", "_") + "_monitor")


@pytest.mark.parametrize("options", ["{}", "{'spill_directory': '/proc/nowhere'}"], ids=["good", "bad"])
def test_a_script_that_is_killed_while_its_cluster_starts_leaves_nothing_and_nothing_is_said(scripts, traces, options):
    address = fresh_address()
    script = scripts.start(
        f"""
        import json, os, signal
        from scaler import SchedulerClusterCombo

        def ask(self, options):
            self._socket.sendall(json.dumps(options).encode() + b"\\n")
            os.kill(os.getpid(), signal.SIGKILL)

        SchedulerClusterCombo._ask = ask
        SchedulerClusterCombo({address!r}, 1, **{options})
        """
    )
    assert script.ends(20.0) == -signal.SIGKILL
    until(lambda: not traces.marked(), "the cluster to end")
    assert not door_of(address).exists()
    traces.check()
    assert script.text == ""


def test_ctrl_c_in_the_moment_in_which_a_cluster_has_started_leaves_nothing(scripts, traces):
    address = fresh_address()
    script = scripts.start(
        f"""
        import json, os, signal, socket
        from scaler import SchedulerClusterCombo

        def ask(self, options):
            self._socket.sendall(json.dumps(options).encode() + b"\\n")
            self._socket.recv(1, socket.MSG_PEEK)
            os.kill(os.getpid(), signal.SIGINT)

        SchedulerClusterCombo._ask = ask
        try:
            SchedulerClusterCombo({address!r}, 1)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert script.ends(20.0) == 0
    assert script.text == "interrupted\n"
    assert not door_of(address).exists()


def test_a_cluster_that_can_not_be_started_leaves_nothing(scripts, traces):
    address = fresh_address()
    said = scripts.run(
        f"""
        import scaler

        try:
            scaler.SchedulerClusterCombo({address!r}, 1, spill_directory="/proc/nowhere")
        except scaler.ScalerError as error:
            print(error)
        """
    )
    assert "spill_directory cannot be written" in said
    assert not door_of(address).exists()


def test_ctrl_c_ends_a_script_with_keyboard_interrupt_alone(scripts, traces):
    script = start(scripts, "    futures[1].result()\n", group=True)
    os.killpg(script.pid, signal.SIGINT)
    assert script.ends(2.0) == -signal.SIGINT
    assert script.text.count("Traceback") == 1
    assert script.text.endswith("KeyboardInterrupt\n")
    traces.check(1.0)


@pytest.mark.parametrize("call", ["client.map(time.sleep, [1000] * 4)", "client.get({'a': (time.sleep, 1000)}, ['a'])"])
def test_ctrl_c_interrupts_whatever_waits(scripts, traces, call):
    script = start(scripts, f"    print('waits', flush=True); {call}\n", group=True)
    script.says("waits")
    os.killpg(script.pid, signal.SIGINT)
    assert script.ends(3.0) == -signal.SIGINT
    assert script.text.endswith("KeyboardInterrupt\n")


def test_ctrl_c_can_be_caught_and_the_cluster_works_on(scripts):
    script = start(
        scripts,
        """
    try:
        print("can be caught", flush=True)
        futures[1].result()
    except KeyboardInterrupt:
        print("sum", client.map(pow, [(2, 3), (3, 2)]) if not client.cancel(futures, force=True) < 0 else None)
    """,
        group=True,
    )
    script.says("can be caught")
    os.killpg(script.pid, signal.SIGINT)
    assert script.ends(10.0) == 0
    assert script.text.endswith("sum [8, 9]\n")


def test_an_executor_left_open_by_an_error_ends_with_its_script(scripts, traces):
    script = scripts.start(
        """
        import scaler

        pool = scaler.Executor(2)
        future = pool.submit(pow, 2, 3)
        print("ready", flush=True)
        raise RuntimeError("on purpose")
        """
    )
    script.says("ready")
    assert script.ends(2.0) == 1
    assert script.text.endswith("RuntimeError: on purpose\n")
    traces.check(1.0)


@pytest.mark.parametrize(
    "run",
    [
        "with scaler.Executor(1) as pool: pool.submit(f, 1).result()",
        "pool = scaler.Executor(1); pool.submit(f, 1).result()",
        "pool = scaler.Executor(1); pool.submit(f, 1).result(); pool.shutdown(wait=False)",
        "cluster = scaler.SchedulerClusterCombo(n_workers=1); client = scaler.Client(cluster); client.map(f, [1])",
        "import scaler_dask; client = scaler_dask.Client(n_workers=1); client.submit(f, 1).result()",
    ],
)
def test_globals_of_a_script_are_finalized_at_its_end(scripts, run):
    """A file that was not closed is complete then."""
    text = scripts.run(
        f"""
        import scaler

        class Finalized:
            def __del__(self, print=print):
                print("finalized")

        def f(x):
            return x

        thing = Finalized()
        {run}
        """
    )
    assert text == "finalized\n"


def test_a_forked_child_that_ends_does_not_end_its_parents_cluster(scripts):
    text = scripts.run(
        """
        import os, sys
        import scaler

        cluster = scaler.SchedulerClusterCombo(n_workers=1)
        client = scaler.Client(cluster.address)
        assert client.submit(pow, 2, 2).result(20) == 4
        pid = os.fork()
        if pid == 0:
            sys.exit(7)  # runs the functions registered with atexit
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        print(client.submit(pow, 2, 3).result(20))
        """,
        PYTHONWARNINGS="ignore::DeprecationWarning",  # since 3.12: forking a program with threads
    )
    assert text == "8\n"


def test_a_script_needs_no_main_guard(scripts):
    text = scripts.run(
        """
        import scaler

        print("once")
        with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
            print(client.map(lambda x: x + 1, range(3)))
        """
    )
    assert text == "once\n[1, 2, 3]\n"


def test_the_client_of_scaler_get_leaves_before_its_cluster_ends(scripts):
    """Else it would look for the scheduler, for which it would load what connects to other machines."""
    text = scripts.run(
        """
        import atexit, sys
        atexit.register(lambda: print("zmq" in sys.modules))  # called last
        import dask
        from scaler_dask import scaler_get
        print(dask.delayed(pow)(2, 3).compute(scheduler=scaler_get))
        """
    )
    assert text == "8\nFalse\n"


NEVER_ENDS = """
    import threading, time
    import scaler
    import scaler.client.lifetime

    scaler.client.lifetime.CALLBACK_TIMEOUT = 0.3  # so that the test need not wait

    def never_ends(future):
        begun.set()
        time.sleep(1000)

    begun = threading.Event()
"""


def check_end_without(script):
    assert script.ends(20) == 0
    said = [line for line in script.text.splitlines() if "never_ends" in line]
    assert len(said) == 1, script.text
    assert "has not ended within 0.3 s" in said[0]


def test_a_callback_that_never_ends_is_named_and_does_not_keep_a_client_from_leaving(scripts, traces):
    script = scripts.start(
        NEVER_ENDS
        + """
    with scaler.SchedulerClusterCombo(n_workers=1) as cluster, scaler.Client(cluster.address) as client:
        client.submit(time.sleep, 0.1).add_done_callback(never_ends)
        assert begun.wait(20)
    """
    )
    check_end_without(script)
    traces.check()


@pytest.mark.skipif((3, 12) <= sys.version_info < (3, 12, 2), reason="this Python starts no thread at its end")
def test_a_callback_that_never_ends_keeps_no_later_result_from_an_executor_at_the_programs_end(scripts, traces):
    script = scripts.start(
        NEVER_ENDS
        + """
    pool = scaler.Executor(2)
    pool.submit(time.sleep, 0.1).add_done_callback(never_ends)
    last = pool.submit(lambda: (time.sleep(1), print("the last has run", flush=True)))
    assert begun.wait(20)
    """
    )
    check_end_without(script)
    assert "the last has run" in script.text
    traces.check()
