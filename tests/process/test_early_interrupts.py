"""Ctrl-C while a program is still being loaded."""

import signal
import subprocess
import sys

import pytest
from support.programs import environment

_PROGRAM = """
import sys
sys.argv = {arguments!r}

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)

from scaler.cli import start
sys.meta_path.insert(0, Interrupting())
start.{function}()
"""


def run(
    function: str, module: str, *arguments: str, before: signal.Handlers = signal.SIG_DFL
) -> subprocess.CompletedProcess[str]:
    code = _PROGRAM.format(function=function, module=module, arguments=["scaler", *arguments])
    env = {**environment(), "PYTHONHASHSEED": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}  # it begins once
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, before),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("function", "module"),
    [
        ("main", "click"),
        ("cluster", "click"),
        ("scheduler", "click"),
        ("top", "scaler.cli.top"),
        ("ui", "scaler.config"),
    ],
)
def test_it_ends_a_program_without_a_traceback(function: str, module: str) -> None:
    ended = run(function, module)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    ("function", "module"), [("scheduler", "scaler.scheduler.server"), ("cluster", "scaler.agent.daemon")]
)
def test_it_ends_one_that_loads_what_it_needs_with_the_code_that_is_documented(function: str, module: str) -> None:
    ended = run(function, module, "tcp://127.0.0.1:0")
    assert (ended.returncode, ended.stderr.strip()) == (130, "")


def test_a_program_that_ignores_it_goes_on() -> None:
    ended = run("main", "click", "--version", before=signal.SIG_IGN)
    assert ended.returncode == 0
    assert "version" in ended.stdout


def test_signals_are_left_alone_by_who_imports_the_programs() -> None:
    code = "import signal, scaler.cli.start; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True, timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert ran.stdout == "True\n"
