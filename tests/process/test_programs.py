"""The programs as their users meet them: started, looked at, ended."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support import until, workers_of
from support.echo import Proxy
from support.namespaces import why_not
from support.programs import environment
from support.waiting import DEADLINE

from scaler import AddressInUse, Client, ConnectionFailed, SchedulerClusterCombo, ShutdownRefused
from scaler.transport import Address, load_or_create


def double(x):
    return 2 * x


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("loop", ["builtin", "uvloop"])
def test_a_signal_ends_both_programs_cleanly_within_a_second(daemons, number, loop):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    daemons.start_scheduler("--event-loop", loop)
    agent = daemons.start_agent(2, "--event-loop", loop)
    client = daemons.client()
    futures = [client.submit(time.sleep, 1000) for _ in range(10)]
    until(lambda: " 0 at agents" not in daemons.state(), "tasks at the agent")
    workers = workers_of(agent.pid)
    assert len(workers) == 2
    agent.signal(number)
    assert agent.ends(1.0) == 0
    assert "ClusterProcess: ended" in agent.text
    assert "Traceback" not in agent.text
    daemons.scheduler.signal(number)
    assert daemons.scheduler.ends(1.0) == 0
    assert "Scheduler: ended" in daemons.scheduler.text
    assert "Traceback" not in daemons.scheduler.text
    client.disconnect()
    assert all(future.done() for future in futures)


def test_an_agent_that_is_told_to_end_hands_its_tasks_back(daemons):
    daemons.start_scheduler()
    first = daemons.start_agent(1)
    client = daemons.client()
    futures = [client.submit(time.sleep, 0.02) for _ in range(100)]
    until(futures[5].done)
    first.signal(signal.SIGTERM)
    daemons.start_agent(1)
    assert [future.result(20) for future in futures] == [None] * 100


def test_the_log_lines_of_the_documents(daemons):
    scheduler = daemons.start_scheduler()
    agent = daemons.start_agent(2)
    stamp = r"\[INFO\]\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}: "
    port = daemons.address.rpartition(":")[2]
    scheduler.says(rf"(?m)^{stamp}logging to \('/dev/stdout',\)$")
    scheduler.says(rf"(?m)^{stamp}use event loop: \w+$")
    scheduler.says(rf"(?m)^{stamp}Scheduler: monitor address is ipc:///tmp/127\.0\.0\.1_{port}_monitor$")
    agent.says(
        rf"(?m)^{stamp}ClusterProcess: starting 2 workers, heartbeat_interval_seconds=\S+, "
        r"object_retention_seconds=3600$"
    )
    for worker in range(2):
        agent.says(rf"(?m)^{stamp}Worker\[{worker}\] started$")


@pytest.mark.parametrize(
    ("name", "module"), [("scaler_scheduler", "scheduler"), ("scaler_cluster", "cluster"), ("scaler", "main")]
)
def test_h_shows_the_options(daemons, name, module):
    shown = daemons.run(name, module, "-h")
    assert shown.ends(10) == 0
    assert name in shown.text
    assert ("--heartbeat-interval" in shown.text) == (module != "main")


def test_what_tasks_log_is_in_a_file_that_is_the_agents_log(daemons, tmp_path):
    """And not among what a worker says to its agent, whose socket had the file's number."""

    def speak(x):
        import logging

        logging.getLogger("mine").warning("heard of %d", x)
        return x

    daemons.start_scheduler()
    log = tmp_path / "log"
    daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", "--log-path", str(log), daemons.address)
    client = daemons.client()
    assert [future.result(20) for future in [client.submit(speak, n) for n in range(5)]] == list(range(5))
    until(lambda: re.search(r"(?m)^\[WARNING\].*speak\[\d+\]: heard of 4$", log.read_text()), "what was logged")


@pytest.mark.parametrize("is_file", [False, True])
def test_what_tasks_print_and_log_is_in_the_agents_log_with_the_tasks_name(daemons, tmp_path, is_file):
    def speak(x):
        import logging
        import sys

        print("hello from", x)
        print("a warning from", x, file=sys.stderr)
        logging.info("noted by %d", x)
        logging.getLogger("mine").error("an error of %d", x)

    daemons.start_scheduler()
    log = tmp_path / "log"
    arguments = ("-n", "1", "--drain-grace", "0", *(["--log-path", str(log)] if is_file else []), daemons.address)
    agent = daemons.run("scaler_cluster", "cluster", *arguments)
    daemons.client().submit(speak, 7).result(20)
    for line in (
        r"\[INFO\].*speak\[\d+\]: hello from 7", r"\[WARNING\].*speak\[\d+\]: a warning from 7",
        r"\[INFO\].*speak\[\d+\]: noted by 7", r"\[WARNING\].*speak\[\d+\]: ERROR: an error of 7",
    ):  # fmt: skip
        until(lambda line=line: re.search(line, log.read_text() if is_file else agent.text), line)


def test_an_address_in_use_is_said_in_one_line(daemons):
    daemons.start_scheduler()
    second = daemons.run("scaler_scheduler", "scheduler", daemons.address)
    assert second.ends(5) != 0
    (line,) = [line for line in second.text.splitlines() if "choose another port" in line]
    assert daemons.address in line
    assert "Traceback" not in second.text
    with pytest.raises(AddressInUse, match=re.escape(daemons.address)):
        SchedulerClusterCombo(daemons.address, n_workers=1)


def test_a_start_that_fails_is_said_in_the_terminal_though_the_log_is_a_file(daemons, tmp_path):
    daemons.start_scheduler()
    for number, options in enumerate(((), ("--supervise",))):
        log = tmp_path / f"log_{number}"
        second = daemons.run("scaler_scheduler", "scheduler", *options, "--log-path", str(log), daemons.address)
        assert second.ends(10) != 0
        (line,) = second.text.splitlines()
        assert line == f"another program listens at {daemons.address}: choose another port"
        assert "[ERROR]" in log.read_text()


def test_a_port_of_the_store_that_is_in_use_is_said_with_its_option(daemons):
    daemons.start_scheduler()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--store-port", port, daemons.address)
        assert agent.ends(20) == 1
    *_, line = agent.text.splitlines()
    assert line.startswith("scaler_cluster: the store of this host can't listen: another program listens at tcp://")
    assert line.endswith("choose another port (--store-port)")


def test_a_scheduler_and_an_agent_without_keys_say_so_at_each_start(daemons):
    scheduler = daemons.start_scheduler("--insecure")
    (line,) = [line for line in scheduler.text.splitlines() if "insecure" in line]
    assert "can run code as this user" in line
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--insecure", daemons.address)
    agent.says("insecure: this host takes tasks of whoever answers")
    agent.says(
        "connected to the scheduler"
    )  # what is ended while it starts may leave the draft of a directory for a minute


def test_without_keys_other_hosts_are_let_in_only_if_that_is_said(daemons):
    scheduler = daemons.run("scaler_scheduler", "scheduler", "tcp://0.0.0.0:0", env=environment(SCALER_KEY="insecure"))
    assert scheduler.ends(10) == 1
    assert "Say --insecure if that is meant" in scheduler.text
    assert "Traceback" not in scheduler.text


def test_an_address_that_another_program_has_taken_is_said_too():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressInUse, match=re.escape(address)):
            SchedulerClusterCombo(address, n_workers=1)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:80", "udp://127.0.0.1:80", "tcp://127.0.0.1", "tcp://127.0.0.1:http", "nonsense"]
)
@pytest.mark.parametrize(("name", "module"), [("scaler_scheduler", "scheduler"), ("scaler_cluster", "cluster")])
def test_a_malformed_address_is_said_in_one_line(daemons, name, module, address):
    program = daemons.run(name, module, address)
    assert program.ends(10) in (1, 2)
    assert "the form is tcp://host:port" in program.text
    assert "Traceback" not in program.text


def test_an_agent_waits_for_its_scheduler_and_says_so(daemons):
    with socket.socket() as reserve:
        reserve.bind(("127.0.0.1", 0))
        daemons.address = f"tcp://127.0.0.1:{reserve.getsockname()[1]}"
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", daemons.address)
    agent.says("nothing listens at .*trying")
    daemons.start_scheduler()
    agent.says("connected to the scheduler")
    assert daemons.client().submit(double, 3).result(20) == 6


@pytest.fixture
def other_host(daemons):
    """Lets programs reach the scheduler as from another host, by tcp: they find no local socket for this port."""
    made = []

    def reach(*limits):
        made.append(Proxy(Address.parse(daemons.address), *limits))
        return made[-1].address.url

    yield reach
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("name", "module", "options"),
    [
        ("scaler_cluster", "cluster", ("-n", "1")),
        ("scaler_top", "top", ("--once",)),
        ("scaler", "main", ("status",)),
    ],
)
def test_a_program_with_another_key_says_so_in_one_line_and_ends(
    daemons, other_host, tmp_path, monkeypatch, name, module, options
):
    daemons.start_scheduler()
    url = other_host(None)
    load_or_create(tmp_path / "other", environ={})  # who only asks makes none
    monkeypatch.setenv("SCALER_KEY_FILE", str(tmp_path / "other"))
    program = daemons.run(name, module, *options, url)
    assert program.ends(10) != 0
    (line,) = (line for line in program.text.splitlines() if "does not accept the key" in line)
    assert url in line
    assert "Traceback" not in program.text


@pytest.mark.parametrize("options", [("--insecure",), ()])
def test_a_cluster_with_or_without_keys_is_watched_from_another_host_by_who_is_told_that_it_may_have_none(
    daemons, other_host, monkeypatch, options
):
    daemons.start_scheduler(*options)
    url = other_host(None)
    asked = daemons.run("scaler", "main", "metrics", url, "--insecure")
    assert asked.ends(20) == 0
    assert f"\nscaler_scheduler_insecure {len(options)}\n" in asked.text
    monkeypatch.setenv("SCALER_INSECURE", "1")
    pages = daemons.run("scaler_ui", "ui", url, "--host", "0.0.0.0", "--port", "0")
    pages.says(rf"Dashboard: open http://{re.escape(socket.gethostname())}:\d+/")
    pages.says("insecure: token and pages travel in the clear")
    if options:
        with Client(url, timeout=DEADLINE) as client:
            assert client.n_workers == 0


def test_an_agent_whose_scheduler_dies_in_the_handshake_and_stays_away_for_a_while_waits_for_it(daemons, other_host):
    daemons.start_scheduler()
    url = other_host(None, 64, *[0] * 6, None)
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", url)
    agent.says("no scheduler at .*trying")
    agent.says("connected to the scheduler")
    assert "key" not in agent.text
    assert daemons.client().submit(double, 3).result(20) == 6
    agent.stop()  # before the way to its scheduler goes


def test_a_task_that_connects_to_a_scheduler_that_dies_in_the_handshake_waits_for_the_next_one(daemons, other_host):
    daemons.start_scheduler()
    url = other_host(None, None, None, 64, *[0] * 6, None)  # the agent, and then the client in the task
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", url)
    agent.says("connected to the scheduler")

    def connecting():
        import scaler

        with scaler.Client() as inner:
            return str(inner.address), inner.submit(abs, -3).result()

    assert daemons.client().submit(connecting).result(20) == (url, 3)
    agent.stop()


def test_a_protected_scheduler_refuses_to_be_shut_down(daemons):
    daemons.start_scheduler()
    daemons.start_agent(1)
    client = daemons.client()
    with pytest.raises(ShutdownRefused, match="--no-protected"):
        client.shutdown()
    assert client.submit(double, 2).result(20) == 4


def test_an_unprotected_scheduler_shuts_the_whole_cluster_down(daemons):
    daemons.start_scheduler("--no-protected")
    agents = [daemons.start_agent(1), daemons.start_agent(1)]
    client = daemons.client()
    assert client.submit(double, 2).result(20) == 4
    client.shutdown()
    assert daemons.scheduler.ends(2) == 0
    assert [agent.ends(2) for agent in agents] == [0, 0]
    with pytest.raises(ConnectionFailed, match="scaler_scheduler"):
        Client(daemons.address)


def test_tasks_go_to_an_agent_that_has_what_they_ask_for(daemons):
    daemons.start_scheduler()
    daemons.start_agent(1)
    client = daemons.client()
    picky = client.with_options(capabilities=["gpu", "big"])
    future = picky.submit(os.getppid)
    assert len(set(client.map(double, range(100), timeout=20))) == 100
    daemons.scheduler.says(r"getppid needs big, gpu, which no agent has yet")
    assert not future.done()
    able = daemons.start_agent(1, "--capabilities", "gpu,big,linux")
    (zygote,) = {future.result(20), *picky.map(_parent, range(20), timeout=20)}
    assert os.stat(f"/proc/{zygote}").st_uid == os.getuid()
    assert int(_parent_of(zygote)) == able.pid


@pytest.mark.parametrize("seed", [None, "1"])
def test_strings_have_the_same_hashes_in_workers_of_all_hosts(daemons, start_cluster, monkeypatch, seed):
    if seed is None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    else:
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    daemons.start_scheduler()
    daemons.start_agent(1, "--capabilities", "a")
    daemons.run("scaler", "start", "cluster", "-n", "1", "--capabilities", "b", daemons.address)
    client = daemons.client()
    views = [client.with_options(capabilities=[name]) for name in "ab"]
    views.append(Client(start_cluster(1).address))
    seen = {view.submit(_hash_of, "word").result(20) for view in views}
    os.kill(views[0].submit(os.getppid).result(20), signal.SIGKILL)  # the next zygote is no fork of the agent
    seen.add(views[0].submit(_hash_of, "word").result(20))
    views[-1].disconnect()
    assert len(seen) == 1
    assert seen.pop()[1] == seed  # programs that tasks start are as the user wants them


def _hash_of(word):
    return hash(word), os.environ.get("PYTHONHASHSEED")


def _parent(_):
    return os.getppid()


def _parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[1]


def test_large_values_pass_between_processes_on_other_hosts(daemons, monkeypatch):
    monkeypatch.setattr("scaler.transport.unix.AVAILABLE", False)
    daemons.start_scheduler()
    daemons.start_agent(1)
    data = os.urandom(30_000_000)
    assert daemons.client().submit(lambda x: x[::-1], data).result(30) == data[::-1]


def test_an_agent_whose_scheduler_is_gone_for_too_long_ends(daemons):
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--death-timeout", "0.3")
    daemons.scheduler.signal(signal.SIGTERM)
    assert agent.ends(20.0) == 1
    assert "nobody came within 0.3 s (--death-timeout)" in agent.text


def leave_orphan(number):
    import subprocess

    return subprocess.run("sleep 0.01 & exit 0", shell=True).returncode


def zombies(number):
    """The processes that have ended and were not reaped, as their command and parent."""
    import contextlib
    from pathlib import Path

    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] == "Z":
                found.append((name, rest.split()[1]))
    return found


def test_a_host_that_is_the_first_process_of_a_container_reaps_what_tasks_leave_behind(daemons):
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    daemons.start_scheduler()
    container = "unshare", "--pid", "--fork", "--mount-proc"
    agent = daemons.run("scaler_cluster", "cluster", "-n", "2", daemons.address, through=container)
    client = daemons.client()
    assert client.map(leave_orphan, range(20)) == [0] * 20
    until(lambda: client.submit(zombies, 0).result(10) == [], "all to be reaped")
    (first,) = (int(pid) for pid in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split())
    os.kill(first, signal.SIGTERM)
    assert agent.ends(20) == 0
    assert "ClusterProcess: ended" in agent.text


@pytest.mark.parametrize(("told", "code"), [("os._exit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137)])
def test_the_first_process_of_a_container_ends_as_the_program_does(told, code):
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    program = f"import os, signal; from scaler.common.first_process import run_in_child; run_in_child(); {told}"
    ended = subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", program], timeout=15, check=False)
    assert ended.returncode == code


def test_the_first_process_of_a_container_ends_by_sigterm_before_it_is_up(tmp_path):
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    ended = subprocess.run(
        ["unshare", "--pid", "--fork", sys.executable, "-c", textwrap.dedent("""
            import os, signal, time
            import click
            from scaler.cli.command import call
            call(click.Command("x", callback=lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(20))), "x", [])
        """)],
        timeout=15, env=environment(), check=False,
    )  # fmt: skip
    assert ended.returncode == 143
