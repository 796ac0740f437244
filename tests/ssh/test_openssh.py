"""Real OpenSSH: twenty hosts in network namespaces, each with an sshd of its own. Run by `make test-ssh`, as root."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import until
from support.programs import ROOT, environment, program

from scaler.provisioning.provider import HostTemplate, JobState
from scaler.provisioning.registry import make_provider

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

HOSTS = 20
SSHD = "/usr/sbin/sshd"

CONFIG = """\
Port 22
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
MaxStartups 100
"""

STARTER = """
import json, sys, time
from scaler.provisioning.provider import HostTemplate
from scaler.provisioning.registry import make_provider
told = json.loads(sys.argv[1])
provider = make_provider("ssh", told["options"])
began = time.monotonic()
provider.submit(told["n"], HostTemplate("lab", 1, tuple(told["command"]), environment=told["environment"]))
print("asked", flush=True)
time.sleep(600)
"""


class Lab:
    """A head with the scheduler, and hosts that are reached by ssh alone."""

    def __init__(self, network, directory):
        self.directory = directory
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
        shutil.copy(directory / "user_key.pub", directory / "authorized_keys")
        (directory / "sshd_config").write_text(CONFIG.format(directory=directory))
        self.head = network.host("head", shm=1 << 28)
        self.hosts = [network.host(f"node{number}", shm=1 << 26) for number in range(HOSTS)]
        sshds = [host.start("sshd", SSHD, "-D", "-e", "-f", str(directory / "sshd_config")) for host in self.hosts]
        for sshd in sshds:
            sshd.says("Server listening")
        self.scheduler = self.head.start_scheduler()
        tools = directory / "bin"
        tools.mkdir()
        path = environment()["PYTHONPATH"]
        (tools / "scaler_cluster").write_text(
            f"#!/bin/sh\nPYTHONPATH='{path}' exec {shlex.join(program('scaler_cluster', 'cluster'))} \"$@\"\n"
        )
        (tools / "scaler_cluster").chmod(0o755)
        # the ssh of the head: its network is the labs'
        (tools / "ssh").write_text(f'#!/bin/sh\nexec {" ".join(self.head.inside("ssh"))} "$@"\n')
        (tools / "ssh").chmod(0o755)
        self.command = (str(tools / "scaler_cluster"), self.head.url(), "--workers", "1")
        self.environment = {"SCALER_KEY_FILE": self.key_file()}

    @staticmethod
    def key_file():
        from scaler.transport import load_or_create

        return str(load_or_create().origin)

    def options(self, hosts):
        said = [f"UserKnownHostsFile={self.directory / 'known'}", "StrictHostKeyChecking=accept-new", "LogLevel=ERROR"]
        return {
            "hosts": hosts, "identity": str(self.directory / "user_key"), "python": sys.executable, "ssh_options": said,
            "ssh": str(self.directory / "bin" / "ssh"), "connect_timeout": 3,
        }  # fmt: skip

    def left(self):
        """Processes and files of agents on any host."""
        seen = []
        for host in self.hosts:
            listed = subprocess.run(
                host.inside("sh", "-c", "ls /dev/shm; readlink /proc/self/ns/net"), capture_output=True, text=True
            ).stdout.split()
            *files, space = listed
            seen += [f"{host.name}: {name}" for name in files]
            seen += [f"{host.name}: {line}" for line in processes_of(space)]
        seen += [str(path) for path in Path("/tmp").glob("scaler-ssh-*")]
        return seen


def processes_of(space):
    """Commands of agents and what brings them, in this network namespace."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if os.readlink(path / "ns" / "net") == space:
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if "scaler" in command or "exec(eval" in command:
                        found.append(command[:120])
            except OSError:
                continue
    return found


def test_twenty_hosts_come_and_leave_nothing(network, tmp_path, capsys, caplog):
    if not os.path.exists(SSHD):
        pytest.skip("needs OpenSSH's server (package openssh-server)")
    lab = Lab(network, tmp_path)
    names = [host.address for host in lab.hosts]
    dead = "10.77.0.250"
    provider = make_provider("ssh", lab.options([*names, dead]))
    print(f"\n{provider.describe()}")
    began = time.monotonic()
    provider.submit(HOSTS + 1, HostTemplate("lab", 1, lab.command, environment=lab.environment))
    try:
        until(lambda: sum(job.state is JobState.RUNNING for job in provider.list("lab")) == HOSTS, "ssh", 20)
        near = time.monotonic() - began
        until(lambda: lab.scheduler.text.count(" joined") >= HOSTS, "agents", 20)
        up = time.monotonic() - began
        (job,) = until(lambda: [job for job in provider.list("lab") if job.state is JobState.ENDED])
        assert job.host == dead
        assert [record.getMessage() for record in caplog.records if "ssh:" in record.getMessage()] == [
            f"ssh: {dead}: {job.reason}"
        ]
        began = time.monotonic()
    finally:
        provider.close()
    until(lambda: not lab.left(), "the end of all", 15)
    gone = time.monotonic() - began
    with capsys.disabled():
        print(f"\n{HOSTS} hosts reached in {near:.1f} s, their agents in the cluster after {up:.1f} s")
        print(f"the dead one: {job.host}: {job.reason}")
        print(f"nothing left {gone:.1f} s after the end")
    assert up < 10 * max(1.0, os.getloadavg()[0] / 2)


def test_nothing_is_left_when_the_starting_program_is_killed(network, tmp_path, capsys):
    if not os.path.exists(SSHD):
        pytest.skip("needs OpenSSH's server (package openssh-server)")
    lab = Lab(network, tmp_path)
    names = [host.address for host in lab.hosts]
    told = {"options": lab.options(names), "n": HOSTS, "command": lab.command, "environment": lab.environment}
    with subprocess.Popen([sys.executable, "-c", STARTER, json.dumps(told)], env=environment(), cwd=ROOT) as starter:
        try:
            until(lambda: lab.scheduler.text.count(" joined") >= HOSTS, "agents", 20)
        finally:
            starter.kill()
    began = time.monotonic()
    until(lambda: not lab.left(), "the end of all", 15)
    with capsys.disabled():
        print(f"\nnothing left {time.monotonic() - began:.1f} s after kill -9 of the starting program")
