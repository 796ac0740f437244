"""What daemons load in their first seconds, so that nothing is looked for on disk when a message is dealt with."""

import ast
import functools
import json
import logging
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaler.common.later_modules import AGAIN, ATTEMPTS, FIRST, OVERDUE, PAUSE, LaterModules

ROOT = Path(__file__).parents[2] / "scaler"
#: modules that are loaded where they are needed, and why that does no harm
EXPECTED = {
    "uvloop": "at the start, if it was asked for",
    "zmq": "at the start, where keys are made",
    "scaler.transport.zeromq": "at the start, with the first address of tcp",
    "scaler.common.validating": "at the start, if it was asked for",
    "scaler.common.amounts": "at the start, if bytes or seconds are given as a text",
    "scaler.scheduler.copies.copies": "at the start, if there is a journal",
    "http.client": "soon after the start, by a thread, if a service is asked for notices",
    "urllib.error": "as http.client",
    "urllib.request": "as http.client",
    "cloudpickle": "at the start, where its version is told",
    "logging.config": "at the start, if there is a file for it",
    "threadpoolctl": "one that is not there is done without",
    "multiprocessing": "when a worker starts",
    "tempfile": "Python's own: when a zygote ends, or at the start",
    "shutil": "Python's own: when a store is removed that another has left behind",
    "scaler.agent.zygote": "at the start of another zygote, with all that it needs",
    "ctypes": "when a worker starts",
    "html": "in notebooks only",
}

#: of the scheduler in a local cluster, which keeps no journal and is none of a pair
_UNPAIRED = {
    "scaler.journal.journal", "scaler.journal.directory", "scaler.scheduler.jobs.contained",
    "scaler.scheduler.jobs.jobs_core", "scaler.scheduler.jobs.result_files", "scaler.scheduler.partner_link",
    "scaler.scheduler.durable_jobs", "scaler.scheduler.jobs_opener", "scaler.scheduler.pairing",
    "scaler.scheduler.partner", "scaler.scheduler.succession",
}  # fmt: skip

_PROCESSES = {
    "scheduler": (
        "scaler.cli.scheduler scaler.scheduler.server scaler.transport.zeromq",
        "from scaler.scheduler.later import LATER, OF_PAIRS, OF_JOURNALS, OF_RESULT_FILES;"
        "names = LATER + OF_PAIRS + OF_JOURNALS + OF_RESULT_FILES",
    ),
    "agent": (
        "scaler.cli.cluster scaler.agent.daemon scaler.transport.zeromq",
        "from scaler.agent.later import LATER as names",
    ),
    "local cluster": (
        "scaler.cluster.process scaler.transport.unix",
        "from scaler.agent.later import LATER as a; from scaler.scheduler.later import LATER as s; names = s + a",
    ),
    "worker": (
        "scaler.agent.zygote",
        "from scaler.worker.worker_process import LATER as names",
    ),
}  # fmt: skip
_PROGRAM = """
import importlib, json, sys
for name in {first!r}.split():
    importlib.import_module(name)
{names}
steps = []
for name in names:
    before = set(sys.modules)
    importlib.import_module(name)
    steps.append((name, [module for module in sys.modules if module not in before]))
files = {{name: module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "scaler"}}
print(json.dumps([steps, sorted(sys.modules), files]))
"""


@functools.cache
def _look(process: str) -> tuple[list[tuple[str, list[str]]], set[str], dict[str, str]]:
    first, names = _PROCESSES[process]
    program = _PROGRAM.format(first=first, names=names)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    steps, loaded, files = json.loads(ran.stdout)
    return steps, set(loaded), files


def _late(path: str) -> Iterator[tuple[str, list[str]]]:
    """What functions in a file import: a place, and the modules that it may be (a name may be one, or be in one)."""
    tree = ast.parse(Path(path).read_text())
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            where = f"{Path(path).relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield where, [alias.name]
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    is_module = (ROOT.parent / inner.replace(".", "/")).with_suffix(".py").exists()
                    yield where, [inner] if is_module else [node.module]


def _runs_in(process: str, path: str) -> bool:
    """Whether functions of a module that a process has loaded may be called there: a zygote is forked off others."""
    where = Path(path).relative_to(ROOT)
    if where.name == "__init__.py" or where.parts[0] == "cli":  # names that programs ask for, and where they begin
        return False
    return process == "worker" or where.parts[0] != "worker"


@pytest.mark.parametrize("process", _PROCESSES)
def test_what_a_process_needs_later_is_loaded_early(process: str) -> None:
    _, loaded, files = _look(process)
    assert len(files) > 20
    missing = [
        (where, name)
        for path in files.values()
        if _runs_in(process, path)
        for where, names in _late(path)
        for name in names
        if name not in loaded and name not in EXPECTED and not (process == "local cluster" and name in _UNPAIRED)
    ]
    assert not missing


def test_the_search_finds_what_is_imported_in_functions() -> None:
    found = [name for _, names in _late(str(ROOT / "scheduler/core/scheduler_core.py")) for name in names]
    assert "scaler.scheduler.core.relaying" in found
    assert "scaler.scheduler.core.rebuilding" in found


@pytest.mark.parametrize("process", [name for name in _PROCESSES if name != "worker"])
def test_no_piece_is_large(process: str) -> None:
    """Modules of the engine come one by one: a message that has come waits for one at most."""
    steps, _, _ = _look(process)
    assert [(name, more) for name, more in steps if len([m for m in more if m.startswith("scaler.")]) > 1] == []
    assert [(name, more) for name, more in steps if len(more) > 3] == []


class Loader:
    """Loads what it is told, unless that fails."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.error: Exception | None = None

    def __call__(self, name: str) -> None:
        if self.error is not None:
            raise self.error
        self.loaded.append(name)


def test_nothing_is_loaded_in_the_first_second_and_then_one_by_one() -> None:
    loader = Loader()
    later = LaterModules(["one", "two"], 10.0, loader)
    later.attend(10.0 + FIRST / 2, is_busy=False)
    assert loader.loaded == []
    assert later.wake == 10.0 + FIRST
    later.attend(later.wake, is_busy=False)
    assert loader.loaded == ["one"]
    later.attend(later.wake, is_busy=False)
    assert loader.loaded == ["one", "two"]
    assert later.wake == math.inf


def test_messages_go_first_but_not_for_ever() -> None:
    loader = Loader()
    later = LaterModules(["one"], 0.0, loader)
    later.attend(FIRST, is_busy=True)
    assert (loader.loaded, later.wake) == ([], FIRST + PAUSE)
    later.attend(OVERDUE, is_busy=True)
    assert loader.loaded == ["one"]


def test_what_is_there_is_not_loaded() -> None:
    assert LaterModules(["sys"], 0.0).wake == math.inf


def test_without_descriptors_it_is_tried_again_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loader = Loader()
    later = LaterModules(["one", "two"], 0.0, loader)
    loader.error = OSError(24, "Too many open files")
    later.attend(FIRST, is_busy=False)
    assert later.wake == FIRST + AGAIN
    later.attend(later.wake, is_busy=False)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "one: [Errno 24] Too many open files" in caplog.text
    loader.error = None
    later.attend(later.wake, is_busy=False)
    later.attend(later.wake, is_busy=False)
    assert loader.loaded == ["one", "two"]


def test_it_is_not_tried_for_ever() -> None:
    loader = Loader()
    loader.error = OSError(24, "Too many open files")
    later = LaterModules(["one"], 0.0, loader)
    for _ in range(ATTEMPTS):
        later.attend(later.wake, is_busy=False)
    assert later.wake == math.inf


def test_modules_that_do_not_fit_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The package was upgraded within the first second."""
    loader = Loader()
    later = LaterModules(["one", "two"], 0.0, loader)
    loader.error = ImportError("cannot import name 'x'")
    later.attend(FIRST, is_busy=False)
    assert later.wake == math.inf
    assert "restart this program: one: ImportError: cannot import name 'x'" in caplog.text
