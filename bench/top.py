"""What scaler_top costs with many workers: `python -m bench.top [AGENTS] [WORKERS] [SECONDS]`.

The program runs in a terminal of 120x40 of its own and is given encoded snapshots, a new one each second, as its
connection would give them; snapshots are synthetic. Measured from outside: keys until the frame that shows what they
did, the processor that it takes while nobody presses any, and its memory.
"""

import fcntl
import os
import pty
import re
import select
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from itertools import cycle
from pathlib import Path

from bench.synthetic import SyntheticCluster
from scaler.monitor.reading import decoded
from scaler.protocol.codec import decode, encode
from scaler.protocol.codes import Frame
from scaler.protocol.messages import Snapshot as SnapshotMessage
from scaler.protocol.messages.worker_columns import COLUMNS as COLUMNS_OF_WORKERS
from scaler.protocol.views import encode_view

COLUMNS, LINES = 120, 40
#: what is typed, and what the frame shows that it leads to
KEYS = [
    ("m", "[rss]"), ("w", "[sent]"), ("n", "[worker]"), ("C", "[agt_cpu]"), ("l", "[lag]"), ("q", "[queued]"),
    ("2", "[host_cpu]"), ("3", "[running]"), ("5", "[size]"), ("1", "[queued]"), ("F", "[function]"),
    ("/", "filter: "), ("h", "filter: h"), ("o", "filter: ho"), ("\x7f", "filter: h"), ("\x15", "filter: "),
    ("1", "filter: 1"), ("2", "filter: 12"), ("\x1b", ""), ("c", "[cpu]"),
]  # fmt: skip
ROUNDS = 15
#: snapshots that follow each other, again and again
DIFFERENT = 3


def write(agents: int, workers: int, directory: Path) -> None:
    """Encoded snapshots, each in a file for each of its frames."""
    cluster = SyntheticCluster(agents, workers)
    for n in range(DIFFERENT):
        snapshot = cluster.snapshot()
        all_of = [getattr(snapshot.workers, column) for column in COLUMNS_OF_WORKERS]
        of_agents = [column[at : at + workers] for at in range(0, agents * workers, workers) for column in all_of]
        message = SnapshotMessage(n + 1, [encode_view(snapshot.view), b"".join(of_agents)])
        for part, frame in enumerate(encode(message)):
            (directory / f"{n}.{part}").write_bytes(frame)


def show(directory: Path) -> None:
    """In the terminal: scaler_top, with a thread in the place of its connection."""
    from scaler.monitor import Seen
    from scaler.monitor.top.app import TopApp

    app = TopApp("tcp://127.0.0.1:2345")

    def feed() -> None:
        for version, n in enumerate(cycle(range(DIFFERENT)), 1):
            frames: list[Frame] = [path.read_bytes() for path in sorted(directory.glob(f"{n}.*"))]
            message = decode(frames).message
            assert isinstance(message, SnapshotMessage)
            app.arrived(Seen(decoded(message), True, time.time(), "", version))
            time.sleep(1.0)

    threading.Thread(target=feed, daemon=True).start()
    app.run()


class Terminal:
    """The program in a terminal, seen from outside."""

    def __init__(self, directory: Path) -> None:
        self.said = b""  # when it was last waited for in vain
        self.pid, self._end = pty.fork()
        if not self.pid:
            os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
            os.execv(sys.executable, [sys.executable, "-m", "bench.top", "--show", str(directory)])
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

    def read(self, marker: str, seconds: float) -> float | None:
        """Seconds until the terminal was sent this; None if it was not."""
        began, said = time.perf_counter(), b""
        while (left := began + seconds - time.perf_counter()) > 0:
            if select.select([self._end], [], [], left)[0]:
                said += os.read(self._end, 1 << 16)
                if marker and marker.encode() in re.sub(rb"\x1b\[[\d;]*m", b"", said):
                    return time.perf_counter() - began
        self.said = said
        return None

    def press(self, key: str) -> None:
        """Type it."""
        os.write(self._end, key.encode())

    def cpu(self) -> float:
        """Seconds of processor that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> tuple[int, int]:
        """Now, and at most, MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, most = (re.search(rf"{name}:\s+(\d+)", status) for name in ("VmRSS", "VmHWM"))
        assert now is not None
        assert most is not None
        return int(now[1]) >> 10, int(most[1]) >> 10


def main(agents: int, workers: int, seconds: float) -> None:
    """Print it."""
    with tempfile.TemporaryDirectory() as name:
        write(agents, workers, Path(name))
        terminal = Terminal(Path(name))
        assert terminal.read("Total", 60) is not None, terminal.said[-2000:].decode()
        terminal.read("", 3)
        taken, began = terminal.cpu(), time.perf_counter()
        terminal.read("", seconds)
        share = (terminal.cpu() - taken) / (time.perf_counter() - began)
        times: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for key, marker in KEYS:
                terminal.press(key)
                took = terminal.read(marker, 5 if marker else 0.5)
                if marker:
                    assert took is not None, f"{key!r} did not lead to {marker!r}"
                    times.setdefault(f"{key!r} {marker}", []).append(1000 * took)
                terminal.read("", 0.03)
        now, most = terminal.memory()
        terminal.press("Q")
        os.waitpid(terminal.pid, 0)
    everything = sorted(took for each in times.values() for took in each)
    print(f"{agents} agents x {workers} workers, {COLUMNS}x{LINES}, a snapshot a second")
    print(f"idle: {share:.1%} of a core over {seconds:g} s; memory {now} MiB, at most {most} MiB")
    p95 = everything[int(0.95 * len(everything))]
    print(f"key to frame, {len(everything)} keys: p50 {statistics.median(everything):.1f} ms, p95 {p95:.1f} ms, "
          f"max {everything[-1]:.1f} ms")  # fmt: skip
    for key, each in times.items():
        print(f"  {key:<24} p50 {statistics.median(each):6.1f} ms, max {max(each):6.1f} ms")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--show"]:
        show(Path(sys.argv[2]))
    else:
        given = sys.argv[1:]
        main(int(given[0]) if given else 1000, int(given[1]) if given[1:] else 64, float(given[2]) if given[2:] else 20)
