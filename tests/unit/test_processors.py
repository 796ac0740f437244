"""How many cores a process may keep busy: those it may run on, and what the quotas of its control groups come to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaler.common import processors
from scaler.common.interpreter import command
from scaler.common.processors import granted_cores
from scaler.config import AgentConfig

ADDRESS = "tcp://head:2345"


@pytest.fixture(autouse=True)
def sixty_four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "available_cores", lambda: 64)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 64, raising=False)


def host(root: Path, membership: str, groups: dict[str, str]) -> str:
    """The files by which a host says what groups there are."""
    for name, text in {
        "proc/self/cgroup": membership,
        **{f"sys/fs/cgroup/{name}": groups[name] for name in groups},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return str(root)


@pytest.mark.parametrize(
    ("membership", "groups", "cores"),
    [
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "250000 100000"}, 3),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "max 100000"}, 64),
        ("0::/", {"cpu.max": "9900000 100000"}, 64),
        ("0::/", {"cpu.max": "no numbers"}, 64),
        ("0::/", {}, 64),
        # the least of all around it; and a path that leads nowhere here, as seen from inside a container
        ("0::/a/b", {"a/b/cpu.max": "800000 100000", "a/cpu.max": "400000 100000", "cpu.max": "max 100000"}, 4),
        ("0::/../docker/1f", {"cpu.max": "300000 100000"}, 3),
        # version 1, and both on one host
        ("4:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "500000", "cpu/a/cpu.cfs_period_us": "100000"}, 5),
        ("4:cpu,cpuacct:/docker/1f", {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "50000"}, 3),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "0"}, 64),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "100000"}, 64),
        ("5:cpuset:/\n4:memory:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 64),
        (
            "4:cpu:/a\n1:name=systemd:/b\n0::/",
            {"cpu/a/cpu.cfs_quota_us": "700000", "cpu/a/cpu.cfs_period_us": "100000", "b/cpu.max": "100000 100000"},
            7,
        ),
    ],
)  # fmt: skip
def test_quotas_of_all_groups_around_a_process_count(
    tmp_path: Path, membership: str, groups: dict[str, str], cores: int
) -> None:
    assert granted_cores(host(tmp_path, membership, groups)) == cores


def test_a_host_without_control_groups_grants_all_that_is_there(tmp_path: Path) -> None:
    assert granted_cores(str(tmp_path)) == 64


def test_a_quota_is_for_defaults_and_not_for_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_quotas", lambda _: [6])
    assert (AgentConfig(ADDRESS).worker_count, AgentConfig(ADDRESS).native_threads) == (6, 1)
    said = AgentConfig(ADDRESS, workers=2)
    assert (said.worker_count, said.native_threads) == (2, 3)
    said = AgentConfig(ADDRESS, workers=32, worker_threads=4)
    assert (said.worker_count, said.native_threads) == (32, 4)


def test_what_the_user_says_by_options_of_the_interpreter_counts_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = host(tmp_path, "0::/", {"cpu.max": "200000 100000"})
    for said in (1, 3, 100):
        monkeypatch.setattr(os, "process_cpu_count", lambda said=said: said)
        assert granted_cores(limited) == said


def test_interpreters_of_a_local_cluster_are_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys._xoptions, "cpu_count", "3")
    started = command("print(sys._xoptions['cpu_count'])")
    assert subprocess.run(started, capture_output=True, text=True, check=True).stdout == "3\n"
