"""`python -m bench.far`: hosts that are far from each other, beside a plain TCP connection (root on Linux).

Two network namespaces are joined by a wire that keeps each packet for a while. The client, the scheduler and one agent
are in the first one, another agent is in the second one. Prints what a lone task takes there, and a chain of tasks that
pass a value on from agent to agent; before that, what an idle TCP connection takes for as many bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import secrets
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import scaler

MTU = 9000
NEAR, FAR = "10.99.0.1", "10.99.0.2"
#: transfers of a chain
HOPS = 6
#: bytes of its value
SIZE = 20_000_000

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x1, 0x1000
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: str) -> None:
    """This process, which has one thread, is on that host from now on."""
    with open(f"/run/netns/{namespace}") as file:
        if _libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"can't enter the namespace {namespace}")


def _forked(act: Callable[[], object]) -> int:
    """The id of a process that does this."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except KeyboardInterrupt:
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def _end_of_wire(namespace: str, address: str) -> int:
    _enter(namespace)
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", b"far0", _IFF_TUN | _IFF_NO_PI))
    for line in (f"addr add {address}/24 dev far0", f"link set far0 mtu {MTU} txqueuelen 100000 up", "link set lo up"):
        subprocess.run(["ip", *line.split()], check=True)
    return end


def _carry(namespaces: tuple[str, str], delay: float, ready: int) -> None:
    """Be the wire."""
    ends = [_end_of_wire(name, address) for name, address in zip(namespaces, (NEAR, FAR), strict=True)]
    under_way: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    os.write(ready, b"x")
    while True:
        due = min((queue[0][0] for queue in under_way if queue), default=time.monotonic() + 1)
        came = {end for end, _ in poll.poll(max(0.0, 1000 * (due - time.monotonic())))}
        now = time.monotonic()
        for i, end in enumerate(ends):
            with contextlib.suppress(BlockingIOError):
                while end in came:
                    under_way[1 - i].append((now + delay, os.read(end, 1 << 16)))
            with contextlib.suppress(BlockingIOError):
                while under_way[i] and under_way[i][0][0] <= now:
                    os.write(end, under_way[i][0][1])
                    under_way[i].popleft()


@contextlib.contextmanager
def wire(delay: float) -> Iterator[tuple[str, str]]:
    """Two namespaces whose packets to each other take so many seconds."""
    name = f"far-{secrets.token_hex(3)}"
    namespaces = f"{name}a", f"{name}b"
    made: list[str] = []
    pid = 0
    try:
        for each in namespaces:
            subprocess.run(["ip", "netns", "add", each], check=True)
            made.append(each)
        is_ready, ready = os.pipe()
        pid = _forked(lambda: _carry(namespaces, delay, ready))
        os.close(ready)
        if not os.read(is_ready, 1):
            raise SystemExit("bench.far: there is no wire: see above")
        yield namespaces
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for each in made:
            subprocess.run(["ip", "netns", "delete", each], check=False)


def _start(namespace: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", namespace, str(Path(sys.executable).with_name(name)), *arguments]
    return subprocess.Popen([*command, "--log-level", "ERROR"])


def _serve_plainly(namespace: str) -> None:
    _enter(namespace)
    data = bytes(SIZE)
    with socket.create_server((FAR, 5000)) as listener:
        connection, _ = listener.accept()
        while connection.recv(1):
            connection.sendall(data)


def plain(namespaces: tuple[str, str], times: int) -> list[float]:
    """Seconds of each transfer by a TCP connection that has been idle for a second, and had one before."""
    pid = _forked(lambda: _serve_plainly(namespaces[1]))
    seconds: list[float] = []
    try:
        end = time.monotonic() + 10
        while True:
            try:
                connection = socket.create_connection((FAR, 5000), 5)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
        for _ in range(times + 1):
            time.sleep(1)
            begun, left = time.monotonic(), SIZE
            connection.send(b"x")
            while left > 0:
                left -= len(connection.recv(1 << 20))
            seconds.append(time.monotonic() - begun)
        connection.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return seconds[1:]


def make() -> bytes:
    """The value of a chain."""
    return bytes(SIZE)


def pass_on(value: bytes) -> bytes:
    """Another value of as many bytes."""
    return value[1:] + value[:1]


def chain(client: scaler.Client) -> float:
    """Seconds that a value takes through tasks on alternating hosts."""
    near, far = (client.with_options(capabilities=[name]) for name in ("near", "far"))
    begun = time.monotonic()
    value = near.submit(make)
    for i in range(HOPS):
        value = (near if i % 2 else far).submit(pass_on, value)
    near.submit(len, value).result()
    return time.monotonic() - begun


def lone(client: scaler.Client) -> float:
    """Seconds of a task on the far host."""
    begun = time.monotonic()
    client.with_options(capabilities=["far"]).submit(abs, -1).result()
    return time.monotonic() - begun


def measure(delay: float, times: int) -> None:
    """Print a line of figures."""
    with wire(delay) as namespaces:
        _enter(namespaces[0])  # of the process that was forked for this wire
        tcp = statistics.median(plain(namespaces, times))
        address = f"tcp://{NEAR}:2345"
        started = [_start(namespaces[0], "scaler_scheduler", address)]
        try:
            for where, name in zip(namespaces, ("near", "far"), strict=True):
                started.append(_start(where, "scaler_cluster", "-n", "1", "--capabilities", name, address))
            with scaler.Client(address, timeout=30) as client:
                chain(client)  # finds out who is there, and opens connections
                lones = [lone(client) for _ in range(5 * times)]
                chains = [chain(client) for _ in range(times)]
        finally:
            for program in reversed(started):
                program.terminate()
                program.wait(30)
    together = statistics.median(chains)
    print(
        f"{1000 * delay:6.0f} ms {1000 * statistics.median(lones):9.0f} ms {tcp:10.2f} s {together:10.2f} s "
        f"{together / (HOPS * tcp):6.2f}x",
        flush=True,
    )


def main() -> None:
    """Measure each delay in a process of its own, which changes its network namespace."""
    parser = argparse.ArgumentParser(prog="python -m bench.far", description=__doc__)
    parser.add_argument("--delays", type=float, nargs="+", default=[0, 20, 100], help="one way, ms")
    parser.add_argument("--times", type=int, default=3, help="chains (default: 3)")
    told = parser.parse_args()
    if os.geteuid():
        raise SystemExit("bench.far: only root can make network namespaces")
    print(f"{'one way':>9} {'lone task':>12} {'20 MB by TCP':>12} {f'chain of {HOPS}':>12} {'of TCP':>7}")
    sys.stdout.flush()
    for delay in told.delays:
        _, status = os.waitpid(_forked(partial(measure, delay / 1000, told.times)), 0)
        if status:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
