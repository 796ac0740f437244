"""`make check` fails when it should: something forbidden is planted in a copy of the code, and the contract notices."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ROOT / ".ci"
sys.path.insert(0, str(CHECKS))

from contracts import writes  # noqa: E402

Plant = Callable[[str, str], None]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their contracts in a place of their own."""
    place = tmp_path_factory.mktemp("copy")
    for package in ("scaler", "scaler_dask"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", place)
    return place


@pytest.fixture
def plant(copy: Path, request: pytest.FixtureRequest) -> Plant:
    """Adds lines to a module, or makes it; the test's end takes them away."""

    def put(module: str, text: str) -> None:
        path = copy / module
        before = path.read_text() if path.exists() else None
        request.addfinalizer(lambda: path.unlink() if before is None else path.write_text(before) and None)
        path.write_text((before or "") + "\n" + text)

    return put


def broken(copy: Path, contract: str) -> str:
    """What the contract complains about, with words a space apart; empty if it is kept."""
    env = {**os.environ, "PYTHONPATH": str(CHECKS)}
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    ran = subprocess.run(
        [*program, "--config", "setup.cfg", "--contract", contract],
        cwd=copy, env=env, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert "Contracts:" in ran.stdout, ran.stdout + ran.stderr
    return " ".join(ran.stdout.partition("Broken contracts")[2].split()) if ran.returncode else ""


@pytest.fixture(scope="module")
def kept(copy: Path) -> Callable[[str], bool]:
    """Says whether the code keeps a contract with nothing planted; the first answer holds for the module."""
    return functools.cache(lambda contract: broken(copy, contract) == "")


TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from scaler.common import planted"
INSIDE = "def f():\n    from scaler.common import planted"


@pytest.mark.parametrize("text", ["from scaler.common import planted", INSIDE, TYPE_ONLY])
def test_a_circle_is_found_however_it_is_closed(
    copy: Path, plant: Plant, kept: Callable[[str], bool], text: str
) -> None:
    assert kept("circles")
    plant("scaler/common/planted.py", "from scaler.common import spans")
    plant("scaler/common/spans.py", text)
    assert "A circle: scaler.common.planted -> scaler.common.spans -> scaler.common.planted" in broken(copy, "circles")


def test_a_module_of_its_own_package_closes_a_circle_too(copy: Path, plant: Plant) -> None:
    plant("scaler/common/__init__.py", "from scaler.common import planted")
    plant("scaler/common/planted.py", "import scaler.common")
    assert "A circle: scaler.common -> scaler.common.planted -> scaler.common" in broken(copy, "circles")


@pytest.mark.parametrize("private", ["scaler.protocol.codec", "scaler.client.future", "scaler.client.core.session"])
def test_an_adapter_must_not_know_what_is_private_to_the_engine(
    copy: Path, plant: Plant, kept: Callable[[str], bool], private: str
) -> None:
    assert kept("public")
    plant("scaler_dask/planted.py", f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {private}")
    assert f"scaler_dask.planted -> {private}" in broken(copy, "public")


UNPICKLERS = {
    "pickles": "import pickle",
    "marshals": "from marshal import loads",
    "inside": "def f():\n    import cloudpickle",
    "record": "from scaler.serialize.record import decode_error",
}


def test_a_scheduler_that_could_unpickle_is_found_out(copy: Path, plant: Plant) -> None:
    packages = ("scheduler", "scheduler/state", "protocol")
    for package in packages:
        for name, text in UNPICKLERS.items():
            plant(f"scaler/{package}/{name}.py", text)
    complaints = broken(copy, "no_unpickler")
    for package in packages:
        for name in UNPICKLERS:
            assert f"scaler.{package.replace('/', '.')}.{name} ->" in complaints


@pytest.mark.parametrize("package", ["scheduler", "scheduler/state", "protocol"])
def test_so_is_one_that_could_read_what_workers_marshal(copy: Path, plant: Plant, package: str) -> None:
    plant(f"scaler/{package}/planted.py", "from scaler.worker_protocol import encoding")
    assert f"scaler.{package.replace('/', '.')}.planted ->" in broken(copy, "no_unpickler")


def test_a_scheduler_can_not_unpickle_as_it_is(copy: Path) -> None:
    assert broken(copy, "no_unpickler") == ""


def test_a_schedulers_process_loads_nothing_that_pickles() -> None:
    """What the contract reads from the code is so when it runs; Python's own modules load pickle as they like."""
    program = "import sys, scaler.scheduler.server; print(*(name for name in sys.modules if 'pickle' in name))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    loaded = set(ran.stdout.split())
    assert loaded <= {"pickle", "_pickle", "_compat_pickle"}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("core/admission.py", "def planted(batch):\n    batch.place[0] = 2"),
        ("core/planted.py", "def planted(batch):\n    column = batch.place\n    column[0:3] = column[3:6]"),
        ("server.py", "def planted(batches):\n    batches[7].place.pop()"),
    ],
)
def test_nobody_but_transitions_moves_a_row(
    copy: Path, plant: Plant, kept: Callable[[str], bool], module: str, text: str
) -> None:
    assert kept("places")
    plant(f"scaler/scheduler/{module}", text)
    name = f"scaler.scheduler.{module.removesuffix('.py').replace('/', '.')}"
    assert f"{name} changes .place in line" in broken(copy, "places")


@pytest.mark.parametrize(
    ("contract", "text", "words"),
    [
        ("agent_moves", "def planted(worker):\n    worker.state = 2", "changes .state in line"),
        ("dispatches", "def planted(worker):\n    worker.dispatches.pop(1)", "changes .dispatches in line"),
    ],
)
def test_at_an_agent_workers_objects_and_their_rows_move_in_one_place(
    copy: Path, plant: Plant, kept: Callable[[str], bool], contract: str, text: str, words: str
) -> None:
    assert kept(contract)
    plant("scaler/agent/core/dispatching.py", text)
    assert f"scaler.agent.core.dispatching {words}" in broken(copy, contract)


def test_who_moves_rows_must_be_there(copy: Path) -> None:
    path = copy / "scaler" / "scheduler" / "state" / "transitions.py"
    before = path.read_text()
    path.write_text(before.replace(".place", ".elsewhere"))
    try:
        assert "scaler.scheduler.state.transitions does not change .place: has it moved?" in broken(copy, "places")
    finally:
        path.write_text(before)


WRITES = {
    "a cell": "batch.place[3] = 1",
    "a slice": "batch.place[lo:hi] = u32([1])",
    "the column": "batch.place = u32()",
    "in place": "batch.place[3] += 1",
    "deleting": "del batch.place[3]",
    "one of several": "was, batch.place[3] = batch.place[3], 1",
    "a method": "batch.place.extend([1])",
    "deeper": "client.batches[7].place[3] = 1",
    "by another name": "def f(batch):\n    column = batch.place\n    column[3] = 1",
    "by one of several names": "def f(batch):\n    column, row = batch.place, 3\n    column[row] = 1",
    "by a name in passing": "def f(batch):\n    if (column := batch.place):\n        column.pop()",
}


@pytest.mark.parametrize("how", WRITES)
def test_a_write_is_seen(how: str) -> None:
    assert writes(WRITES[how], "place")


@pytest.mark.parametrize(
    "text",
    [
        "x = batch.place[3]",
        "found = batch.place.index(1)",
        "placement.place()",
        "place[3] = 1",
        "batch.done[batch.place[3]] = 1",
        "def f(batch):\n    column = batch.place\n    return column[3]",
        "def f(batch):\n    column = batch.place\ndef g(column):\n    column[3] = 1",
    ],
)
def test_reading_is_no_write(text: str) -> None:
    assert not writes(text, "place")
