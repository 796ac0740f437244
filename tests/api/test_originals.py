"""Programs that were written for the original run as they stand: its names, arguments and flags mean something here."""

import graphlib
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import scaler
from scaler import Client, ObjectRef, SchedulerClusterCombo
from scaler.client.future import Future
from scaler.compatibility.cluster_arguments import translated
from scaler.compatibility.flags import IGNORED

#: as the original's examples begin
BEGIN = """
    from scaler import Client
    from scaler.client.client import Client
    from scaler.cluster.combo import SchedulerClusterCombo
"""
#: what each of its seven examples does, in words of our own, and what is printed
PROGRAMS = {
    "submit": (
        """
        import math
        cluster = SchedulerClusterCombo(n_workers=10)
        client = Client(address=cluster.get_address())
        futures = [client.submit(math.sqrt, i) for i in range(100)]
        print(round(sum(future.result() for future in futures), 2))
        """,
        "661.46",
    ),
    "map": (
        """
        import math
        cluster = SchedulerClusterCombo(n_workers=10)
        client = Client(address=cluster.get_address())
        print(round(sum(client.map(math.sqrt, [(x,) for x in range(100)])), 2))
        """,
        "661.46",
    ),
    "send_object": (
        """
        def pick(values, index):
            return values[index]
        cluster = SchedulerClusterCombo(n_workers=1)
        client = Client(address=cluster.get_address())
        reference = client.send_object([1, 2, 3], name="values")
        print(client.submit(pick, reference, 0).result(), client.submit(pick, reference, 1).result())
        """,
        "1 2",
    ),
    "graph": (
        """
        def increase(x):
            return x + 1
        def add(x, y):
            return x + y
        cluster = SchedulerClusterCombo(n_workers=1)
        client = Client(address=cluster.get_address())
        graph = {"a": 2, "b": 2, "c": (increase, "a"), "d": (add, "b", "c"), "f": add}
        values = client.get(graph, keys=["a", "c", "d", "f"])
        print(values["a"], values["c"], values.get("d"), values["f"](1, 1))
        """,
        "2 3 5 2",
    ),
    "nested": (
        """
        def fibonacci(client: Client, n: int):
            if n < 2:
                return n
            a, b = (client.submit(fibonacci, client, n - k) for k in (1, 2))
            return a.result() + b.result()
        cluster = SchedulerClusterCombo(n_workers=1)
        client = Client(address=cluster.get_address())
        print(client.submit(fibonacci, client, 8).result())
        """,
        "21",
    ),
    "nested graph": (
        """
        def minus(x, y):
            return x - y
        def fibonacci(client: Client, n: int):
            if n < 2:
                return n
            graph = {"n": n, "1": 1, "2": 2, "n-1": (minus, "n", "1"), "n-2": (minus, "n", "2")}
            smaller = client.get(graph, keys=["n-1", "n-2"])
            parts = [client.submit(fibonacci, client, smaller.get(key)) for key in ("n-1", "n-2")]
            return sum(part.result() for part in parts)
        cluster = SchedulerClusterCombo(n_workers=10)
        client = Client(address=cluster.get_address())
        print(client.submit(fibonacci, client, 6).result())
        """,
        "8",
    ),
    "disconnect": (
        """
        cluster = SchedulerClusterCombo(n_workers=10)
        client = Client(address=cluster.get_address())
        client.clear()
        client.disconnect()
        print("gone")
        """,
        "gone",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_original_runs_and_ends(name, tmp_path):
    program, printed = PROGRAMS[name]
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (printed, "", 0)


def test_names_are_where_the_original_has_them():
    from scaler.client.future import ScalerFuture
    from scaler.client.object_reference import ObjectReference

    assert scaler.ScalerFuture is ScalerFuture is Future
    assert ObjectReference is ObjectRef


def test_a_task_knows_that_it_is_one(client):
    from scaler.worker.agent.processor.processor import Processor

    def look():
        from scaler.worker.agent.processor.processor import Processor

        processor = Processor.get_current_processor()
        return str(processor.scheduler_address()), processor.current_task() is not None

    assert Processor.get_current_processor() is None
    assert client.submit(look).result(20) == (client.address, True)


def test_arguments_of_the_original_are_shown_in_signatures():
    of_cluster, of_client = (set(inspect.signature(kind).parameters) for kind in (SchedulerClusterCombo, Client))
    assert {"n_workers", "per_worker_queue_size", "logging_paths", "heartbeat_interval_seconds"} <= of_cluster
    assert {"profiling", "timeout_seconds", "object_storage_address", "serializer"} <= of_client
    assert "originals" not in of_cluster | of_client


def test_a_cluster_takes_the_arguments_of_the_original(tmp_path, capfd):
    log = tmp_path / "log"
    cluster = SchedulerClusterCombo(
        1,
        None,
        per_worker_queue_size=1000,
        per_worker_task_queue_size=1000,
        logging_paths=(str(log), "/dev/stdout"),
        logging_level="INFO",
        logging_config_file=None,
        monitor_address=None,
        heartbeat_interval_seconds=2,
        client_timeout_seconds=60,
        worker_timeout_seconds=60,
        object_retention_seconds=60,
        death_timeout_seconds=60,
        hard_processor_suspend=False,
    )
    try:
        assert cluster.n_workers == 1
        assert cluster.get_address() == cluster.address
        with Client(cluster.get_address(), profiling=True, timeout_seconds=60, heartbeat_interval_seconds=2) as client:
            future = client.submit(sum, [1, 2])
            assert (future.result(20), future.profiling_info().duration_s >= 0) == (3, True)
    finally:
        cluster.shutdown()
    assert "joined" in log.read_text()
    assert "joined" in capfd.readouterr().out


def test_an_address_may_stand_behind_the_number_of_workers():
    cluster = SchedulerClusterCombo(1, "tcp://127.0.0.1:0")
    try:
        assert (cluster.n_workers, cluster.address.startswith("tcp://127.0.0.1:")) == (1, True)
    finally:
        cluster.shutdown()


def test_the_number_of_workers_may_stand_before_an_address_by_name():
    with SchedulerClusterCombo(1, address="tcp://127.0.0.1:0") as cluster:
        assert cluster.n_workers == 1
    with pytest.raises(TypeError, match="multiple values for argument 'n_workers'"):
        SchedulerClusterCombo(1, n_workers=2)


def test_a_client_takes_its_arguments_in_the_order_of_the_original(cluster):
    with Client(cluster.address, True, 60, 5) as client:
        future = client.submit(abs, -1)
        assert (future.result(20), future.profiling_info().duration_us >= 0) == (1, True)
    with pytest.raises(TypeError, match="multiple values for argument 'timeout_seconds'"):
        Client(cluster.address, True, 60, timeout_seconds=60)
    with pytest.raises(TypeError, match="positional arguments"):
        Client(*range(9))


@pytest.mark.parametrize(("level", "name"), [("NOTSET", "DEBUG"), ("warn", "WARNING"), (20, "INFO"), (35, "ERROR")])
def test_levels_of_the_log_may_be_those_of_logging(level, name):
    assert translated(SchedulerClusterCombo, {"logging_level": level})[0] == {"log_level": name}


def test_a_log_is_set_up_by_a_file(tmp_path):
    log, config = tmp_path / "log", tmp_path / "logging.conf"
    config.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=file\n[formatters]\nkeys=short\n"
        "[logger_root]\nlevel=INFO\nhandlers=file\n[formatter_short]\nformat=said: %(message)s\n"
        f"[handler_file]\nclass=FileHandler\nformatter=short\nargs=({str(log)!r},)\n"
    )
    cluster = SchedulerClusterCombo(1, logging_config_file=str(config))
    try:
        Client(cluster.address).disconnect()
    finally:
        cluster.shutdown()
    assert log.read_text().startswith("said: ")


def test_a_limit_for_all_tasks_is_refused_politely():
    with pytest.warns(DeprecationWarning, match="with_options"):
        SchedulerClusterCombo(1, task_timeout_seconds=60).shutdown()


@pytest.mark.parametrize("kind", [Client, SchedulerClusterCombo])
def test_an_argument_that_nobody_knows_is_a_mistake(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        kind("tcp://127.0.0.1:1", colour="red")


def test_tasks_are_submitted_as_the_original_spells_it(client):
    assert client.submit_verbose(pow, (2,), {"exp": 3}, capabilities={}).result(20) == 8
    assert client.submit_verbose(fn=pow, args=(2, 3), kwargs={}).result(20) == 8
    assert client.map(fn=pow, iterable=[(2, 3)]) == client.starmap(fn=pow, iterable=[[2, 3]]) == [8]
    assert client.map(abs, [-1], capabilities={}) == client.starmap(abs, [(-1,)], capabilities={}) == [1]
    assert client.get({"a": 1, "b": (abs, "a")}, ["b"], capabilities={}) == {"b": 1}


def test_arguments_of_a_map_that_nobody_knows_are_a_mistake(client):
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        client.map(abs, [1], colour="red")
    with pytest.raises(TypeError, match="multiple values for argument 'iterable'"):
        client.map(abs, [1], iterable=[1])


def test_clients_have_identities(cluster):
    with Client(cluster.address) as first, Client(cluster.address) as second:
        assert first.identity != second.identity
        assert first.with_options(priority=1).identity == first.identity
        assert {first.identity: 1}[first.identity] == 1


def test_a_task_that_raised_was_profiled_and_callbacks_can_see_it(client):
    def burn():
        import time

        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        raise ValueError("burnt")

    seen = []
    future = client.submit(burn, profiling=True)
    future.add_done_callback(lambda done: seen.append(done.profiling_info()))
    with pytest.raises(ValueError, match="burnt"):
        future.result(20)
    info = future.profiling_info()
    assert info.cpu_time_s >= 0.05
    assert info.duration_s >= 0.05
    assert info.memory_peak == info.peak_memory > 0
    client.submit(abs, 1).result(20)
    assert seen == [info]


def test_errors_are_those_that_the_original_raises(client):
    with pytest.raises(graphlib.CycleError) as caught:
        client.get({"a": (abs, "b"), "b": (abs, "a")}, ["a"])
    assert set(caught.value.args[1]) == {"a", "b"}
    with pytest.raises(ValueError, match="protected"):
        client.shutdown()


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("ipc:///tmp/scaler", "tcp://"),
        ("ws://127.0.0.1:2345", "tcp://127.0.0.1:2345"),
        ("inproc://name", "tcp://"),
    ],
)
def test_an_address_of_another_kind_is_refused_with_what_to_write(address, advice):
    with pytest.raises(scaler.AddressError) as caught:
        Client(address)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [
        ["scheduler", "-p", "-e", "builtin", "--logging-level", "INFO", "--per-worker-queue-size", "10", "-lbt", "2"],
        [
            "cluster",
            "--num-of-workers",
            "2",
            "-e",
            "builtin",
            "--logging-level",
            "INFO",
            "--per-worker-queue-size",
            "9",
        ],
    ],
)
def test_flags_of_the_original_are_taken(flags):
    from scaler.cli import cluster, scheduler

    command = {"scheduler": scheduler, "cluster": cluster}[flags[0]].command
    context = command.make_context(flags[0], [*flags[1:], "tcp://127.0.0.1:2345"])
    assert context.params["log_level"] == "INFO"
    assert context.params["event_loop"] == "builtin"
    assert context.params.get("protected", True)
    assert context.params.get("workers", 2) == 2


def test_amounts_of_capabilities_and_limits_of_tasks_are_taken_as_a_cluster_takes_them(capsys):
    from scaler.cli.cluster import command

    for flag in ("--per-worker-capabilities", "-pwc"):
        arguments = [flag, "gpu=1,big", "-tt", "0", "--logging-level", "CRITICAL", "tcp://127.0.0.1:2345"]
        context = command.make_context("cluster", arguments)
        assert context.params["capabilities"] == ("gpu", "big")
        assert context.params["log_level"] == "ERROR"
    assert capsys.readouterr().err == ""
    command.make_context("cluster", ["--task-timeout-seconds", "60", "tcp://127.0.0.1:2345"])
    assert "with_options" in capsys.readouterr().err


def test_an_ignored_flag_of_the_original_may_have_a_negative_value():
    from scaler.cli.scheduler import command

    for flag in ("--max-number-of-tasks-waiting", "-mt", "--load-balance-seconds"):
        assert command.make_context("scheduler", ["tcp://127.0.0.1:2345", flag, "-1"]).params["address"]


def test_flags_of_the_original_are_documented():
    page = (Path(__file__).parents[2] / "docs" / "from-the-original.md").read_text()
    flags = {names[0] for program in IGNORED.values() for names, _ in program}
    assert not {flag for flag in flags if f"`{flag}`" not in page}
