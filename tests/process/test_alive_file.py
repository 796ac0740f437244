"""The file by which an agent says that it lives, and the probes of Kubernetes that read it."""

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support import until
from support.programs import environment, program

from scaler.agent import alive_file
from scaler.config import OptionError
from scaler.provisioning import manifests


@pytest.fixture
def probes(tmp_path, monkeypatch):
    """The probes of agents, of a file in a directory of the test: name -> does it succeed?"""
    monkeypatch.setattr(manifests, "ALIVE", str(tmp_path / "alive"))
    pod = manifests.agent_pod(manifests.PodOptions("lab:1"), "lab-1-0", "lab", 1, ["scaler_cluster"], {}, 30)
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["scaler_cluster", "--alive-file", str(tmp_path / "alive")]

    def succeeds(name):
        command = container[f"{name}Probe"]["exec"]["command"]
        assert command[0] == "python"
        return subprocess.run([sys.executable, *command[1:]], capture_output=True).returncode == 0

    return succeeds


def test_an_agent_is_ready_while_it_has_a_scheduler_and_lives_while_it_waits_for_one(daemons, tmp_path, probes):
    file = tmp_path / "alive"
    assert not probes("readiness")
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--alive-file", str(file))
    until(lambda: probes("readiness"))
    assert probes("liveness")
    daemons.scheduler.process.kill()
    daemons.scheduler.process.wait()
    until(lambda: file.read_text() == alive_file.WAITING)
    assert not probes("readiness")
    assert probes("liveness")
    daemons.start_scheduler()
    until(lambda: probes("readiness"))
    agent.signal(signal.SIGTERM)
    agent.ends(20)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("alive")]


def test_an_agent_that_is_stuck_no_longer_lives(daemons, tmp_path, probes):
    file = tmp_path / "alive"
    daemons.start_scheduler()
    agent = daemons.start_agent(1, "--alive-file", str(file))
    long_ago = file.stat().st_mtime - manifests.STALE - 1
    agent.signal(signal.SIGSTOP)
    os.utime(file, (long_ago, long_ago))
    assert not probes("liveness")
    agent.signal(signal.SIGCONT)
    until(lambda: probes("liveness"), "the file to be renewed", 3 * alive_file.INTERVAL)


def test_a_file_that_cannot_be_written_is_said_in_a_line():
    command = [*program("scaler_cluster", "cluster"), "tcp://127.0.0.1:1", "--alive-file", "/nowhere/alive"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=30, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "alive_file cannot be written: No such file or directory: '/nowhere/alive'" in line


def test_on_a_disk_that_is_full_the_file_goes_on_being_written(tmp_path, caplog, monkeypatch):
    path = tmp_path / "alive"
    file = alive_file.AliveFile(str(path))

    def without_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(alive_file, "_open_no_link", without_room)
    for now, is_connected, text in ((0.0, True, alive_file.CONNECTED), (5.0, False, alive_file.WAITING)):
        before = path.stat().st_mtime_ns
        file.renew(is_connected, now)
        assert path.read_text() == text
        assert path.stat().st_mtime_ns > before
    assert not caplog.records
    path.write_text("of somebody else")
    file.renew(True, 10.0)
    assert path.read_text() == "of somebody else"
    assert "cannot be written: No space left on device" in caplog.records[0].getMessage()


def test_a_directory_that_is_gone_later_is_complained_of_once(tmp_path, caplog):
    (tmp_path / "here").mkdir()
    file = alive_file.AliveFile(str(tmp_path / "here" / "alive"))
    Path(tmp_path / "here").rename(tmp_path / "there")
    assert file.renew(True, 0.0) == alive_file.INTERVAL
    file.renew(True, 5.0)
    (record,) = caplog.records
    assert "cannot be written: No such file or directory" in record.getMessage()
    (tmp_path / "there").rename(tmp_path / "here")
    file.renew(True, 12.0)
    assert (tmp_path / "here" / "alive").read_text() == alive_file.CONNECTED


@pytest.fixture
def others(tmp_path):
    """What is no file, by what it is called."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "target").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    kinds = ["directory", "link", "pipe", "socket"]
    with contextlib.suppress(PermissionError):  # as root only
        os.mknod(tmp_path / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        kinds.append("device")
    return kinds


def test_nothing_but_a_file_is_replaced(tmp_path, others):
    before = {path: os.lstat(path).st_ino for path in tmp_path.iterdir()}
    for kind in others:
        with pytest.raises(OptionError, match=f"alive_file names a {kind}, which would be replaced: name a file"):
            alive_file.AliveFile(str(tmp_path / kind))
    assert {path: os.lstat(path).st_ino for path in tmp_path.iterdir()} == before, "and no draft is left"
    assert (tmp_path / "target").read_text() == "kept"


def test_a_program_refuses_it_in_a_line(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    path = str(tmp_path / "link")
    command = [*program("scaler_cluster", "cluster"), "tcp://127.0.0.1:1", "-n", "1", "--alive-file", path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=30, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("scaler_cluster: alive_file names a link")
    assert (tmp_path / "link").is_symlink()


def test_what_takes_the_place_of_the_file_later_is_neither_replaced_nor_removed(tmp_path, caplog):
    path = tmp_path / "alive"
    file = alive_file.AliveFile(str(path))
    path.unlink()
    path.symlink_to(tmp_path / "target")
    file.renew(True, 0.0)
    (record,) = caplog.records
    assert "alive cannot be written: it is a link now" in record.getMessage()
    file.remove()
    assert path.is_symlink()
    path.unlink()
    path.write_text("of somebody else")
    file.remove()
    assert path.read_text() == "of somebody else"


def test_a_file_that_was_there_is_taken_over_and_removed(tmp_path):
    path = tmp_path / "alive"
    path.write_text(alive_file.CONNECTED)
    file = alive_file.AliveFile(str(path))
    assert path.read_text() == alive_file.WAITING
    file.remove()
    assert not path.exists()


def test_a_draft_is_not_written_through_a_link(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / f"alive.{os.getpid()}").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="alive"):
        alive_file.AliveFile(str(tmp_path / "alive"))
    assert (tmp_path / "target").read_text() == "kept"
