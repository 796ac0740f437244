"""Slurm on this machine: one slurmctld, several slurmd that say that they are hosts of their own."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from support.waiting import until

from scaler.provisioning.cluster import outward_address

NODES, CORES = 4, 2
FIRST_PORT, CONTROLLER_PORT = 17001, 17100

CONF = """\
ClusterName=here
SlurmctldHost={host}({ip})
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType={auth}
{auth_info}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
MinJobAge=300
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=60
JobAcctGatherType=jobacct_gather/none
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr={ip} Port=[{first}-{last}] CPUs={cores} State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


class Slurm:
    """A whole Slurm that ends with the test."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.host, self.ip = socket.gethostname().partition(".")[0], outward_address()
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.controller: subprocess.Popen[bytes]
        (place / "state").mkdir()
        (place / "run").mkdir(mode=0o755)
        place.chmod(0o755)
        key = place / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        munge = place / "run" / "munge.socket"
        self._start([
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}", "--num-threads=4",
            f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log", f"--seed-file={place}/munged.seed",
        ])  # fmt: skip
        until(munge.exists, "munged")
        self.conf = place / "slurm.conf"
        self.conf.write_text(
            CONF.format(
                host=self.host, ip=self.ip, controller=CONTROLLER_PORT, user="root", auth="auth/munge",
                auth_info=f"AuthInfo=socket={munge}", place=place, nodes=NODES, first=FIRST_PORT,
                last=FIRST_PORT + NODES - 1, cores=CORES,
            )
        )  # fmt: skip
        for n in range(1, NODES + 1):
            (place / f"spool-n{n}").mkdir()
        os.environ["SLURM_CONF"] = str(self.conf)
        self.start_controller()
        for n in range(1, NODES + 1):
            self._start(["slurmd", "-D", "-N", f"n{n}", "-f", str(self.conf)])
        until(lambda: self.out("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(NODES), "idle nodes", 30)

    def start_controller(self) -> None:
        """Start slurmctld, again after it was killed."""
        self.controller = self._start(["slurmctld", "-D", "-f", str(self.conf)])

    def kill_controller(self) -> None:
        """`kill -9` of slurmctld."""
        self.controller.kill()
        self.controller.wait()

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        path = shutil.which(command[0], path=f"/usr/sbin:/sbin:{os.environ['PATH']}")
        assert path, f"{command[0]} is not installed: make test-slurm does that"
        log = (self.place / f"{command[0]}.out").open("ab")
        made = subprocess.Popen([path, *command[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self._daemons.append(made)
        return made

    def out(self, *command: str) -> str:
        """What a command prints."""
        return subprocess.run(command, capture_output=True, text=True).stdout

    def jobs(self, states: str = "PENDING,RUNNING,COMPLETING,CONFIGURING") -> list[str]:
        """Ids of jobs in these states, with the names of jobs."""
        return self.out("squeue", "-h", "-r", f"--states={states}", "-o", "%i %j").splitlines()

    def close(self) -> None:
        """End all of it, and the jobs with it."""
        if self.controller.poll() is None:
            left = [line.split()[0] for line in self.jobs()]
            if left:
                subprocess.run(["scancel", *left], capture_output=True)
                end = time.monotonic() + 15
                while self.jobs() and time.monotonic() < end:
                    time.sleep(0.1)
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        os.environ.pop("SLURM_CONF", None)
