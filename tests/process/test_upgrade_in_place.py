"""The package is exchanged under daemons that run: they go on with what they have loaded."""

import os
import shutil
import time
from pathlib import Path

import psutil
import pytest
from support.programs import ROOT, Daemons, Program, environment
from support.waiting import until

from scaler.agent.later import LATER as OF_AGENTS
from scaler.agent.later import OF_DAEMONS
from scaler.scheduler.later import LATER as OF_SCHEDULERS
from scaler.scheduler.later import OF_PAIRS


def _copy(directory: Path) -> Path:
    """A package of which nothing was compiled yet: what a process loads of it leaves a trace."""
    shutil.copytree(ROOT / "scaler", directory / "scaler", ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def _was_loaded(site: Path, module: str) -> bool:
    path = site.joinpath(*module.split("."))
    if path.is_dir():
        path /= "__init__"
    return any((path.parent / "__pycache__").glob(f"{path.name}.*.pyc"))


def _await_loaded(site: Path, names: tuple[str, ...], program: Program) -> None:
    ours = [name for name in names if name.startswith("scaler.")]
    until(lambda: all(_was_loaded(site, name) for name in ours), "all that may be needed later")
    process = psutil.Process(program.process.pid)
    until(lambda: process.status() == psutil.STATUS_SLEEPING, "the last of it")  # it was compiled, and may still run


def _exchange(site: Path) -> None:
    """Whatever is loaded from now on fits nothing."""
    for path in (site / "scaler").rglob("*.py"):
        path.write_text("raise ImportError('of another version')\n")
    for path in (site / "scaler").rglob("*.pyc"):
        path.unlink()


def _importing_from(site: Path) -> dict[str, str]:
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(site), env["PYTHONPATH"]])
    env["PYTHONSAFEPATH"] = "1"  # where the tests run there is another copy
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def test_scheduler_and_agent_outlive_an_upgrade_in_place(tmp_path: Path, daemons: Daemons) -> None:
    sites = [_copy(tmp_path / "one"), _copy(tmp_path / "two")]  # one each: by it is known who has loaded what
    env, agents_env = map(_importing_from, sites)
    scheduler = daemons.run("scaler_scheduler", "scheduler", daemons.address, env=env)
    scheduler.says("listens at")
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", "--drain-grace", "0", daemons.address, env=agents_env)
    agent.says(r"Worker\[0\] started")
    later = (*OF_SCHEDULERS, *OF_PAIRS), (*OF_AGENTS, *OF_DAEMONS)
    for site, names, program in zip(sites, later, (scheduler, agent), strict=True):
        _await_loaded(site, names, program)
        _exchange(site)
    client = daemons.client()
    assert client.submit(pow, 2, 3).result(timeout=30) == 8
    assert [found["workers"] for found in client.cluster.agents()] == [1]
    future = client.submit(time.sleep, 0.1)
    client.cluster.explain(future)
    future.result(timeout=30)
    client.cluster.story(future)
    os.kill(client.submit(os.getpid).result(timeout=30), 9)
    assert client.submit(pow, 2, 3).result(timeout=30) == 8
    assert scheduler.process.poll() is None
    assert agent.process.poll() is None
    assert "ImportError" not in scheduler.text + agent.text


def test_who_was_connected_by_a_local_socket_connects_by_tcp_after_an_upgrade_in_place(
    tmp_path: Path, daemons: Daemons
) -> None:
    """On one host nobody needs ZeroMQ before a scheduler is gone."""
    sites = [_copy(tmp_path / "one"), _copy(tmp_path / "two")]  # one each: by it is known who has loaded what
    env, agents_env = map(_importing_from, sites)
    scheduler = daemons.run("scaler_scheduler", "scheduler", daemons.address, env=env)
    scheduler.says("listens at")
    agent = daemons.run("scaler_cluster", "cluster", "-n", "1", daemons.address, env=agents_env)
    agent.says(r"Worker\[0\] started")
    for site, program in zip(sites, (scheduler, agent), strict=True):
        _await_loaded(site, OF_DAEMONS, program)
        _exchange(site)
    scheduler.stop()
    agent.says("is lost")
    daemons.run("scaler_scheduler", "scheduler", daemons.address).says("listens at")
    agent.says("(?s)connected to the scheduler.*is lost.*connected to the scheduler")
    assert daemons.client().submit(pow, 2, 3).result(timeout=30) == 8
    assert "ImportError" not in agent.text


@pytest.mark.parametrize("options", [("--journal", "{}"), ("--validate",), ("--event-loop", "uvloop")])
def test_a_supervised_scheduler_is_followed_by_another_after_an_upgrade_in_place(
    tmp_path: Path, daemons: Daemons, options: tuple[str, ...]
) -> None:
    if "uvloop" in options:
        pytest.importorskip("uvloop")
    site = _copy(tmp_path / "site")
    given = [option.format(tmp_path / "journal") for option in options]
    env = _importing_from(site)
    scheduler = daemons.run("scaler_scheduler", "scheduler", "--supervise", *given, daemons.address, env=env)
    scheduler.says("listens at")
    _exchange(site)
    (child,) = Path(f"/proc/{scheduler.pid}/task/{scheduler.pid}/children").read_text().split()
    os.kill(int(child), 9)
    scheduler.says("(?s)listens at.*another takes its place.*listens at", 20.0)
    assert "ImportError" not in scheduler.text
