"""What agents keep: the files in their stores, and what they say of it."""

import contextlib
import os
import re
import signal
import stat
from pathlib import Path

from support.programs import Program
from support.waiting import until

#: below it are the directories of all stores of this host
ROOT = Path("/dev/shm")


def stores(pid: int | None = None) -> list[Path]:
    """Return the directories of this user's stores, those that are being made or removed too; or of one agent's."""
    prefix = f"scaler-{os.getuid()}-" + (f"{pid}-" if pid is not None else "")
    return [path for path in ROOT.iterdir() if path.name.lstrip(".").startswith(prefix)]


def objects(directory: Path) -> dict[str, int]:
    """Return the sizes of the objects in a store by the names of their files, those that are being written left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if re.fullmatch(r"\d+-[0-9a-f]+", entry.name):
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = entry.stat().st_size
    return found


def objects_of(pid: int, at_least: int = 0) -> list[str]:
    """Return the names of the objects of this size or larger in an agent's store."""
    return [name for store in stores(pid) for name, size in objects(store).items() if size >= at_least]


def file_bytes(directory: Path) -> int:
    """Return the memory that all files below a directory take, whatever they are."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                total += file_bytes(Path(entry.path)) if stat.S_ISDIR(status.st_mode) else status.st_blocks * 512
    return total


def holdings(agent: Program) -> dict[str, int]:
    """Ask an agent what it holds: the number of `objects`, and the bytes of them by the place they are in."""
    said = agent.text.count("Agent: holds ")
    agent.signal(signal.SIGUSR1)
    until(lambda: agent.text.count("Agent: holds ") > said, "the agent's state")
    line = agent.text.rpartition("Agent: holds ")[2].partition("\n")[0]
    counts, _, places = line.partition("; bytes of objects: ")
    found = re.findall(r"(\d[\d,]*) ([a-z]+)", f"{counts}, {places.partition(';')[0]}")
    return {name: int(number.replace(",", "")) for number, name in found}
