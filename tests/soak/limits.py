"""What a soak changes under its hosts' programs: how much memory they may have, and what time it is."""

import contextlib
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_CLOCK = Path(__file__).with_name("clock.c")


class MemoryGroup:
    """A control group whose programs may have so much memory together; of either kind of kernel."""

    def __init__(self, name: str, limit: int) -> None:
        """Raises OSError where this is not permitted."""
        is_old = (_ROOT / "memory/memory.limit_in_bytes").exists()
        self._directory = _ROOT / "memory" / name if is_old else _ROOT / name
        self._limit_file = "memory.limit_in_bytes" if is_old else "memory.max"
        self._usage_file = "memory.usage_in_bytes" if is_old else "memory.current"
        self._limit = limit
        self._directory.mkdir()
        self._set(limit)

    @property
    def killed(self) -> int:
        """How many of its processes the kernel has killed for their memory."""
        for name in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError):
                for line in (self._directory / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def inside(self, *command: str) -> list[str]:
        """The command line that runs this in here."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._directory / "cgroup.procs"), *command]

    def squeeze(self, room: int, seconds: float) -> None:
        """For so long there is only so much room beside what is used."""
        try:
            self._set(int((self._directory / self._usage_file).read_text()) + room)
            time.sleep(seconds)
        finally:
            self._set(self._limit)

    def _set(self, limit: int) -> None:
        with contextlib.suppress(OSError):  # more was taken meanwhile
            (self._directory / self._limit_file).write_text(str(limit))

    def close(self) -> None:
        """Remove it; its processes have ended."""
        with contextlib.suppress(OSError):
            self._directory.rmdir()


class Clocks:
    """The time of day, as programs of each host see it. Without a C compiler it is that of the machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock.so"
        compiler = shutil.which("cc")
        self.are_there = compiler is not None
        if compiler is not None:
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", self._library, _CLOCK], check=True)

    def inside(self, host: str, *command: str) -> list[str]:
        """The command line that runs this with the clock of that host."""
        if not self.are_there:
            return list(command)
        path = self._directory / f"clock-{host}"
        if not path.exists():
            path.write_bytes(struct.pack("=q", 0))
        return ["env", f"LD_PRELOAD={self._library}", f"SOAK_CLOCK={path}", *command]

    def jump(self, host: str, seconds: int) -> None:
        """From now on that host's clock is off by so much."""
        with open(self._directory / f"clock-{host}", "r+b") as file:
            os.pwrite(file.fileno(), struct.pack("=q", seconds), 0)
