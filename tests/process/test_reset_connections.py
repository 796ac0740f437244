"""Connections between hosts that something on their way ends: sessions go on, nothing is lost or done again."""

import time

import numpy
import psutil
from support import until
from support.proxy import Proxy

from scaler import Client

#: bytes of a value that stays at its agent
LARGE = 1 << 20


def noted(path, number):
    """A line for each run; ends when the file says so."""
    with path.open("a") as file:
        print(number, file=file)
    while not path.with_suffix(".go").exists():
        time.sleep(0.01)
    return number


def nested(path):
    with Client() as client:
        return client.submit(noted, path, 7).result()


def test_a_cut_of_all_connections_loses_nothing_and_runs_nothing_again(daemons, tmp_path):
    scheduler = daemons.start_scheduler()
    between, path = Proxy(daemons.address, 0), tmp_path / "runs"
    between.limits = [None]
    path.touch()
    try:
        agent = daemons.run("scaler_cluster", "cluster", "-n", "3", "--drain-grace", "0", between.url)
        agent.says(r"Worker\[2\] started")
        with Client(between.url) as client:
            large = client.submit(numpy.ones, LARGE)
            until(large.done)
            running = [client.submit(noted, path, number) for number in range(2)] + [client.submit(nested, path)]
            until(lambda: len(path.read_text().split()) == 3, "three that run")
            for _ in range(3):
                wanted = between.connections + 2
                between.cut()
                until(lambda wanted=wanted: between.connections >= wanted, "agent and client are back")
            assert large.result(60).sum() == LARGE
            path.with_suffix(".go").touch()
            assert [future.result(60) for future in running] == [0, 1, 7]
            assert client.map(str, range(100)) == list(map(str, range(100)))
            assert sorted(path.read_text().split()) == ["0", "1", "7"]
        assert "its connection closed" not in scheduler.text
    finally:
        path.with_suffix(".go").touch()
        between.close()


def test_a_process_that_hangs_up_when_the_other_side_does_lives_on(daemons, scripts):
    """One side gives up a connection that the other side is just closing, in the middle of messages of many frames."""
    daemons.start_scheduler()
    agent = daemons.start_agent(1)
    ports = [each.laddr.port for each in psutil.Process(agent.pid).net_connections("tcp") if each.status == "LISTEN"]
    scripts.run(
        """
        import sys
        from scaler.transport import connect, load_or_create

        for number in range(300):
            connection = connect(f"tcp://127.0.0.1:{sys.argv[1]}", load_or_create(), shortcut=False)
            for _ in range(number % 4 + 1):  # a store hangs up, as this is no message
                connection.send([b"none", *[b""] * (number % 200)])
                connection.receive()
            connection.close(0)
        """,
        str(ports[0]),
    )
