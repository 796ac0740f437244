"""The scheduler is killed: every future ends with an error in time, and nothing hangs."""

import os
import signal
import socket
import time

import pytest
from support import alive, until, within, workers_of

from scaler import ConnectionFailed
from scaler.extension import submit_map


@pytest.fixture(params=["local socket", "tcp"])
def transport(request, monkeypatch):
    """Clients on this host use a local socket; as if they were on another one, they use tcp."""
    if request.param == "tcp":
        monkeypatch.setattr("scaler.transport.unix.AVAILABLE", False)


def double(x):
    return 2 * x


def is_refused(client):
    """Submit, and say whether there is nobody to submit to."""
    try:
        client.submit(double, 1)
    except ConnectionFailed as error:
        return "is gone" in str(error)
    return False


@pytest.mark.usefixtures("transport")
def test_every_future_ends_with_an_error_within_the_time_stated(daemons):
    daemons.start_scheduler("--heartbeat-interval", "0.2", "--client-timeout", "1", "--agent-timeout", "1")
    daemons.start_agent(1)
    client = daemons.client(reconnect=1.0)
    assert client.submit(double, 1).result(20) == 2
    futures = [client.submit(time.sleep, 1000) for _ in range(1000)]
    graph = client.submit_graph({"a": (time.sleep, 1000), "b": (double, "a")}, ["b"])
    with within(3.5, "noticed after 1 s at the latest, then looked for during 1 s"):
        daemons.scheduler.signal(signal.SIGKILL)
        for future in [*futures, *graph]:
            with pytest.raises(ConnectionFailed, match="is gone"):
                future.result(20)
    with pytest.raises(ConnectionFailed):
        client.submit(double, 1)
    with pytest.raises(ConnectionFailed):
        client.map(double, range(10))
    with within(1.0):
        client.disconnect()


@pytest.mark.usefixtures("transport")
def test_a_silent_scheduler_is_given_up_also_by_a_client_that_goes_on_submitting(daemons):
    daemons.start_scheduler("--heartbeat-interval", "0.2", "--client-timeout", "1", "--agent-timeout", "1")
    client = daemons.client(reconnect=0.5)
    pending = client.submit(double, 1)
    daemons.scheduler.signal(signal.SIGSTOP)
    try:
        until(lambda: is_refused(client), "a submit that says that the scheduler is gone", 8.0)
        with pytest.raises(ConnectionFailed, match="is gone"):
            pending.result(20)
    finally:
        daemons.scheduler.signal(signal.SIGCONT)


@pytest.mark.usefixtures("transport")
def test_goodbye_does_not_wait_for_a_scheduler_that_is_gone(daemons):
    daemons.start_scheduler()
    client = daemons.client(reconnect=60.0)
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)
    pending = client.submit(double, 1)
    with within(6.0):
        client.disconnect()
    assert pending.done()


def test_a_map_that_waits_ends_too(daemons):
    daemons.start_scheduler()
    client = daemons.client(reconnect=0.5)
    job = submit_map(client, double, list(range(100)), spread=True)  # there is no agent
    daemons.scheduler.signal(signal.SIGKILL)
    with pytest.raises(ConnectionFailed, match="is gone"):
        job.results(10)


def test_the_interpreter_ends_though_the_scheduler_is_gone(daemons, scripts):
    daemons.start_scheduler()
    script = scripts.start(
        """
        import sys, time
        import scaler
        from scaler.client.client import parts_of

        client = scaler.Client(sys.argv[1])
        futures = [client.submit(pow, 2, 3) for _ in range(100)]
        print("sent", flush=True)
        parts, _ = parts_of(client)
        while parts.liveness.failure is None and not parts.driver._line.connection.is_closed:
            time.sleep(0.01)
        """,
        daemons.address,
    )
    script.says("sent")
    daemons.scheduler.signal(signal.SIGKILL)
    assert script.ends(8.0) == 0
    assert script.text == "sent\n"


def test_a_local_cluster_that_is_killed_ends_its_futures_and_its_workers(start_cluster, connect):
    cluster = start_cluster(2)
    client = connect(cluster, reconnect=1000)
    assert client.submit(double, 1).result(20) == 2
    futures = [client.submit(time.sleep, 1000) for _ in range(10)]
    workers = workers_of(cluster.pid)
    assert len(workers) == 2
    os.kill(cluster.pid, signal.SIGKILL)
    for future in futures:
        with pytest.raises(ConnectionFailed, match=f"the local cluster at {cluster.address} was killed by SIGKILL"):
            future.result(10)
    until(lambda: not any(alive(pid) for pid in workers), "the workers to end")
    cluster.shutdown()


def test_a_local_cluster_that_is_shut_down_ends_its_futures_at_once(start_cluster, connect):
    cluster = start_cluster(1)
    future = connect(cluster, reconnect=1000).submit(time.sleep, 1000)
    cluster.shutdown()
    with pytest.raises(ConnectionFailed, match=f"the local cluster at {cluster.address} was shut down"):
        future.result(10)


@pytest.mark.parametrize("was_there", [False, True], ids=["new address", "address of one that has ended"])
def test_at_an_address_that_a_program_has_chosen_it_may_start_another_local_cluster(start_cluster, connect, was_there):
    if was_there:
        first = start_cluster(1)
        address = first.address
        first.shutdown()
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    cluster = start_cluster(1, address=address)
    client = connect(cluster, reconnect=20)
    os.kill(cluster.pid, signal.SIGKILL)
    start_cluster(1, address=address)
    assert client.submit(double, 1).result(20) == 2


def test_a_scheduler_that_is_started_again_finds_its_agents_and_clients(daemons):
    daemons.start_scheduler("--heartbeat-interval", "0.2", "--client-timeout", "1", "--agent-timeout", "1")
    agent = daemons.start_agent(1)
    client = daemons.client(reconnect=20.0)
    assert client.submit(double, 1).result(20) == 2
    daemons.scheduler.signal(signal.SIGKILL)
    daemons.scheduler.ends(5)
    futures = [client.submit(double, x) for x in range(1000)]
    daemons.start_scheduler("--heartbeat-interval", "0.2")
    assert [future.result(30) for future in futures] == [2 * x for x in range(1000)]
    assert agent.text.count("connected to the scheduler") == 2
