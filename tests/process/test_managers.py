"""Proxies of a `multiprocessing.Manager` are opened by workers of the program's own cluster, and by no others."""

import multiprocessing

import pytest
from support import Daemons, Scripts

from scaler import Client, SchedulerClusterCombo

PROGRAM = """
    import multiprocessing, os, sys
    import psutil
    import scaler_dask
    import scaler
    from scaler.client import Client

    def put(queue, value):
        queue.put(value)

    multiprocessing.current_process().authkey = b"set after the import"
    key = bytes(multiprocessing.current_process().authkey)
    with multiprocessing.Manager() as manager:
        queue = manager.Queue()
        {use}
        print(queue.get(timeout=20))
"""

EXECUTOR = """
        with scaler.Executor(1) as pool:
            pool.submit(put, queue, "by an executor").result(20)
"""
INITIALIZER = """
        with scaler.Executor(1, initializer=put, initargs=(queue, "by its initializer")) as pool:
            pool.submit(abs, -1).result(20)
"""
CLIENT = """
        with scaler.SchedulerClusterCombo(n_workers=1) as cluster, Client(cluster.address) as client:
            client.submit(put, queue, "by a client's task").result(20)
"""
DASK = """
        import dask
        dask.delayed(put)(queue, "by a graph").compute(scheduler=scaler_dask.scaler_get)
"""


USES = {"executor": EXECUTOR, "initializer": INITIALIZER, "client": CLIENT, "dask": DASK}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_workers_of_the_programs_own_cluster_reach_its_managers(scripts: Scripts, use: str) -> None:
    assert scripts.run(PROGRAM.format(use=use.strip())).startswith("by ")


def test_a_worker_that_takes_the_place_of_a_killed_one_reaches_them_too(scripts: Scripts) -> None:
    use = """
        with scaler.Executor(1) as pool:
            psutil.Process(pool.submit(os.getpid).result(20)).kill()
            pool.submit(put, queue, "by the next one").result(20)
"""
    assert scripts.run(PROGRAM.format(use=use.strip())).splitlines()[-1] == "by the next one"


def test_the_key_is_in_no_command_line_and_no_environment(scripts: Scripts) -> None:
    use = """
        def has_it(process):
            told = process.cmdline() + [f"{name}={value}" for name, value in process.environ().items()]
            return any(word in text for text in told for word in (key.hex(), key.decode()))

        with scaler.Executor(1) as pool:
            pool.submit(put, queue, "seen").result(20)
            children = psutil.Process().children(recursive=True)
            assert children and not any(map(has_it, children))
            assert not pool.submit(lambda: any(key.hex() in value for value in os.environ.values())).result(20)
"""
    assert scripts.run(PROGRAM.format(use=use.strip())).strip() == "seen"


def test_an_agent_that_joins_a_local_cluster_has_a_key_of_its_own(
    cluster: SchedulerClusterCombo, daemons: Daemons
) -> None:
    def key() -> bytes:
        return bytes(multiprocessing.current_process().authkey)

    daemons.address = cluster.address
    daemons.start_agent(1, "--capabilities", "elsewhere")
    with Client(cluster.address) as client:
        assert client.submit(key).result(20) == key()
        elsewhere = client.with_options(capabilities=["elsewhere"])
        assert elsewhere.submit(key).result(20) != key()
