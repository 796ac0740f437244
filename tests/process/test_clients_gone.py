"""Clients that vanish or fall silent: the scheduler forgets what was theirs, and nobody else notices."""

import re
import signal
import threading
import time

import pytest
from support import until, within

import scaler

QUICK = ("--heartbeat-interval", "0.2", "--client-timeout", "1.5", "--agent-timeout", "1.5")

EMPTY = r"holds 1 clients, 1 agents, 0 rows, 0 queued, 0 at agents, 0 objects"

HUNDRED_THOUSAND_SECONDS_OF_WORK = """
    import sys, time
    import scaler

    client = scaler.Client(sys.argv[1])
    big = client.send_object(bytes(10_000_000))
    def work(x, data):
        time.sleep(0.005)
    futures = [client.submit(work, x, big) for x in range(10_000)]
    print("sent", flush=True)
    futures[-1].result()
"""


TASKS_THAT_SUBMIT_THEMSELVES = """
    import sys, time
    import scaler

    def again(client, way):
        if way == "submit":
            client.submit(again, client, way)
        elif way == "graph":
            client.submit_graph({"again": (again, client, way)}, ["again"])
        else:
            from scaler_dask import fire_and_forget, get_client

            fire_and_forget(get_client().submit(again, client, way, pure=False))
        time.sleep(0.02)

    client = scaler.Client(sys.argv[1])
    for _ in range(3):
        client.submit(again, client, sys.argv[2]).result(20)
    print("begun", flush=True)
    time.sleep(100)
"""


def quick(daemons):
    daemons.start_scheduler(*QUICK)
    daemons.start_agent(2)


def double(x):
    return 2 * x


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_client_gone_with_ten_thousand_tasks_leaves_the_scheduler_empty(daemons, scripts, number):
    quick(daemons)
    other = daemons.client()
    script = scripts.start(HUNDRED_THOUSAND_SECONDS_OF_WORK, daemons.address)
    script.says("sent")
    assert "10000 rows" in daemons.state() or " rows, " in daemons.state()
    results = []
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            results.append(other.submit(double, len(results)).result(20))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        until(lambda: len(results) > 10)
        with within(4.0, "its time-out is 1.5 s"):
            script.signal(number)
            until(lambda: daemons.state().startswith("1 clients, "), "the client to be forgotten")
        so_far = len(results)
        until(lambda: len(results) > so_far + 10)
    finally:
        stop.set()
        thread.join()
    assert results == [2 * x for x in range(len(results))]
    assert other.map(double, range(100), timeout=20) == [2 * x for x in range(100)]
    other.clear()
    until(lambda: "1 agents, 0 rows, 0 queued, 0 at agents, 0 objects" in daemons.state(), "an empty scheduler")


def test_a_client_stopped_past_its_timeout_gets_its_results_all_the_same(daemons, scripts):
    quick(daemons)
    script = scripts.start(
        """
        import sys, time
        import scaler

        def slow(x):
            time.sleep(0.001)
            return x * x

        client = scaler.Client(sys.argv[1])
        futures = [client.submit(slow, x) for x in range(3000)]
        print("sent", flush=True)
        assert [future.result(30) for future in futures] == [x * x for x in range(3000)]
        print("right", flush=True)
        """,
        daemons.address,
    )
    script.says("sent")
    script.signal(signal.SIGSTOP)
    daemons.scheduler.says("client .* is gone: silent")
    script.signal(signal.SIGCONT)
    script.says("right")
    assert script.ends(5) == 0


def test_a_client_that_says_goodbye_leaves_nothing_at_the_scheduler(daemons):
    quick(daemons)
    client = daemons.client()
    reference = client.send_object(bytes(1_000_000))
    assert client.submit(len, reference).result(20) == 1_000_000
    pending = [client.submit(time.sleep, 100) for _ in range(10)]
    client.disconnect()
    assert all(future.cancelled() for future in pending)
    nothing = "0 clients, 1 agents, 0 rows, 0 queued, 0 at agents, 0 objects; keeps 0.0 MB"
    until(lambda: daemons.state() == nothing, daemons.state())
    assert daemons.client().submit(double, 4).result(5) == 8  # the workers that slept were replaced


def test_what_is_not_referred_to_any_more_is_forgotten(daemons):
    quick(daemons)
    client = daemons.client()
    reference = client.send_object(bytes(1_000_000))
    assert client.submit(len, reference).result(20) == 1_000_000
    del reference

    def only_the_function_is_left():
        assert client.submit(double, 1).result(20) == 2
        return "0 rows, 0 queued, 0 at agents, 2 objects" in daemons.state()

    until(only_the_function_is_left)


@pytest.mark.parametrize(
    ("way", "number"),
    [("submit", signal.SIGKILL), ("graph", signal.SIGINT), ("dask", signal.SIGKILL)],
    ids=["killed", "interrupted", "dask"],
)
def test_tasks_that_submit_themselves_for_ever_end_with_the_program_that_began_it(daemons, scripts, way, number):
    quick(daemons)
    script = scripts.start(TASKS_THAT_SUBMIT_THEMSELVES, daemons.address, way)
    script.says("begun")
    until(lambda: " 0 rows" not in daemons.state(), "tasks that nobody waits for")
    script.signal(number)
    until(lambda: " 0 rows, 0 queued, 0 at agents" in daemons.state(), "tasks of nobody to end")
    other = daemons.client()
    assert other.map(double, range(100), timeout=20) == [2 * x for x in range(100)]
    assert " 0 rows, 0 queued, 0 at agents" in daemons.state()


def test_they_end_as_well_if_it_is_killed_while_no_scheduler_is_there(daemons, scripts):
    quick(daemons)
    script = scripts.start(TASKS_THAT_SUBMIT_THEMSELVES, daemons.address, "submit")
    script.says("begun")
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)
    script.signal(signal.SIGKILL)
    daemons.start_scheduler(*QUICK)
    daemons.scheduler.says("is here, with [1-9][0-9]* rows")
    until(lambda: " 0 rows, 0 queued, 0 at agents" in daemons.state(), "tasks of nobody to end")


def test_but_what_tasks_of_another_cluster_have_submitted_goes_on_at_the_next_scheduler(daemons, start_cluster):
    """Their own programs are never seen here, so that none of these can have left."""
    quick(daemons)

    def visit(address):
        guest = scaler.Client(address, reconnect=60)
        return guest.map(lambda x: (time.sleep(0.5), 2 * x)[1], range(20), timeout=50)

    home = scaler.Client(start_cluster(1))
    visiting = home.submit(visit, daemons.address)
    until(lambda: re.search(r" 1\d rows, ", daemons.state()))
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)
    daemons.start_scheduler(*QUICK)
    daemons.scheduler.says("is here, with [1-9][0-9]* rows")
    assert visiting.result(30) == [2 * x for x in range(20)]
    home.disconnect()


def test_callbacks_that_take_longer_than_a_silent_client_is_waited_for_cost_no_row_a_second_run(daemons, tmp_path):
    """One sleeps and one computes: neither lets its thread receive anything, and nobody may notice."""
    quick(daemons)
    ran = tmp_path / "ran"

    def note(number):
        with open(ran, "a") as file:
            file.write(f"{number}\n")
        time.sleep(0.05)
        return number

    def computes(_):
        until_then = time.monotonic() + 3
        while time.monotonic() < until_then:
            sum(range(1000))
        called.append("computed")

    called = []
    client = daemons.client()
    futures = [client.submit(note, number) for number in range(160)]
    futures[0].add_done_callback(lambda _: (time.sleep(3), called.append("slept")))
    futures[20].add_done_callback(computes)
    assert [future.result(20) for future in futures] == list(range(160))
    client.disconnect()
    assert sorted(called) == ["computed", "slept"]
    assert sorted(map(int, ran.read_text().split())) == list(range(160))
    assert "silent" not in daemons.scheduler.text
