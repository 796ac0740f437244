"""Hosts that are apart, on one machine: each has a network, a /dev/shm and a host name of its own.

A host is a process that does nothing but hold its namespaces (network, mount, UTS); programs enter them. A wire is a
bridge, and all bridges are in one more such process, the switch. Nothing of it shows outside, and all of it ends with
the process of the test, however that ends: the holders read the end of file, and the kernel removes what they held.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from support.programs import Program, environment, program
from support.waiting import until

#: bytes of the /dev/shm of a host
SHM = 2 << 30
#: seconds that a command about the network may take
_PATIENCE = 10.0
_TOOLS = ("ip", "mount", "nsenter", "unshare")


class Holder:
    """A process that keeps namespaces alive for as long as this one has the other end of its input."""

    def __init__(self, name: str, shm: int) -> None:
        self.name = name
        made = [f"mount -t tmpfs -o size={shm} tmpfs /dev/shm", f"hostname {name}", "ip link set lo up", "echo made"]
        apart = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
        self._process = subprocess.Popen(
            [*apart, "sh", "-c", " && ".join([*made, "exec cat"])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.pid = self._process.pid
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if said != b"made\n":
            said += self._process.stdout.read()
            self.close()
            raise OSError(f"no namespaces for {name}: {said.decode(errors='replace').strip()}")

    def inside(self, *command: str) -> list[str]:
        """Return the command line that runs this in here."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--", *command]

    def ip(self, *lines: str) -> None:
        """Have `ip` do this in here, a line after the other."""
        done = subprocess.run(
            self.inside("ip", "-batch", "-"), input="\n".join(lines), capture_output=True, text=True, timeout=_PATIENCE
        )
        if done.returncode:
            raise OSError(f"{self.name}: ip said {done.stderr.strip()!r} to {lines}")

    def close(self) -> None:
        """Let go of the namespaces."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Host(Holder):
    """A host, the programs on it, and its ends of wires, eth0, eth1, ... in the order of the wires."""

    def __init__(self, name: str, shm: int, directory: Path) -> None:
        super().__init__(name, shm)
        self._directory = directory
        self._programs: list[Program] = []
        #: its address on each wire
        self.addresses: dict[str, str] = {}
        #: where the scheduler that runs here listens
        self.port = 0

    @property
    def address(self) -> str:
        """On its first wire."""
        return next(iter(self.addresses.values()))

    def start(self, name: str, *command: str) -> Program:
        """Run a command here, and look no further."""
        output = self._directory / f"{self.name}_{len(self._programs)}_{name}.log"
        made = Program(self.inside(*command), output, env=environment())
        self._programs.append(made)
        return made

    def start_scheduler(self, *options: str, port: int = 0) -> Program:
        """Start a scheduler that listens on all wires, at this port or at a free one; returns when it does."""
        command = program("scaler_scheduler", "scheduler")
        made = self.start("scheduler", *command, *options, f"tcp://0.0.0.0:{port}")
        self.port = int(made.says(r"listens at tcp://0\.0\.0\.0:(\d+)")[1])
        return made

    def url(self, wire: str | None = None) -> str:
        """Where the scheduler that runs here is found."""
        return f"tcp://{self.addresses[wire] if wire else self.address}:{self.port}"

    def start_agent(self, scheduler: str, workers: int = 1, *options: str) -> Program:
        """Start an agent; returns when it is connected and its workers have started."""
        agent = self.start("agent", *program("scaler_cluster", "cluster"), "-n", str(workers), *options, scheduler)
        agent.says("connected to the scheduler")
        agent.says(rf"Worker\[{workers - 1}\] started")
        return agent

    def start_script(self, text: str, *arguments: str) -> Program:
        """Run a script, as a user on this host would."""
        path = self._directory / f"{self.name}_{len(self._programs)}.py"
        path.write_text(textwrap.dedent(text))
        return self.start("script", sys.executable, str(path), *arguments)

    def move(self, address: str) -> None:
        """Have another address on the first wire from now on; connections of the one before hear nothing any more."""
        wire, before = next(iter(self.addresses.items()))
        self.addresses[wire] = address
        self.ip(f"address del {before}/24 dev eth0", f"address add {address}/24 dev eth0")

    def sent_bytes(self, interface: str = "eth0") -> int:
        """Return what has left through an interface, headers included."""
        with open(f"/proc/{self.pid}/net/dev") as file:
            (counts,) = [line.partition(":")[2].split() for line in file if line.strip().startswith(f"{interface}:")]
        return int(counts[8])

    def ports(self) -> set[int]:
        """Where programs of this host listen."""
        with open(f"/proc/{self.pid}/net/tcp") as file:
            rows = [line.split() for line in file][1:]
        return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}

    def reaches(self, other: str) -> bool:
        """Say whether there is a route to this address."""
        found = subprocess.run(self.inside("ip", "route", "get", other), capture_output=True, timeout=_PATIENCE)
        return found.returncode == 0

    def cut(self, other: "Host") -> None:
        """From now on nothing passes between the two, and nobody says so."""
        for one, address in ((self, other.address), (other, self.address)):
            one.ip(f"route add blackhole {address}/32")

    def mend(self, other: "Host") -> None:
        """End what `cut` began."""
        for one, address in ((self, other.address), (other, self.address)):
            one.ip(f"route del blackhole {address}/32")

    def close(self) -> None:
        """End all its programs, then the host."""
        for running in reversed(self._programs):
            running.stop()
        super().close()


class Network:
    """The hosts of one test, and the wires between them."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError where this is not permitted."""
        self._directory = directory
        self._hosts: list[Host] = []
        #: how many hosts there are on each wire
        self._wires: dict[str, int] = {}
        self._ports = 0
        self._switch = Holder("switch", 1 << 20)

    def host(self, name: str, wires: Iterable[str] = ("lan",), shm: int = SHM) -> Host:
        """Return a new host on these wires; nothing is forwarded from one to another."""
        made = Host(name, shm, self._directory)
        self._hosts.append(made)
        for number, wire in enumerate(wires):
            self._plug(made, wire, f"eth{number}")
        return made

    def _plug(self, host: Host, wire: str, interface: str) -> None:
        if wire not in self._wires:
            self._switch.ip(f"link add {wire} type bridge", f"link set {wire} up")
            self._wires[wire] = 0
        self._wires[wire] += 1
        self._ports += 1
        port, address = f"port{self._ports}", f"10.77.{list(self._wires).index(wire)}.{self._wires[wire]}"
        self._switch.ip(
            f"link add {port} type veth peer name {interface} netns {host.pid}",
            f"link set {port} master {wire} up",
        )
        host.ip(f"address add {address}/24 dev {interface}", f"link set {interface} up")
        host.addresses[wire] = address

    def close(self) -> None:
        """End all programs and hosts."""
        for host in reversed(self._hosts):
            host.close()
        self._switch.close()


@functools.cache
def why_not() -> str | None:
    """Return why there can be no hosts of their own here; None if there can."""
    if sys.platform != "linux":
        return "network namespaces are a thing of Linux"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)} (packages iproute2 and util-linux)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    try:
        with contextlib.closing(Network(Path("/nonexistent"))) as network:
            host = network.host("probe")
            until(lambda: host.reaches("10.77.0.2"), "a route to appear", 2.0)
    except (OSError, AssertionError) as error:
        return f"network namespaces are not permitted here: {error}"
    return None
