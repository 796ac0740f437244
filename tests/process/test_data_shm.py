"""What stores leave in /dev/shm, who may see it, and what happens when there is no room."""

import os
import shutil
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from support import DEADLINE, until
from support.programs import environment
from support.stores import objects_of, stores

from scaler.store.directory import clean_up_dead

#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "1", "--client-timeout", "1")
#: of an array of 5 MB
MANY = 625_000
#: "nobody"
STRANGER = 65534

OBJECTS_IN_USE = """
    import sys
    import numpy as np
    import scaler

    {start}
    sent = [client.send_object(np.full(625_000, x)) for x in range(3)]
    made = [client.submit(np.full, 625_000, x) for x in range(3)]
    assert client.submit(lambda a, b: int(a[0] + b[0]), sent[1], made[2]).result(20) == 3
    assert [int(future.result(20)[0]) for future in made] == [0, 1, 2]
    print("ready", getattr(globals().get("cluster"), "pid", 0), flush=True)
    client.submit(lambda a: __import__("time").sleep(100), sent[0]).result()
"""
LOCAL = OBJECTS_IN_USE.format(
    start="cluster = scaler.SchedulerClusterCombo(n_workers=2); client = scaler.Client(cluster.address)"
)
REMOTE = OBJECTS_IN_USE.format(start="client = scaler.Client(sys.argv[1])")


@pytest.fixture(autouse=True)
def _the_next_agent_cleans_up(traces):
    yield
    clean_up_dead()


def test_a_program_that_is_killed_leaves_nothing_of_its_cluster(scripts):
    script = scripts.start(LOCAL)
    cluster = int(script.says(r"ready (\d+)\n")[1])
    assert len(objects_of(cluster, 8 * MANY)) == 6
    script.signal(signal.SIGKILL)
    until(lambda: not stores(cluster), "the store to be removed", 5.0)


def test_a_cluster_that_is_killed_is_cleaned_up_by_the_next(start_cluster):
    cluster = start_cluster(1)
    (left,) = stores(cluster.pid)
    os.kill(cluster.pid, signal.SIGKILL)
    cluster.shutdown()
    start_cluster(1)
    until(lambda: not left.exists(), "the next one to clean up", 5.0)


def test_values_are_made_again_when_somebody_has_removed_the_store(start_cluster, connect):
    cluster = start_cluster(1)
    client = connect(cluster)
    made = client.submit(np.full, MANY, 3)
    assert client.submit(np.sum, made).result(20) == 3 * MANY
    (store,) = stores(cluster.pid)
    shutil.rmtree(store)
    until(lambda: client.submit(os.path.exists, store).result(20), "another one in its place")
    assert client.submit(np.sum, made).result(20) == 3 * MANY
    assert client.submit(np.sum, np.full(MANY, 2)).result(20) == 2 * MANY


def test_an_agent_that_is_killed_is_cleaned_up_by_the_next(daemons, tmp_path):
    daemons.start_scheduler(*QUICK)
    spill = tmp_path / "spill"
    spill.mkdir()
    options = ("--memory-limit", "50000000", "--spill-directory", str(spill))
    killed = daemons.start_agent(1, *options)
    client = daemons.client()
    made = [client.submit(np.full, MANY, x) for x in range(20)]
    until(lambda: all(future.done() for future in made))
    until(lambda: sum(len(files) for _, _, files in os.walk(spill)) > 1, "something to be spilled")
    assert objects_of(killed.pid, 8 * MANY)
    killed.signal(signal.SIGKILL)
    killed.ends(5)
    made.clear()  # nobody wants them any more
    new = daemons.start_agent(1, *options)
    until(lambda: not stores(killed.pid), "the store of the killed agent to be removed", 5.0)
    until(lambda: len(list(spill.iterdir())) == 1, "what it had spilled to be removed", 5.0)
    assert len(stores(new.pid)) == 1
    new.signal(signal.SIGTERM)
    assert new.ends(5) == 0
    assert not stores(new.pid)
    assert list(spill.iterdir()) == []


def test_an_agent_does_not_clean_up_after_the_living(daemons):
    daemons.start_scheduler(*QUICK)
    agents = [daemons.start_agent(1) for _ in range(3)]
    assert all(len(stores(agent.pid)) == 1 for agent in agents)


def test_what_a_killed_client_had_in_a_store_is_gone_when_it_is_missed(daemons, scripts):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    script = scripts.start(REMOTE, daemons.address)
    script.says("ready")
    assert len(objects_of(agent.pid, 8 * MANY)) == 6
    script.signal(signal.SIGKILL)
    until(lambda: not objects_of(agent.pid), "the objects to go", 1.0 + 2.0)
    (store,) = stores(agent.pid)
    until(lambda: not list((store / "free").iterdir()), "the memory to be given back", 5.0)
    assert daemons.client().submit(int, 7).result(20) == 7


def test_a_client_that_leaves_takes_its_objects_along_and_leaves_those_of_others(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(1)
    other = daemons.client()
    kept = other.send_object(np.arange(MANY))
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 1)
    client = daemons.client()
    sent = client.send_object(np.ones(MANY))
    assert client.submit(np.sum, sent).result(20) == MANY
    made = client.submit(np.ones, MANY)
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 3)
    until(made.done)
    client.disconnect()
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 1, "the objects to go")
    assert other.submit(np.sum, kept).result(20) == MANY * (MANY - 1) // 2


def test_only_the_user_may_look_into_a_store(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    sent = client.send_object(np.ones(MANY))
    made = [client.submit(lambda a, x: a + x, sent, x) for x in range(10)]
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 11)
    del made[5:]
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 6)
    (store,) = stores(agent.pid)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    modes = {}
    for path in store.rglob("*"):
        modes.setdefault(path.is_dir(), set()).add(stat.S_IMODE(path.stat().st_mode))
    assert modes == {True: {0o700}, False: {0o600}}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
@pytest.mark.skipif(sys.platform != "linux", reason="needs a user that Linux has")
def test_another_user_can_neither_list_nor_read_a_store(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(1)
    client = daemons.client()
    sent = client.send_object(np.ones(MANY))
    (name,) = until(lambda: objects_of(agent.pid, 8 * MANY))
    (store,) = stores(agent.pid)
    attempts = f"""
import os, sys
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
for attempt in (
    lambda: os.listdir({str(store)!r}),
    lambda: open({str(store / name)!r}, "rb"),
    lambda: open({str(store / "token")!r}, "rb"),
    lambda: open({str(store / "stranger")!r}, "wb"),
    lambda: os.unlink({str(store / name)!r}),
    lambda: os.rename({str(store)!r}, {str(store) + "x"!r}),
):
    try:
        attempt()
    except PermissionError:
        continue
    print("that worked")
"""
    done = subprocess.run(
        [sys.executable, "-c", attempts], env=environment(), capture_output=True, text=True, timeout=DEADLINE, cwd="/"
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert client.submit(np.sum, sent).result(20) == MANY


NO_ROOM = """
    import time
    import numpy as np
    import scaler
    import scaler.store

    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        def make(number):
            return np.full(number, 7.0)

        small = [client.submit(make, 50_000) for _ in range(4)]
        large = client.submit(make, 8_000_000)
        more = [client.submit(make, 50_000) for _ in range(4)]
        for future in small + more:
            assert (future.result(20) == 7).all()
        try:
            large.result(20)
        except scaler.StoreFull as error:
            print("full:", error, flush=True)
        del small, more
        begun = time.monotonic()
        for ask in (lambda: client.submit(make, 8_000_000), lambda: client.submit(len, np.ones(8_000_000))):
            try:
                ask().result(20)
            except scaler.StoreFull as error:
                print("never:", error, flush=True)
        assert time.monotonic() - begun < scaler.store.ROOM_PATIENCE
        several = [client.submit(make, 500_000) for _ in range(5)]
        assert client.submit(lambda *arrays: sum(map(len, arrays)), *several).result(20) == 2_500_000
        del several
        assert (client.submit(make, 500_000).result(20) == 7).all()
        assert client.submit(np.sum, np.ones(500_000)).result(20) == 500_000
        print("works on", flush=True)
"""


RACE = """
    import time
    import numpy as np
    import scaler

    with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
        begun = time.monotonic()
        for _ in range(5):
            made = [client.submit(np.full, 2_000_000, number) for number in range(2)]
            for number, future in enumerate(made):
                assert (future.result(20) == number).all()
        print(f"took {time.monotonic() - begun:.2f} s", flush=True)
"""


def test_results_that_have_room_one_after_the_other_are_both_there(network):
    script = network.host("narrow", shm=24 << 20).start_script(RACE)
    script.says(r"took .* s")
    assert script.ends(5) == 0


def test_a_value_that_dev_shm_has_no_room_for_fails_alone(network):
    host = network.host("narrow", shm=16 << 20)
    script = host.start_script(NO_ROOM)
    script.says("works on")
    assert script.ends(5) == 0
    full = [line for line in script.text.splitlines() if line.startswith("full: ")]
    assert len(full) == 1, script.text
    assert "make" in full[0]
    assert "64,0" in full[0]
    never = [line for line in script.text.splitlines() if line.startswith("never: ")]
    assert len(never) == 2, script.text
    assert all("there are 16,777,216 in all (give /dev/shm more" in line for line in [*full, *never])
    assert "Traceback" not in script.text


def test_many_values_that_dev_shm_has_no_room_for_at_once_are_all_had(network):
    host = network.host("narrow", shm=32 << 20)
    script = host.start_script(
        """
        import numpy as np
        import scaler

        with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
            futures = [client.submit(np.full, 250_000, x) for x in range(50)]  # 100 MB
            for x, future in enumerate(futures):
                assert (future.result(20) == x).all()
            sent = [client.send_object(np.full(250_000, x)) for x in range(50)]
            sums = [client.submit(np.sum, one) for one in sent]
            assert [future.result(20) for future in sums] == [250_000 * x for x in range(50)]
        print("right", flush=True)
        """
    )
    script.says("right", 55.0)
    assert script.ends(5) == 0


#: memory and disk are both filled by others, once some values are on disk
ALL_FULL = """
    import glob, os, subprocess, sys
    import numpy as np
    import scaler
    from support.waiting import until

    def fill(directory):
        with open(f"{directory}/filling", "wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(1 << 12))
                except OSError:
                    return

    def make(x):
        os.mkdir(f"{once}/{x}")  # fails if it is computed again
        return np.full(500_000, x)

    disk, once = sys.argv[1:]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
    with (
        scaler.SchedulerClusterCombo(n_workers=2, spill_directory=disk) as cluster,
        scaler.Client(cluster.address) as client,
    ):
        made = [client.submit(make, x) for x in range(10)]  # 40 MB
        assert [client.submit(np.sum, one).result(20) for one in made] == [500_000 * x for x in range(10)]
        until(lambda: any(len(os.listdir(f"{disk}/{name}")) >= 4 for name in os.listdir(disk)), "values on disk")
        until(lambda: not glob.glob("/dev/shm/scaler-*/free/*"), "memory that was used to be given back")
        fill(disk)
        fill("/dev/shm")
        for _ in range(2):
            assert [client.submit(np.sum, one).result(20) for one in made] == [500_000 * x for x in range(10)]
            for x, future in enumerate(made):
                assert (future.result(20) == x).all()
        assert client.submit(lambda *arrays: sum(map(len, arrays)), *made).result(20) == 5_000_000
        assert client.submit(os.getpid).result(20)
        print("right", flush=True)
"""


def test_values_on_disk_are_read_there_when_memory_and_disk_are_full(network, tmp_path):
    disk, once = tmp_path / "disk", tmp_path / "once"
    disk.mkdir()
    once.mkdir()
    script = network.host("narrow", shm=32 << 20).start_script(ALL_FULL, str(disk), str(once))
    script.says("right")
    assert script.ends(5) == 0


#: each takes more than half of what there is, and less than what objects go to disk for
WANTS_ROOM = """
    import sys
    import numpy as np
    import scaler

    client = scaler.Client(sys.argv[1])
    sent = [client.send_object(np.full(5_000_000, x)) for x in range(3)]
    firsts = [client.submit(lambda array: int(array[0]), one) for one in sent]
    assert [first.result(20) for first in firsts] == [0, 1, 2]
    print("right", flush=True)
"""


@pytest.mark.parametrize("client_at", ["narrow", "elsewhere"])
def test_stores_make_room_for_what_clients_send_by_themselves_and_from_other_hosts(network, client_at):
    middle, narrow = network.host("middle", shm=64 << 20), network.host("narrow", shm=64 << 20)
    middle.start_scheduler(*QUICK)
    narrow.start_agent(middle.url(), 1)
    host = narrow if client_at == "narrow" else network.host(client_at)
    script = host.start_script(WANTS_ROOM, middle.url())
    script.says("right")
    assert script.ends(5) == 0


def test_a_map_over_arrays_that_have_room_one_after_the_other_is_had(network):
    script = network.host("narrow", shm=48 << 20).start_script(
        """
        import numpy as np
        import scaler

        with scaler.SchedulerClusterCombo(n_workers=2) as cluster, scaler.Client(cluster.address) as client:
            doubled = client.map(lambda array: array * 2, [np.full(500_000, x) for x in range(40)])  # 160 MB
            assert [int(array[0]) for array in doubled] == [2 * x for x in range(40)]
        print("right", flush=True)
        """
    )
    script.says("right")
    assert script.ends(5) == 0
