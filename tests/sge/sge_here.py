"""Grid Engine on this machine: a cell of its own in a directory, with one qmaster and one execd that has four slots.

The programs are those of `unpacked.py`. Grid Engine refuses a client whose address has another name than the host says
that it has, and a machine without a network's names is often both HOST and localhost: `host_aliases` makes these one.
"""

import contextlib
import os
import re
import socket
import subprocess

import psutil
import unpacked
from support.programs import Program, environment
from support.waiting import until

from scaler.provisioning.cluster import outward_address

SLOTS = 4
#: seconds between SIGUSR2 and SIGKILL for jobs that asked to be told (`-notify`)
NOTIFY = 10

BOOTSTRAP = """\
admin_user              none
default_domain          none
ignore_fqdn             true
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {common};{spool}
binary_path             {root}/bin
qmaster_spool_dir       {spool}
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""


def why_not():
    """Why there can be no Grid Engine here, in a line; None if there can."""
    if os.getuid():
        return "needs root, as whom jobs run"
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError as error:
        return f"Grid Engine needs an address of this host, {socket.gethostname()}: {error}"
    return unpacked.missing()


class Sge:
    """A whole Grid Engine that ends with the test; its commands and variables are those of this process."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.ip = outward_address()
        self._daemons = []
        (self._programs,) = (unpacked.CACHE / "bin").iterdir()
        for name in ("bin", "lib", "util"):
            (root / name).symlink_to(unpacked.CACHE / name)
        qmaster_port, execd_port = free_ports(2)
        for name, value in {
            "SGE_ROOT": str(root), "SGE_CELL": "default", "SGE_QMASTER_PORT": str(qmaster_port),
            "SGE_EXECD_PORT": str(execd_port), "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        try:
            self._make_cell()
            self._start_qmaster()
            self._start_execd()
        except BaseException:
            self.close()
            raise

    def _make_cell(self):
        common, spool, resources = self.root / "default" / "common", self.root / "qmaster", self.root / "util/resources"
        for path in (common, spool / "job_scripts", self.root / "execd", self.root / "tmp"):
            path.mkdir(parents=True)
        (common / "bootstrap").write_text(BOOTSTRAP.format(root=self.root, common=common, spool=spool))
        (common / "act_qmaster").write_text(f"{socket.gethostname()}\n")
        (common / "host_aliases").write_text(f"{socket.gethostname()} localhost\n")
        configuration = (self.root / "util" / "default-configuration").read_text()
        made = self._file("configuration", configuration, execd_spool_dir=self.root / "execd", min_uid=0, min_gid=0)
        self.run("spoolinit", "classic", "libspoolc", f"{common};{spool}", "init")
        self.run("spooldefaults.bin", "configuration", made)
        self.run("spooldefaults.bin", "complexes", str(resources / "centry"))
        self.run("spooldefaults.bin", "usersets", str(resources / "usersets"))
        self.run("spooldefaults.bin", "managers", "root")

    def _start_qmaster(self):
        self._qmaster = self._start("sge_qmaster")
        until(lambda: self.out("qconf", "-sh"), "qmaster", 30)
        settings = self.out("qconf", "-ssconf")
        self.run("qconf", "-Msconf", self._file(
            "settings", settings, schedule_interval="0:0:1", flush_submit_sec=1, flush_finish_sec=1,
            job_load_adjustments="NONE",
        ))  # fmt: skip

    def _start_execd(self):
        self._start("sge_execd")
        self.host = until(lambda: self.out("qconf", "-sel").strip(), "execd", 30)
        self.run("qconf", "-as", self.host)
        self.run("qconf", "-Ap", str(self.root / "util" / "resources" / "pe" / "smp"))
        self.run("qconf", "-Aq", self._file(
            "queue", self.out("qconf", "-sq"), qname="all.q", hostlist=self.host, load_thresholds="NONE",
            pe_list="smp", slots=SLOTS, notify=f"0:0:{NOTIFY}", tmpdir=self.root / "tmp",
        ))  # fmt: skip

    def _file(self, name, text, **changed):
        """A file of settings, some of them changed."""
        for setting, value in changed.items():
            text, times = re.subn(rf"(?m)^({setting}\s+).*", rf"\g<1>{value}", text)
            assert times == 1, f"{name} has no {setting}:\n{text}"
        path = self.root / name
        path.write_text(text)
        return str(path)

    def _start(self, name):
        command = [str(self._programs / name)]
        made = Program(command, self.root / f"{name}.out", env=environment(SGE_ND="1"))  # stays in the foreground
        self._daemons.append(made)
        return made

    def kill_qmaster(self):
        """`kill -9` of qmaster."""
        self._qmaster.process.kill()
        self._qmaster.process.wait()

    def run(self, *command):
        """Run a command, which has to succeed."""
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"

    def out(self, *command):
        """What a command prints."""
        return subprocess.run(command, capture_output=True, text=True).stdout

    def jobs(self):
        """What `qstat` says of jobs that have not ended, a line for each."""
        return self.out("qstat", "-u", "*", "-g", "d").splitlines()[2:]

    def close(self):
        """End all of it, and the jobs with it: execd leaves them to the next one."""
        for daemon in reversed(self._daemons):
            if daemon.process.poll() is None:
                jobs = psutil.Process(daemon.pid).children(recursive=True)
                daemon.process.kill()
                daemon.process.wait()
                for job in jobs:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        job.kill()


def free_ports(n):
    """Ports that nobody uses."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
