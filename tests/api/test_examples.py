"""Every program in `examples/`, run as a user runs it: it prints what it says, ends, and leaves nothing behind."""

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from support import patience

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

#: what each program prints, as a regular expression for all of its standard output
OUTPUT = {
    "disconnect_client.py": r"a protected scheduler refuses\n1024\nthe cluster is down\n",
    "graphtask_client.py": r"\{'e': 1\}\n\[3, 4\]\n",
    "graphtask_nested_client.py": r"\[1, 55, 5050\]\n",
    "map_client.py": r"10,000 results, the same as the inputs: True\n",
    "nested_client.py": r"21\n",
    "send_object_client.py": r"20 tasks used one table; the last found 902500000000\n",
    "simple_client.py": r"661\.46\n",
    "stdlib_analysis.py": r"(?s)analysing .* files in .*"
    r" dask's threads: \.* [\d.]+ s\n +scaler_get: \.* [\d.]+ s\n"
    r".* files .* lines, .* classes, .* functions\nmost used names: .*both answers agree: True\nnext: .*\n",
}

#: what is given to a program that would take long without
ARGUMENTS = {"stdlib_analysis.py": ["json"]}


@pytest.fixture
def environment():
    """An environment that all descendants of a program inherit and nobody else has; checks that none outlives it."""
    mark = uuid.uuid4().hex
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCALER_")}
    yield {**clean, "SCALER_TEST_MARK": mark, "PYTHONPATH": str(ROOT)}
    deadline = time.monotonic() + 10
    while left := [process for process in psutil.process_iter(["cmdline"]) if _is_marked(process, mark)]:
        if time.monotonic() > deadline:
            for process in left:
                process.kill()
            pytest.fail(f"processes left behind: {[process.info['cmdline'] for process in left]}")
        psutil.wait_procs(left, timeout=0.05)


def _is_marked(process, mark):
    try:
        return process.environ().get("SCALER_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(OUTPUT)


@pytest.mark.parametrize("name", sorted(OUTPUT))
def test_an_example_prints_what_it_says(name, environment, tmp_path):
    if name == "stdlib_analysis.py":
        pytest.importorskip("dask")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *ARGUMENTS.get(name, [])],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(45),
    )
    assert done.stderr == ""
    assert re.fullmatch(OUTPUT[name], done.stdout), done.stdout
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
