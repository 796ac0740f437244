"""The hosts of a soak and the programs on them, each of which can be killed and started again."""

import contextlib
import os
import random
import sys
from pathlib import Path

import psutil
from support.namespaces import Host, Network
from support.programs import Program, program

from soak.limits import Clocks, MemoryGroup

PORT = 7411
DELAYED = 7412
HERE = Path(__file__).parent
#: bytes of /dev/shm of a host, and of the file system that takes what memory has no room for
SHM, DISK = 192 << 20, 64 << 20
#: how often a row may be lost: hosts die every few seconds here, and at a busy moment what needs them takes as long
LOSSES = 10
#: bytes of memory of a host, /dev/shm included
MEMORY = 3 << 29


class Site:
    """One scheduler, two hosts with agents, two clients, one of them behind a proxy that delays."""

    def __init__(self, directory: Path, seed: int) -> None:
        """Raises OSError where namespaces are not permitted."""
        self.directory = directory
        self.stop_file = directory / "stop"
        self.network = Network(directory)
        self.centre = self.network.host("centre")
        self.hosts = [self.network.host(f"host{n}", shm=SHM) for n in range(2)]
        self.desk = self.network.host("desk")
        self.lot = random.Random(seed)
        self.clocks = Clocks(directory)
        self.groups = [MemoryGroup(f"soak-{os.getpid()}-{n}", MEMORY) for n in range(2)]
        self.scheduler = self._scheduler()
        self.scheduler.says("listens at")
        for number, host in enumerate(self.hosts):
            (directory / f"disk{number}").mkdir()
            self._run(host, "mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(directory / f"disk{number}"))
        self.agents = [self._agent(number) for number in range(2)]
        target = (self.centre.address, str(PORT), "20")
        self.proxy = self.centre.start("delay", sys.executable, str(HERE / "delay.py"), str(DELAYED), *target)
        self.clients = [self._client(number) for number in range(2)]

    def _run(self, host: Host, *command: str) -> None:
        done = host.start("command", *command)
        assert done.ends(10) == 0, done.text

    def _scheduler(self) -> Program:
        command = program("scaler_scheduler", "scheduler")
        command += ["--retries-on-loss", str(LOSSES), f"tcp://{self.centre.address}:{PORT}"]
        return self.centre.start("scheduler", *self.clocks.inside("centre", *command))

    def _agent(self, number: int) -> Program:
        command = [
            *program("scaler_cluster", "cluster"),
            "-n",
            "2",
            "--spill-directory",
            f"{self.directory}/disk{number}",
        ]
        command = self.clocks.inside(f"host{number}", *command, f"tcp://{self.centre.address}:{PORT}")
        return self.hosts[number].start("agent", *self.groups[number].inside(*command))

    def _client(self, number: int) -> Program:
        address = f"tcp://{self.centre.address}:{DELAYED if number else PORT}"
        arguments = (
            address,
            str(self.directory / f"told{number}"),
            str(self.stop_file),
            str(self.lot.randrange(1 << 30)),
        )
        command = self.clocks.inside("desk", sys.executable, str(HERE / "load.py"), *arguments)
        return self.desk.start("client", *command)

    # ---- ends and beginnings ---------------------------------------------------------------------------------------
    def kill_scheduler(self) -> None:
        """Kill -9, and another at the same address."""
        self.scheduler.process.kill()
        self.scheduler.process.wait()
        self.scheduler = self._scheduler()

    def kill_agent(self) -> None:
        """The same of an agent; its workers have to end by themselves."""
        number = self.lot.randrange(2)
        self.agents[number].process.kill()
        self.agents[number].process.wait()
        self.agents[number] = self._agent(number)

    def kill_client(self) -> None:
        """The same of a client; what it waited for is of no use to anybody."""
        number = self.lot.randrange(2)
        self.clients[number].process.kill()
        self.clients[number].process.wait()
        self.clients[number] = self._client(number)

    def revive(self) -> list[tuple[str, int]]:
        """Start agents and clients again that have ended: "agents" or "clients", and the exit status, of each.

        Without the process that starts its workers an agent ends. A client that does has nothing to say for itself.
        """
        agents = [number for number, agent in enumerate(self.agents) if agent.process.poll() is not None]
        ended = [("agents", self.agents[number].process.returncode) for number in agents]
        for number in agents:
            self.agents[number] = self._agent(number)
        clients = [number for number, client in enumerate(self.clients) if client.process.poll() is not None]
        ended += [("clients", self.clients[number].process.returncode) for number in clients]
        for number in clients:
            self.clients[number] = self._client(number)
        return ended

    def kill_worker(self) -> None:
        """A process below an agent: a worker, or the one that starts them."""
        self._kill_one([process for role, process in self.processes() if role in ("worker", "zygote")])

    def kill_young_worker(self) -> None:
        """A worker of the first host: those of the other grow old."""
        self._kill_one([process for role, process in self._below(self.agents[0]) if role == "worker"])

    def _kill_one(self, processes: list[psutil.Process]) -> None:
        if processes:
            self.lot.choice(processes).kill()

    def processes(self) -> list[tuple[str, psutil.Process]]:
        """Scheduler, agents and what is below them, and clients; each with what it is."""
        found: list[tuple[str, psutil.Process]] = []
        roles = [("scheduler", self.scheduler), *(("agent", a) for a in self.agents)]
        for role, made in [*roles, *(("client", c) for c in self.clients)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append((role, psutil.Process(made.pid)))
        for agent in self.agents:
            found += self._below(agent)
        return found

    def _below(self, agent: Program) -> list[tuple[str, psutil.Process]]:
        try:
            below = psutil.Process(agent.pid).children(recursive=True)
            return [("zygote" if child.children() else "worker", child) for child in below]
        except psutil.NoSuchProcess:
            return []

    def files(self) -> int:
        """Files in /dev/shm and on the disks of the hosts."""
        count = 0
        for number, host in enumerate(self.hosts):
            root = Path(f"/proc/{host.pid}/root")
            for place in (root / "dev/shm", Path(f"{root}{self.directory}/disk{number}")):
                count += sum(path.is_file() for path in place.rglob("*"))
        return count

    def close(self) -> None:
        """End everything."""
        self.network.close()
        for group in self.groups:
            group.close()
