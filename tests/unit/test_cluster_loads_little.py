"""What the process of a local cluster loads before its first row: nothing that only some programs use."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scaler.store import directory
from scaler.store.directory import temporary_root

#: whose modules belong to what is not used by a program that computes
UNUSED = (
    "dask", "numpy", "pandas", "zmq", "uvloop", "scaler_dask", "scaler.cli", "scaler.client", "scaler.compatibility",
    "scaler.executor", "scaler.graph", "scaler.joblib", "scaler.journal", "scaler.monitor", "scaler.provisioning",
    "scaler.results", "scaler.symphony", "scaler.scheduler.jobs", "scaler.scheduler.supervisor",
    "scaler.common.validating", "scaler.scheduler.succession", "scaler.scheduler.pairing",
    "scaler.scheduler.partner", "scaler.scheduler.durable_jobs", "scaler.scheduler.jobs_opener", "tempfile",
    "scaler.scheduler.state.validate", "scaler.agent.preemption",
    "scaler.scheduler.core.answering", "scaler.scheduler.core.commanding", "scaler.scheduler.core.explaining",
    "scaler.scheduler.core.relaying", "scaler.scheduler.views.cluster_view",
    "scaler.scheduler.views.task_pages",
)  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    program = "import sys, scaler.cluster.process; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize("name", UNUSED)
def test_a_local_cluster_begins_without(loaded: set[str], name: str) -> None:
    assert "scaler.agent.shell" in loaded
    assert not [module for module in loaded if module == name or module.startswith(f"{name}.")]


@pytest.mark.parametrize("name", UNUSED)
def test_there_is_such_a_module(name: str) -> None:
    """A name that was changed would be loaded unseen."""
    if name.startswith("scaler"):
        __import__(name)


def _loads(program: str, name: str) -> bool:
    command = [sys.executable, "-c", f"import sys; {program}; print({name!r} in sys.modules)"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    return ran.stdout.strip() == "True"


@pytest.mark.parametrize("name", ["multiprocessing", "tempfile", "scaler.scheduler", "scaler.agent"])
def test_a_program_begins_without(name: str) -> None:
    assert not _loads("from scaler import Executor", name)
    assert _loads("from scaler import Executor", "scaler.client.client")


def test_where_temporary_files_are_is_known_without_the_module_for_them(tmp_path: Path) -> None:
    program = f"from scaler.store.spill import Spiller; Spiller({str(tmp_path)!r}).close()"
    assert not _loads(program, "tempfile")


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_they_are_where_the_environment_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert temporary_root() == tempfile.gettempdir() == "/tmp"
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setenv(name, "here")
    assert temporary_root() == tempfile.gettempdir() == str(tmp_path / "here")


@pytest.mark.parametrize("named", ["nowhere", "file", "program", ""])
def test_a_place_that_is_none_is_passed_over(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "program").touch(0o777)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / named) if named else "")
    assert temporary_root() == tempfile.gettempdir() != str(tmp_path / named)


def test_where_there_is_no_place_for_them_memory_is_or_it_is_said_what_they_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr(directory, "_MEMORY", str(tmp_path))
    assert temporary_root() == str(tmp_path)  # as in a container whose root can't be written
    monkeypatch.setattr(directory, "_MEMORY", "/nowhere")
    with pytest.raises(OSError, match="where objects go that memory has no room for: name one by TMPDIR or as spill"):
        temporary_root()


@pytest.mark.parametrize(
    ("blocks", "files", "left", "is_taken"),
    [(1, 10, 1, True), (1, 0, 0, True), (0, 10, 1, False), (1, 10, 0, False)],
)
def test_a_place_without_room_for_a_file_is_left_to_who_tries_it(
    blocks: int, files: int, left: int, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, and files of those that a file system can have, of which some count none."""
    found = os.statvfs_result((4096, 4096, 100, blocks, blocks, files, left, left, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    monkeypatch.setattr(tempfile, "tempdir", "tried")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_root() == (str(tmp_path) if is_taken else "tried")
