"""A container as plain processes: namespaces of its own, the files of this machine, of the image its PATH.

What is like a real one: an address, a /dev/shm of 64 MB, an empty /tmp and /run, a process table in which its command
has number 1, the environment that its pod says and nothing else, names of services, files of volumes. What is not: it
sees and may write all other files of this machine, and nobody limits its memory.
"""

import asyncio
import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

#: what the first line of a network is like: the bridge, and its address in it
BRIDGE, GATEWAY = "pods", "10.88.0.1"
ROOT = Path(__file__).parents[2]
#: by this variable tests find what has begun in them
MARK = "SCALER_TEST_MARK"
_PR_SET_PDEATHSIG = 1

START = """\
read go
set -e
mount --bind {place}/resolv.conf /etc/resolv.conf
mount --bind {hosts} /etc/hosts
mount -t tmpfs -o size=64m tmpfs /dev/shm
mount -t tmpfs tmpfs /run
{volumes}
{keep}
mount --rbind {place}/tmp /tmp
hostname {name}
ip link set lo up
ip link set eth0 up
ip address add {address}/16 dev eth0
ip route add default via {gateway}
cd /tmp
exec {command} </dev/null
"""


class Container:
    """One run of a container's command."""

    def __init__(self, place: Path, image: Path, hosts: Path) -> None:
        """Its files are in `place`, which is made; names of services are in the file `hosts`."""
        shutil.rmtree(place, ignore_errors=True)
        (place / "tmp").mkdir(parents=True)
        self._place, self._image, self._hosts = place, image, hosts
        self._environment: dict[str, str] = {}
        self._process: asyncio.subprocess.Process

    async def start(
        self, command: list[str], environment: dict[str, str], volumes: dict[str, Path], name: str, address: str,
        cable: str, log: Path,
    ) -> None:  # fmt: skip
        """Run the command; `volumes` are directories by where they are to be seen."""
        place = self._place
        self._environment = {"PATH": f"{self._image}:/usr/bin:/bin", "HOME": "/tmp", "HOSTNAME": name, **environment}
        if MARK in os.environ:
            self._environment[MARK] = os.environ[MARK]
        (place / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        keep = []
        for kept in (ROOT, Path(sys.prefix), Path(sys.base_prefix), self._image, self._image.with_name("shared")):
            if kept.is_relative_to("/tmp"):
                there = place / "tmp" / kept.relative_to("/tmp")
                keep.append(f"mkdir -p {there} && mount --rbind {kept} {there}")
        shown = [f"mkdir -p {at} && mount --bind {source} {at}" for at, source in volumes.items()]
        (place / "start.sh").write_text(
            START.format(
                place=place, hosts=self._hosts, keep="\n".join(keep), volumes="\n".join(shown), name=name,
                address=address, gateway=GATEWAY, command=shlex.join(self._with_environment(command)),
            )
        )  # fmt: skip
        with log.open("ab") as file:
            self._process = await asyncio.create_subprocess_exec(
                "unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--propagation", "private", "--fork",
                "--kill-child", "--mount-proc", "sh", str(place / "start.sh"),
                stdin=asyncio.subprocess.PIPE, stdout=file, stderr=file, preexec_fn=_die_with_the_kubelet,
            )  # fmt: skip
        await self._is_apart()
        # the same hardware address for the same address: neighbours remember it
        numbers = "".join(f":{int(part):02x}" for part in address.split("."))
        await _run(
            "ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "address", f"02:00{numbers}",
            "netns", str(self._process.pid),
        )  # fmt: skip
        await _run("ip", "link", "set", cable, "master", BRIDGE, "up")
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()

    async def _is_apart(self) -> None:
        """Wait until it has left this network."""
        here = os.readlink("/proc/self/ns/net")
        for _ in range(6000):
            if self._process.returncode is not None or os.readlink(f"/proc/{self._process.pid}/ns/net") != here:
                return
            await asyncio.sleep(0.005)
        raise OSError("unshare has not begun for half a minute")

    def _with_environment(self, command: list[str]) -> list[str]:
        return ["env", "-i", *(f"{name}={value}" for name, value in self._environment.items()), *command]

    @property
    def _first(self) -> int | None:
        """The process with number 1 in there."""
        with contextlib.suppress(OSError, ValueError):
            return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])
        return None

    def signal(self, number: int) -> None:
        """Send its first process a signal."""
        pid = self._first
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def wait(self) -> int:
        """Its exit code, as Kubernetes counts it, when it has ended."""
        code = await self._process.wait()
        return 128 - code if code < 0 else code

    async def stop(self, grace: float) -> int:
        """Have it end: with SIGTERM, and with SIGKILL after `grace` seconds."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.wait(), grace)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self.wait()

    async def exec(self, command: list[str], seconds: float) -> bool:
        """Say whether a command ends well in there, in time."""
        pid = self._first
        if pid is None:
            return False
        process = await asyncio.create_subprocess_exec(
            "nsenter", "--target", str(pid), "--all", *self._with_environment(command),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=_die_with_the_kubelet,
        )  # fmt: skip
        try:
            return await asyncio.wait_for(process.wait(), seconds) == 0
        except TimeoutError:
            return False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _die_with_the_kubelet() -> None:
    """In the child: the kernel kills it when the thread that started it ends, the kubelet's only one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    if process.returncode:
        raise OSError(f"{shlex.join(command)}: {errors.decode().strip()}")
