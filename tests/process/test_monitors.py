"""Real schedulers and agents under a watcher."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import DEADLINE, until
from support.programs import environment

from scaler.errors import AddressError, ConnectionFailed, HandshakeRefused
from scaler.monitor import Seen, Snapshot, Watcher, WorkerFlag
from scaler.monitor.insecure import exposure_of
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.messages import Refused
from scaler.protocol.messages.cluster_view import SchedulerView
from scaler.transport import Security, SocketFile, connect_file


def hold(path):
    """Run until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return path


def monitor_of(daemons):
    return daemons.scheduler.says(r"monitor address is (ipc://\S+)")[1]


def seen_when(watcher: Watcher, condition) -> Snapshot:
    """The first snapshot for which a condition holds."""

    def look():
        snapshot = watcher.seen.snapshot
        return snapshot if watcher.seen.is_connected and snapshot is not None and condition(snapshot) else None

    return until(look)


def test_a_watcher_sees_what_runs_and_outlives_the_scheduler(daemons, tmp_path):
    daemons.start_scheduler("--heartbeat-interval", "0.2", "--client-timeout", "5", "--agent-timeout", "5")
    agent = daemons.start_agent(2)
    address, file = monitor_of(daemons), str(tmp_path / "go")
    client = daemons.client()
    shown: list[Seen] = []
    with Watcher(address, 0.1, on_change=shown.append) as watcher:
        futures = [client.submit(hold, file) for _ in range(5)]
        snapshot = seen_when(watcher, lambda seen: sum(map(bool, seen.workers.functions)) == 2)
        assert snapshot.agents.pids[0] == agent.pid
        assert snapshot.scheduler.pid == daemons.scheduler.pid
        assert snapshot.scheduler.address == daemons.address
        assert all(memory > 1 << 20 for memory in [*snapshot.workers.memory, *snapshot.agents.memory])
        assert snapshot.scheduler.memory > 1 << 20
        assert snapshot.rows.running == 2
        assert snapshot.rows.queued + snapshot.rows.at_agents == 5
        assert {snapshot.function_of(worker).rpartition(".")[2] for worker in (0, 1)} == {"hold"}
        assert all(flags & WorkerFlag.HOLDS_LOCK for flags in snapshot.workers.flags)
        assert list(snapshot.agents.free) == [0]
        assert snapshot.received["Task"] >= 1
        assert sum(snapshot.clients.queued) + sum(snapshot.clients.running) == 5
        epoch = snapshot.scheduler.epoch

        daemons.scheduler.signal(signal.SIGKILL)
        gone = until(lambda: None if watcher.seen.is_connected else watcher.seen)
        assert gone.snapshot is not None
        assert gone.reason
        assert "\n" not in gone.reason
        assert gone.since <= time.time()

        daemons.start_scheduler("--heartbeat-interval", "0.2", "--client-timeout", "5", "--agent-timeout", "5")
        assert monitor_of(daemons) == address
        Path(file).touch()
        assert [future.result(DEADLINE) for future in futures] == [file] * 5
        back = seen_when(watcher, lambda seen: seen.scheduler.epoch != epoch and len(seen.workers) == 2)
        assert back.agents.pids[0] == agent.pid
        assert watcher.seen.since > gone.since
    assert [seen.version for seen in shown] == list(range(1, 1 + len(shown)))
    assert watcher.wait(watcher.seen.version) is None  # it is closed: nobody waits for ever


@pytest.mark.parametrize(("address", "is_quiet"), [("tcp://0.0.0.0:0", False), ("tcp://127.0.0.1:0", True)])
def test_a_scheduler_without_keys_says_so_to_whoever_watches(daemons, address, is_quiet):
    scheduler = daemons.run("scaler_scheduler", "scheduler", address, "--insecure")
    url = scheduler.says(r"listens at (tcp://\S+)")[1]
    monitor = scheduler.says(r"monitor address is (ipc://\S+)")[1]
    assert f"insecure: whoever reaches {address} can run code as this user" in scheduler.text
    asked = (("status", monitor), ("status", monitor, "--json"), ("metrics", monitor), ("top", monitor, "--once"))
    told = [daemons.run("scaler", "main", *words) for words in asked]
    assert [each.ends(DEADLINE) for each in told] == [0] * 4
    status, as_json, metrics, top = (each.text for each in told)
    words = json.loads(as_json)["scheduler"]["insecure"]
    assert words == exposure_of(SchedulerView(address=url, insecure=True)).words
    assert ("its machine" in words) == is_quiet
    assert status.splitlines()[-1 if is_quiet else 0] == f"insecure  {words}"
    assert "scaler_scheduler_insecure 1" in metrics.splitlines()
    assert any(line.startswith("insecure: ") and "without --insecure" in line for line in top.splitlines())


def test_a_local_cluster_is_watched_at_both_of_its_addresses(start_cluster):
    cluster = start_cluster(1)
    with Watcher(cluster.monitor_address, 0.1) as watcher:
        snapshot = seen_when(watcher, lambda seen: len(seen.workers) == 1)
        assert snapshot.host_of(0) == "local"
    with Watcher(cluster.address) as watcher:
        assert next(iter(watcher)).snapshot is not None
    file = Path(cluster.monitor_address.removeprefix("ipc://"))
    assert file.exists()
    cluster.shutdown()
    assert not file.exists()


def test_only_monitors_use_the_monitors_address(daemons):
    daemons.start_scheduler()
    connection = connect_file(SocketFile.parse(monitor_of(daemons)))
    connection.send(encode(hello_of("client", "in disguise", 7)))
    (frames,) = until(connection.receive)
    refused = decode(frames).message
    assert isinstance(refused, Refused)
    assert "only monitors" in refused.reason
    until(lambda: connection.receive() or connection.is_closed)
    connection.close(0)


def test_each_way_to_miss_a_scheduler_is_said_in_one_line(daemons, tmp_path, monkeypatch):
    daemons.start_scheduler()
    cases = [
        (f"ipc://{tmp_path}/nothing", None, ConnectionFailed, "no scheduler is there"),
        ("tcp://127.0.0.1:1", None, ConnectionFailed, "nothing listens"),
        ("127.0.0.1:2345", None, AddressError, "is no address"),
        ("ipc://relative", None, AddressError, "the form is ipc:///path"),
    ]
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", False)  # as from another host: by tcp, where keys count
    cases.append((daemons.address, Security.ephemeral(), HandshakeRefused, "key"))
    for address, security, error, words in cases:
        with pytest.raises(error, match=words) as raised:
            Watcher(address, security=security)
        assert "\n" not in str(raised.value)
    with Watcher(daemons.address) as watcher:
        assert watcher.wait(0, DEADLINE) is not None


def test_a_program_that_forgets_to_close_its_watcher_ends(start_cluster):
    cluster = start_cluster(1)
    text = f"from scaler.monitor import Watcher\nw = Watcher({cluster.monitor_address!r})\nprint(w.wait().version)"
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")
