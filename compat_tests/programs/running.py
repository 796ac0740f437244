"""One program in a process of its own: its results, how long it took, and what it left behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
#: seconds for a program; and after its end until all its processes and files have to be gone
PROGRAM_SECONDS, PATIENCE = 300, 10
_SHARED_MEMORY = Path("/dev/shm")
#: is in the environment of all processes of a run
_MARK = "COMPAT_PROGRAM_RUN"


@dataclass
class Outcome:
    """What became of a program."""

    seconds: float = 0.0
    results: dict[str, Any] | None = None
    #: a line each
    problems: list[str] = field(default_factory=list)


def run(name: str, text: str) -> Outcome:
    """Run a program's text as a script; blocks until it and its processes have ended, or were ended."""
    outcome, mark = Outcome(), uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="compat-") as directory:
        script, scratch = Path(directory, f"{name}.py"), Path(directory, "tmp")
        script.write_text(text)
        scratch.mkdir()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        # one thread for linear algebra, since all engines use a worker for each core
        environment = {
            **os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1", _MARK: mark,
        }  # fmt: skip
        before = _shared_files()
        began = time.monotonic()
        with Path(directory, "output").open("w+") as output, Path(directory, "errors").open("w+") as errors:
            process = subprocess.Popen(
                [sys.executable, str(script)], cwd=directory, env=environment, stdout=output, stderr=errors
            )
            try:
                code = process.wait(PROGRAM_SECONDS)
                outcome.seconds = time.monotonic() - began
                output.seek(0)
                errors.seek(0)
                lines, errors_text = output.read().splitlines(), errors.read()
                if code:
                    outcome.problems.append(f"exit code {code}: {_end_of(errors_text)}")
                else:
                    outcome.results = json.loads(lines[-1])
            except subprocess.TimeoutExpired:
                outcome.seconds = time.monotonic() - began
                outcome.problems.append(f"not over after {PROGRAM_SECONDS} s")
                process.kill()
                process.wait()
            except (IndexError, ValueError) as error:
                outcome.problems.append(f"printed no results: {error!r}")
        outcome.problems += _left_behind(mark, before, scratch)
    return outcome


def _end_of(errors: str) -> str:
    """The last lines of a traceback."""
    return " | ".join([line.strip() for line in errors.splitlines() if line.strip()][-3:])


def _left_behind(mark: str, before: set[str], scratch: Path) -> list[str]:
    """Wait for the end of the run's processes and files; those that are still there are named, and ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        processes = [process for process in psutil.process_iter() if _is_of(process, mark)]
        files = [] if processes else [name for name in _shared_files() - before if not _is_in_use(name)]
        # those of other engines go with the directory
        files += [] if processes else [f"{entry.name} in TMPDIR" for entry in scratch.glob("scaler*")]
        if not processes and not files:
            return []
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    problems = []
    for process in processes:
        try:
            problems.append(f"left process {process.pid}: {' '.join(process.cmdline())[:80]}")
            process.kill()
        except psutil.NoSuchProcess:
            pass
    return problems + [f"left file {name}" for name in sorted(files)]


def _is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark)
    except (psutil.Error, OSError):  # it ended, or is another user's
        return False


def _shared_files() -> set[str]:
    """The directories of stores in shared memory. Other programs' files come and go there, too."""
    return {entry.name for entry in _SHARED_MEMORY.glob("scaler-*")}


def _is_in_use(name: str) -> bool:
    """Whether a store is that of a process that lives, whose number is in its name: all of the run have ended."""
    number = name.split("-")[2]
    return number.isdecimal() and psutil.pid_exists(int(number))


def differences(expected: Any, found: Any, where: str = "results") -> list[str]:
    """Where two results differ, a line each: floats by more than 1e-9 of their size, everything else at all."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [line for key in expected for line in differences(expected[key], found[key], f"{where}[{key!r}]")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for n, (a, b) in pairs for line in differences(a, b, f"{where}[{n}]")]
    if type(expected) is float and type(found) is float:
        same = math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12) or (expected != expected and found != found)
    else:
        same = type(expected) is type(found) and expected == found
    return [] if same else [f"{where} is {str(found)[:60]}, and {str(expected)[:60]} under threads"]
