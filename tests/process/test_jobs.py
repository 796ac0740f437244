"""Durable jobs outlive what submitted them and what ran them: whatever is killed, each result is there, in order."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import noting, until
from support.programs import Daemons, environment, program

from scaler import Client, Executor
from scaler.cli.asking import quietly
from scaler.client.jobs.session import SLACK
from scaler.errors import ConnectionFailed, JobError, SerializationError

QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "2")


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def cluster(daemons, journal):
    daemons.start_scheduler(*QUICK, "--journal", str(journal))
    daemons.start_agent(2)
    return daemons


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster whose processes live through all of these tests, with the directory of its journal."""
    directory = tmp_path_factory.mktemp("shared")
    made = Daemons(directory)
    try:
        made.start_scheduler(*QUICK, "--journal", str(directory / "journal"))
        made.start_agent(2)
        yield made, directory / "journal"
    finally:
        made.close()


def kill(program):
    program.signal(signal.SIGKILL)
    program.ends(5)


def test_a_job_goes_on_without_its_client_and_is_fetched_by_another(shared):
    cluster, _journal = shared
    with cluster.client() as client:
        client.submit_job(lambda x: (x, os.getpid()), range(500), name="alone")
    other = cluster.client()
    job = other.attach("alone")
    assert job.wait(30)
    assert [x for x, _ in job.results()] == list(range(500))
    assert os.getpid() not in {pid for _, pid in job.results()}
    state = job.status()
    assert (state.state, state.rows, state.done, state.progress) == ("done", 500, 500, 1.0)
    assert "alone" in [each.name for each in other.jobs()]


@pytest.mark.timeout(240)
def test_every_result_is_there_once_whatever_is_killed(daemons, journal, tmp_path):
    daemons.start_scheduler(*QUICK, "--journal", str(journal))
    agents = [daemons.start_agent(1) for _ in range(2)]
    with daemons.client() as client:
        client.submit_job(noting(tmp_path / "ran", 0.0005), range(4000), name="killed")
    for kills in range(3):
        with daemons.client() as client:
            job = client.attach("killed")
            until(lambda job=job, n=kills: job.status().done > 900 * (n + 1))
            done = job.status().done
        if kills == 1:
            kill(agents.pop())
            daemons.scheduler.says("is gone")
        kill(daemons.scheduler)
        if kills == 2:
            while agents:
                kill(agents.pop())
        daemons.start_scheduler(*QUICK, "--journal", str(journal))
        while len(agents) < 2:
            agents.append(daemons.start_agent(1))
        with daemons.client() as client:
            assert client.attach("killed").status().done >= done  # what was said to have ended has ended
    with daemons.client() as client:
        assert list(client.attach("killed").results(timeout=60)) == [3 * x for x in range(4000)]
    ran = (tmp_path / "ran").read_text().split()
    assert set(map(int, ran)) == set(range(4000))
    # at the most what was at agents that were killed, and what had ended there and was not on disk
    assert len(ran) - 4000 < 2000


def test_what_has_ended_is_kept_whatever_it_is_and_does_not_run_again(cluster, journal, tmp_path):
    def make(x):
        if x == 2:
            raise ValueError("two")
        return bytes([x]) * 1_000_000

    def add(*values):
        return sum(values)

    graph = {"a": 1, **{f"b{i}": (add, "a", i) for i in range(50)}, "c": (add, *[f"b{i}" for i in range(50)])}
    with cluster.client() as client:
        jobs = [
            client.submit_job(noting(tmp_path / "ran"), range(300), name="once"),
            client.submit_job(make, range(4), name="large"),
            client.submit_job_graph(graph, ["c", "b7", "a"], name="graph"),
        ]
        assert all(job.wait(30) for job in jobs)
    kill(cluster.scheduler)
    cluster.start_scheduler(*QUICK, "--journal", str(journal))
    with cluster.client() as client:
        assert list(client.attach("once").results()) == [3 * x for x in range(300)]
        assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(300))
        job = client.attach("large")
        assert [each.value for each in job.ended()] == [b"\0" * 10**6, b"\1" * 10**6, None, b"\3" * 10**6]
        assert job.state == "failed"
        with pytest.raises(ValueError, match="two") as raised:
            list(job.results())
        assert "row 2 of job 'large'" in raised.value.__notes__
        assert client.attach("graph").result(60) == {"c": 50 + sum(range(50)), "b7": 8, "a": 1}


def test_a_job_is_cancelled_and_deleted(shared, tmp_path):
    cluster, journal = shared
    with cluster.client() as client:
        job = client.submit_job(noting(tmp_path / "ran", 0.05), range(1000), name="unwanted")
        until(lambda: job.status().done > 3)
        state = job.cancel()
        assert job.wait(30)
        state = job.status()
        assert (state.state, state.done + state.cancelled) == ("cancelled", 1000)
        assert 3 < state.done < 100
        for each in client.jobs():
            client.attach(each.name).delete()
        assert client.jobs() == []
        with pytest.raises(JobError, match="there is no job 'unwanted' here"):
            job.status()
        until(lambda: [path.name for path in journal.glob("*.log")] == [])
        other = client.submit_job(abs, [-1], name="unwanted")  # the name is free
        with pytest.raises(JobError, match="job 'unwanted' was deleted, and another one has its name"):
            list(job.results())
        job.delete()  # it is
        assert (other.result(10), client.attach("unwanted").state) == (1, "done")


def test_a_durable_executor_does_not_compute_again(shared, tmp_path):
    cluster, _journal = shared
    function = noting(tmp_path / "ran")

    def program():
        with Executor(address=cluster.address, durable="program", security=cluster.client()._parts.security) as pool:
            futures = [pool.submit(function, x) for x in range(20)]
            futures.append(pool.submit(function, 7))  # the same call again is another call
            return [future.result(30) for future in futures], list(pool.map(function, range(100, 160)))

    first = program()
    assert first == ([3 * x for x in [*range(20), 7]], [3 * x for x in range(100, 160)])
    assert program() == first
    assert len((tmp_path / "ran").read_text().split()) == 81


def test_each_future_of_a_durable_executor_ends(shared, tmp_path):
    cluster, _journal = shared

    def executor(name):
        return Executor(address=cluster.address, durable=name, security=cluster.client()._parts.security)

    def finished(future):
        return future.result(10)

    for name in ("", "two\nlines", 5, "x" * 500):
        with pytest.raises(JobError, match="printable characters"):
            executor(name)
    with executor("refused") as pool:
        running = pool.submit(time.sleep, 60)
        until(lambda: cluster.client().attach("refused").status().rows == 1)
        cluster.client().attach("refused").cancel(force=True)
        with pytest.raises(concurrent.futures.CancelledError):
            running.result(10)
        with pytest.raises(JobError, match="takes no more rows"):
            pool.submit(abs, -1).result(10)
    pool = executor("left")
    futures = [pool.submit(after, 0.05, x) for x in range(10)]
    pool.shutdown(wait=False)
    assert list(map(finished, futures)) == list(range(10))
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, -1)
    until(lambda: cluster.client().attach("left").state == "done")
    with executor("unwaited") as pool:
        last = pool.submit(time.sleep, 60)
        pool.shutdown(cancel_futures=True)
        assert concurrent.futures.wait([last], 10).done == {last}
        assert last.cancelled()
    cluster.client().attach("unwaited").cancel(force=True)


def after(seconds, value):
    time.sleep(seconds)
    return value


def test_the_interpreter_waits_for_calls_of_a_durable_executor(shared):
    cluster, _journal = shared
    script = (
        "import sys, time\n"
        "from scaler import Executor\n"
        "pool = Executor(address=sys.argv[1], durable='last')\n"
        "pool.submit(time.sleep, 0.3).add_done_callback(lambda future: print(future.result()))\n"
    )
    command = [sys.executable, "-c", script, cluster.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=True)
    assert (done.stdout, done.stderr) == ("None\n", "")
    assert cluster.client().attach("last").state == "done"


def test_a_program_that_is_killed_finds_what_it_has_computed(shared, tmp_path):
    cluster, _journal = shared
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, threading, time\n"
        "ran = sys.argv[2]\n"
        "from scaler import Executor\n"
        "lock = threading.Lock()\n"
        "class Number:\n"
        "    def __init__(self, x): self.x = x\n"
        "def work(x):\n"
        "    time.sleep(0.02)\n"
        "    with lock: open(ran, 'a').write(f'{x}\\n')\n"
        "    return Number(x + 1).x\n"
        "with Executor(address=sys.argv[1], durable='script') as pool:\n"
        "    for future in [pool.submit(work, x) for x in range(100)]:\n"
        "        print(future.result(), flush=True)\n"
    )
    command = [sys.executable, str(script), cluster.address, str(tmp_path / "ran")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as running:
        for _ in range(10):
            running.stdout.readline()
        running.kill()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=True)
    assert done.stdout.split() == [str(x + 1) for x in range(100)]
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(map(int, ran)) == list(range(100))


def scaler(*arguments, **options):
    command = [sys.executable, "-c", "import sys; from scaler.cli.main import main; main()", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, timeout=60, env=environment(), **options)


def test_commands_show_and_change_jobs(shared):
    cluster, journal = shared
    with cluster.client() as client:
        client.submit_job(abs, [-1, 2, -3], name="shown").wait(30)

    line = next(line for line in scaler("jobs", cluster.address, "--json").stdout.splitlines() if '"shown"' in line)
    assert json.loads(line) | {"name": "shown", "rows": 3, "done": 3, "state": "done"} == json.loads(line)
    assert scaler("results", "shown", cluster.address).stdout.split() == ["1", "2", "3"]
    assert scaler("attach", "shown", cluster.address).returncode == 0
    with open("/dev/full", "w") as full:
        for form in ([], ["--json"]):
            said = scaler("attach", "shown", cluster.address, *form, stdout=full).stderr
            assert said.endswith("scaler: the output can't be written: No space left on device\n")
            assert "Traceback" not in said
    assert "0 jobs" not in scaler("journal", "check", str(journal)).stdout
    assert scaler("journal", "check", str(journal)).returncode == 0
    assert "opened   job" in scaler("journal", "show", str(journal)).stdout
    assert "shown" in scaler("cancel", "shown", cluster.address).stdout
    assert scaler("delete", "shown", cluster.address).stdout == "deleted shown\n"
    failed = scaler("results", "shown", cluster.address)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "there is no job 'shown' here" in failed.stderr


def odd(number):
    values = [{("a", 1): 2}, float("nan"), "two\nlines", Unshown(), [[1, 2], (3,)], b"bytes"]
    values[-2].append(values[-2])
    if number == len(values):
        raise ValueError("two\nlines\x1b[31m")
    return values[number]


class Unshown:
    def __repr__(self):
        raise RuntimeError("no\ntext")


def test_results_are_a_line_each_whatever_they_are(shared):
    cluster, _journal = shared
    with cluster.client() as client:
        client.submit_job(odd, range(7), name="odd").wait(30)
    shown = scaler("results", "odd", cluster.address)
    assert shown.stdout.splitlines() == [
        "{('a', 1): 2}", "nan", repr("two\nlines"), "<Unshown that can't be shown: RuntimeError: no text>",
        "[[1, 2], (3,), [...]]", "b'bytes'",
    ]  # fmt: skip
    assert (shown.returncode, shown.stderr) == (1, "row 6: ValueError: two lines?[31m\n")
    lines = scaler("results", "odd", cluster.address, "--json").stdout.splitlines()
    said = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [each["row"] for each in said] == list(range(7))
    assert [each.get("value") for each in said[:3]] == ["{('a', 1): 2}", "nan", "two\nlines"]
    with open("/dev/full", "w") as full:
        failed = scaler("results", "odd", cluster.address, "--start", "4", stdout=full)
    assert (failed.returncode, failed.stderr) == (1, "scaler: the output can't be written: No space left on device\n")


def test_what_is_missing_to_read_a_result_is_said_with_what_to_do(shared, tmp_path, monkeypatch):
    cluster, _journal = shared
    (tmp_path / "only_here.py").write_text("class Thing:\n    pass\n")
    make = f"import sys; sys.path.append({str(tmp_path)!r}); import only_here; made = only_here.Thing()"
    with cluster.client() as client:
        client.submit_job(_made, [make], name="thing").wait(30)
    shown = scaler("results", "thing", cluster.address)
    words = "(install only_here here, or have PYTHONPATH name the directory that has it)"
    assert shown.stderr == f"row 0: ModuleNotFoundError: No module named 'only_here' {words}\n"
    monkeypatch.syspath_prepend(tmp_path)
    assert "only_here.Thing object" in scaler("results", "thing", cluster.address).stdout


def _made(text):
    names = {}
    exec(text, names)
    return names["made"]


def test_results_are_shown_as_they_come(shared):
    cluster, _journal = shared
    with cluster.client() as client:
        job = client.submit_job(after, [(0, 1), (60, 2)], name="slow")
        code = "import sys; from scaler.cli.main import main; main()"
        command = [sys.executable, "-c", code, "results", "slow", cluster.address]
        buffered = environment() | {"PYTHONUNBUFFERED": ""}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=buffered) as running:
            assert running.stdout.readline() == "1\n"
            job.delete()
            assert running.wait(30) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--journal", ""), "journal names no directory"),
        (("--journal", "x", "--results", ""), "results names no directory"),
        (("--standby-of", "nonsense"), "no tcp:// in front"),
        (("--standby-of", ""), "no tcp:// in front"),
        (("--standby-of", "tcp://127.0.0.1:1"), "is this scheduler itself"),
        (("--standby-of", "tcp://127.0.0.1:0"), "has no port at which the other scheduler could be found"),
    ],
)
def test_options_that_can_not_be_meant_are_said_before_it_runs(tmp_path, options, why):
    failed = scaler("scheduler", "tcp://127.0.0.1:1", *options, "--log-path", str(tmp_path / "log"), cwd=tmp_path)
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
    assert why in failed.stderr
    assert not (tmp_path / "history").exists()


def test_results_may_be_read_from_any_row(shared):
    """Rows end in spans; the first that is asked for may be anywhere in one."""
    cluster, _journal = shared
    client = cluster.client()
    job = client.submit_job(lambda x: x, range(5000), name="anywhere")
    assert job.wait(30)
    assert job.status().spans < 2500, "spans have several rows, else this shows nothing"
    for start in (0, 1, 3, 1234, 4998, 4999, 5000):
        assert list(job.results(start=start)) == list(range(start, 5000)), start
    assert [each.row for each in job.ended(4321)] == list(range(4321, 5000))


def test_a_second_run_finds_what_ended_behind_a_row_that_runs_still(shared, tmp_path):
    cluster, _journal = shared
    go = str(tmp_path / "go")

    def late(x):
        while x == 0 and not os.path.exists(go):
            time.sleep(0.01)
        return -x

    first = Executor(address=cluster.address, durable="gaps")
    try:
        first.map(late, range(40))
        job = cluster.client().attach("gaps")
        until(lambda: job.status().done == 39, "all but the first row to end")
        with Executor(address=cluster.address, durable="gaps") as second:
            again = second.map(late, range(40), timeout=30)
            (tmp_path / "go").touch()
            assert list(again) == [-x for x in range(40)]
    finally:
        (tmp_path / "go").touch()
        first.shutdown()


def test_many_calls_at_once_keep_their_session(cluster):
    """So many answers come that the client acknowledges some in between."""
    with Executor(address=cluster.address, durable="many") as executor:
        assert sum(future.result(60) for future in [executor.submit(abs, -x) for x in range(1500)]) == sum(range(1500))
    assert "not its to send" not in cluster.scheduler.text


def test_one_thread_waits_for_a_job_while_others_ask_about_it(shared, tmp_path):
    cluster, _journal = shared
    client = cluster.client()
    job = client.submit_job(noting(tmp_path / "never", 3600.0), range(2), name="waited for")
    waiting = threading.Thread(target=job.wait)
    waiting.start()
    try:
        until(lambda: (tmp_path / "never").exists(), "it to run")
        began = time.monotonic()
        assert job.status().state == "running"
        assert time.monotonic() - began < 10, "a thread waits for a minute at a time"
    finally:
        job.cancel(force=True)
        waiting.join(30)
    assert not waiting.is_alive()
    assert job.status().state == "cancelled"


def test_a_job_whose_client_was_killed_while_it_submitted_is_no_done_one_when_it_is_cancelled(shared):
    cluster, _journal = shared
    client = cluster.client()
    script = (
        "import os, sys\nfrom scaler import Executor\n"
        "executor = Executor(address=sys.argv[1], durable='half way')\n"
        "print([executor.submit(abs, -x).result() for x in range(3)], flush=True)\nos._exit(1)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, cluster.address], env=environment(), stdout=subprocess.PIPE, check=False
    )
    assert ended.stdout == b"[0, 1, 2]\n"
    job = client.attach("half way")
    until(lambda: job.status().done == 3, "all of it to have ended")
    assert job.status().state == "open"
    assert job.cancel().state == "cancelled"
    assert list(job.results()) == [0, 1, 2]


def test_rows_of_a_job_are_tried_again_as_often_as_was_said(shared, tmp_path):
    cluster, _journal = shared
    client, counted = cluster.client(), tmp_path / "counted"

    def third(x):
        with open(counted, "a") as file:
            file.write(".")
        if os.path.getsize(counted) < 3:
            raise ValueError("not yet")
        return x

    assert client.submit_job(third, [7], retries=2).result(30) == 7
    with pytest.raises(ValueError, match="retries"):
        client.submit_job(third, [7], retries=-1)


def test_a_function_may_be_called_anything(shared):
    cluster, _journal = shared
    client = cluster.client()

    def odd(x):
        return x

    odd.__name__ = odd.__qualname__ = "a\nb"
    job = client.submit_job(odd, range(2))
    assert list(job.results(timeout=30)) == [0, 1]
    assert job.name.startswith("ab-")


def test_a_damaged_journal_is_not_shown_as_if_it_were_whole(tmp_path, daemons, capsys):
    journal = tmp_path / "journal"
    daemons.start_scheduler("--journal", str(journal))
    daemons.start_agent(1)
    with daemons.client() as client:
        assert client.submit_job(abs, range(100), name="shown").wait(30)
    daemons.scheduler.signal(signal.SIGTERM)
    daemons.scheduler.ends(10)
    (log,) = sorted(journal.glob("*.log"))[:1]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    for options in ((), ("--json",)):
        shown = subprocess.run(
            [*program("scaler", "main"), "journal", "show", *options, str(journal)],
            env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert shown.returncode == 1
        assert "believed" in shown.stdout + shown.stderr or log.name in shown.stdout + shown.stderr
        assert not options or all(json.loads(line) for line in shown.stdout.splitlines())


def test_a_directory_without_a_journal_is_not_said_to_be_all_right(tmp_path):
    for command in ("check", "show"):
        failed = scaler("journal", command, str(tmp_path))
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
        assert "there is no journal in" in failed.stderr


def test_an_error_that_is_one_of_the_system_too_is_told_as_what_it_is():
    def lose():
        raise ConnectionFailed("nothing listens there")

    with pytest.raises(ConnectionFailed, match="nothing listens there"):
        quietly(lose)


def test_jobs_may_be_called_like_tasks_and_are_cancelled_all_the_same(shared):
    cluster, _journal = shared
    with cluster.client() as client:
        for name in ("2024", "night:7", "a[3]"):
            client.submit_job(time.sleep, [60], name=name)
            said = scaler("cancel", name, cluster.address, "--force", "--json")
            assert json.loads(said.stdout)["name"] == name
            assert client.attach(name).wait(10)
            assert client.attach(name).state == "cancelled"
    for name in ("0", "99999999999", "nobody:x"):
        failed = scaler("cancel", name, cluster.address)
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
        assert f"there is no job {name!r} here" in failed.stderr


def test_a_job_that_could_not_be_submitted_is_not_there(shared):
    cluster, _journal = shared
    client = cluster.client()
    with pytest.raises(SerializationError, match="cannot be pickled"):
        client.submit_job(abs, [*range(-40_000, 0), threading.Lock()], name="half")
    with pytest.raises(JobError, match="there is no job"):
        client.attach("half")
    job = client.submit_job(abs, [-1], name="half")
    with pytest.raises(JobError, match="already"):
        client.submit_job(abs, [-2], name="half")
    assert job.result(10) == 1


def test_what_no_job_can_be_asked_is_refused_at_once(shared):
    cluster, _journal = shared
    client = cluster.client()
    for name in (5, None, "", "x" * 500, "\ud800"):
        with pytest.raises(JobError, match="printable characters"):
            client.attach(name)
    job = client.submit_job(abs, [-1, -2], name="asked")
    for start in (-1, 1 << 63, 1 << 70):
        with pytest.raises(ValueError, match="from 0 on"):
            next(job.results(start=start))
    with pytest.raises(TypeError):
        job.ended(start=0.5)
    assert list(job.results(start=1, timeout=10)) == [2]


def test_a_graph_may_have_any_value_that_can_be_pickled(shared):
    cluster, _journal = shared
    client = cluster.client()
    found = client.submit_job_graph({"f": lambda x: x + 1, "x": (abs, -1)}, ["f", "x"], name="values").result(10)
    assert (found["f"](1), found["x"]) == (2, 1)
    with pytest.raises(SerializationError):
        client.submit_job_graph({"lock": threading.Lock()}, ["lock"], name="locked")


def test_two_schedulers_do_not_share_a_journal(shared, daemons, tmp_path):
    cluster, journal = shared
    door, where = tmp_path / "door", ("--journal", str(journal))
    options = ("--monitor-address", f"ipc://{door}", *where)
    second = daemons.run("scaler_scheduler", "scheduler", "tcp://127.0.0.1:0", *options)
    assert second.ends(20) == 1
    assert f"another scheduler (process {cluster.scheduler.pid}) writes the journal {journal}" in second.text
    assert not door.exists()


def test_a_file_system_that_is_read_only_is_one_line_and_stays_as_it_is(network, tmp_path):
    host, mount = network.host("head"), tmp_path / "mount"
    mount.mkdir()

    def run(*command):
        assert host.start(command[0], *command).ends(10) == 0

    run("mount", "-t", "tmpfs", "none", str(mount))
    there, fresh = mount / "journal", mount / "fresh"
    host.start_scheduler("--journal", str(there)).stop()
    run("mount", "-o", "remount,ro", str(mount))
    for journal in (there, fresh):
        refused = host.start(
            "scheduler", *program("scaler_scheduler", "scheduler"), "--journal", str(journal), "tcp://127.0.0.1:0"
        )
        assert refused.ends(20) == 1
        (line,) = [line for line in refused.text.splitlines() if "[ERROR]" in line]
        assert f"the journal {journal} can't be written: Read-only file system; give a directory" in line
        assert "Traceback" not in refused.text
    run("mount", "-o", "remount,rw", str(mount))
    again = host.start_scheduler("--journal", str(there))
    again.says(r"has 0 jobs")
    run("test", "!", "-e", str(fresh))


def cluster_on_a_small_disk(network, tmp_path, size):
    """A host with two workers and a scheduler, where the disk is, and the scheduler."""
    host, mount = network.host("head"), tmp_path / "mount"
    mount.mkdir()
    assert host.start("mount", "mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(mount)).ends(10) == 0
    scheduler = host.start_scheduler("--journal", str(mount / "journal"))
    host.start_agent(host.url(), 2)
    return host, mount, scheduler


def test_a_job_waits_for_room_on_a_full_disk_and_loses_nothing(network, tmp_path):
    host, mount, scheduler = cluster_on_a_small_disk(network, tmp_path, "1m")
    script = host.start_script(
        """
        import sys
        from scaler import Client

        def large(number):
            return number.to_bytes(4, "big") * 5_000

        with Client(sys.argv[1]) as client:
            job = client.submit_job(large, range(200), name="large")
            results = list(job.results())
            assert results == [large(number) for number in range(200)]
            print("all there:", len(results))
        """,
        host.url(),
    )
    scheduler.says(r"can't be written: No space left on device")
    scheduler.signal(signal.SIGKILL)
    scheduler.ends(10)
    # what the killed one has left of a record is dropped where there is no room to keep it
    again = host.start_scheduler("--journal", str(mount / "journal"), port=host.port)
    again.says(r"has 1 jobs?")
    assert host.start("mount", "mount", "-o", "remount,size=64m", str(mount)).ends(10) == 0
    assert script.ends(60) == 0, script.text
    assert "all there: 200" in script.text


def test_a_scheduler_that_is_killed_comes_back_though_others_have_filled_its_disk(network, tmp_path):
    host, mount, scheduler = cluster_on_a_small_disk(network, tmp_path, "4m")
    script = """
        import sys
        from scaler import Client

        with Client(sys.argv[1]) as client:
            if sys.argv[2] == "submit":
                client.submit_job(abs, range(100), name=sys.argv[3])
            assert list(client.attach(sys.argv[3]).results()) == list(range(100))
            assert client.submit(abs, -7).result(20) == 7
    """
    assert host.start_script(script, host.url(), "submit", "old").ends(60) == 0
    filling = host.start("fill", "dd", "if=/dev/zero", f"of={mount / 'filler'}", "bs=64k")
    assert filling.ends(10) == 1, filling.text
    for _ in range(3):
        scheduler.signal(signal.SIGKILL)
        scheduler.ends(10)
        scheduler = host.start_scheduler("--journal", str(mount / "journal"), port=host.port)
        scheduler.says(r"has 1 jobs?")
    read = host.start_script(script, host.url(), "read", "old")
    assert read.ends(60) == 0, read.text
    assert host.start("free", "rm", str(mount / "filler")).ends(10) == 0

    def is_accepted():  # as soon as the scheduler has looked at the disk again
        submitted = host.start_script(script, host.url(), "submit", "new")
        code = submitted.ends(60)
        assert code == 0 or "can't be written" in submitted.text, submitted.text
        return code == 0

    until(is_accepted, "a job on the disk that has room again")


def test_a_job_that_waits_for_room_on_a_full_disk_says_so_also_when_it_is_cancelled(network, tmp_path):
    host, mount, scheduler = cluster_on_a_small_disk(network, tmp_path, "1m")
    script = host.start_script(
        """
        import sys
        from scaler import Client

        def large(number):
            return number.to_bytes(4, "big") * 50_000

        with Client(sys.argv[1]) as client:
            client.submit_job(large, range(60), name="large")
        """,
        host.url(),
    )
    assert script.ends(60) == 0, script.text
    scheduler.says(r"can't be written: No space left on device")
    words = "rows of it have ended, and don't count yet: the journal can't be written: No space left on device"
    for command, *arguments in (("jobs",), ("cancel", "large")):
        asked = host.start(command, *program("scaler", "main"), command, *arguments, host.url())
        assert asked.ends(30) == 0, asked.text
        assert f"scaler {command}: {words}" in asked.text
    attached = host.start("attach", *program("scaler", "main"), "attach", "large", host.url())
    attached.says(f"scaler attach: {words}")
    assert host.start("mount", "mount", "-o", "remount,size=64m", str(mount)).ends(10) == 0
    assert attached.ends(30) in (0, 1), attached.text  # done, or cancelled before all had run
    assert attached.text.count(words) == 1


def test_a_job_is_refused_at_once_whose_journal_somebody_has_removed(daemons, journal):
    daemons.start_scheduler(*QUICK, "--journal", str(journal))
    with daemons.client() as client:
        shutil.rmtree(journal)
        begun = time.monotonic()
        for name in ("first", "second"):
            with pytest.raises(JobError, match="lock was removed or replaced; start the scheduler again"):
                client.submit_job(abs, [1], name=name)
        assert time.monotonic() - begun < SLACK / 2
        assert client.jobs() == []


def test_without_a_journal_it_is_said_how_to_have_one(daemons):
    daemons.start_scheduler(*QUICK)
    with daemons.client() as client, pytest.raises(JobError, match="start it with --journal DIRECTORY"):
        client.submit_job(abs, [1])


def test_what_does_not_outlive_its_client_is_refused(shared):
    cluster, _journal = shared
    client: Client = cluster.client()
    with pytest.raises(TypeError, match="a durable job outlives its client"):
        client.submit_job(abs, [client.submit(abs, 1)])
    ended = client.submit(abs, 1)
    assert ended.result() == 1
    for future in (ended, client.submit(abs, 1)):  # whether or not its value has come already
        for task in ((abs, future), (abs, (abs, future)), future):
            with pytest.raises(TypeError, match="a durable job outlives its client"):
                client.submit_job_graph({"a": task}, ["a"])
    client.submit_job(abs, [1], name="mine")
    with pytest.raises(JobError, match="there is a job 'mine' already"):
        client.submit_job(abs, [1], name="mine")
    with contextlib.suppress(JobError):
        client.attach("mine").delete()


def test_on_a_disk_that_jobs_have_filled_they_can_be_deleted_and_others_go_on(network, tmp_path):
    host, _, scheduler = cluster_on_a_small_disk(network, tmp_path, "24m")
    script = """
        import sys
        from scaler import Client

        def large(number):
            return number.to_bytes(4, "big") * 50_000

        with Client(sys.argv[1]) as client:
            job = client.submit_job(large, range(int(sys.argv[3])), name=sys.argv[2])
            if sys.argv[2] != "endless":
                assert list(job.results()) == [large(number) for number in range(int(sys.argv[3]))]
    """
    assert host.start_script(script, host.url(), "old", "50").ends(60) == 0
    assert host.start_script(script, host.url(), "endless", "500").ends(60) == 0
    scheduler.says(r"can't be written: No space left on device")
    for name in ("old", "endless"):
        deleted = host.start("delete", *program("scaler", "main"), "delete", name, host.url())
        assert deleted.ends(30) == 0, deleted.text
    scheduler.says("it is written again")

    def is_used():  # results of the endless one, which were on their way, may have filled the disk once more
        used = host.start_script(script, host.url(), "new", "50")
        assert used.ends(60) == 0 or "can't be written" in used.text, used.text
        return used.process.returncode == 0

    until(is_used, "a job on the disk that is free again")
