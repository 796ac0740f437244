"""A pytest plugin: joblib's tests that take a backend run with the one named in COMPAT_BACKEND, and with no other.

The parameters are replaced where pytest reads them, so joblib's test modules stay as they are installed. Tests that
name their backend themselves are left out. What became of each goes to the file COMPAT_REPORT.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.joblib.expected import EXPECTED

NAME = os.environ["COMPAT_BACKEND"]

#: parameters of joblib's tests that are backends, and what they become
PARAMETERS: dict[str, Any] = {
    "backend": [NAME],
    "parent_backend": [NAME],
    "child_backend": [NAME],
    "outer_backend": [NAME],
    "inner_backend": [NAME],
    # whether the workers die with a generator that is thrown away
    "backend,error": [(NAME, NAME == "loky")],
    # whether the inner call warns that it can't be parallel
    "parent_backend,child_backend,expected": [(NAME, NAME, False)],
}

_outcomes: dict[str, str] = {}
#: test functions that are for any backend, not only for those of processes
_general: set[str] = set()
_kept: list[Any] = []


def pytest_configure(config: pytest.Config) -> None:
    """Make the backend known, before joblib's tests look which there are."""
    if NAME == "scaler":
        import scaler.joblib  # noqa: F401
    elif NAME == "dask":
        import distributed
        import joblib

        _kept.append(distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None))
        with joblib.parallel_config(backend="dask"):
            pass


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what was started, and write the report."""
    report = os.environ.get("COMPAT_REPORT")
    if report:
        Path(report).write_text(json.dumps({"outcomes": _outcomes, "general": sorted(_general)}, indent=1))
    for client in _kept:
        client.close()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Replace the backends that a test is to be run with."""
    marks = metafunc.definition.own_markers
    for place, mark in enumerate(marks):
        if mark.name == "parametrize":
            names = mark.args[0] if isinstance(mark.args[0], str) else ",".join(mark.args[0])
            values = PARAMETERS.get(names.replace(" ", ""))
            if values is not None:
                if "threading" in str(mark.args[1]):
                    _general.add(metafunc.definition.name)
                marks[place] = pytest.mark.parametrize(names, values).mark


def pytest_collection_finish(session: pytest.Session) -> None:
    """Programs that tests run in a process of their own get the one import that makes the backend known."""
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        if NAME == "scaler" and hasattr(module, "check_subprocess_call"):
            module.check_subprocess_call = functools.partial(_with_import, module.check_subprocess_call)


def _with_import(check: Callable[..., None], command: list[str], **options: Any) -> None:
    if command[1] == "-c":
        command = [command[0], "-c", "import scaler.joblib\n" + command[2]]
    else:
        script = Path(command[1])
        script.write_text("import scaler.joblib\n" + script.read_text())
    check(command, **options)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that take no backend, and mark those that are known to fail."""
    takes = [item for item in items if _takes_backend(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in takes])
    items[:] = takes
    if NAME == "scaler":
        for item in items:
            reason = EXPECTED.get(_name(item)) or EXPECTED.get(_name(item).partition("[")[0])
            if reason:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _takes_backend(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    return spec is not None and NAME in spec.params.values()


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("::")[2]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what became of a test; the worst of its phases counts."""
    name = report.nodeid.rpartition("::")[2]
    if report.when == "call" or report.outcome != "passed":
        expected = hasattr(report, "wasxfail")
        outcome = "expected failure" if expected and report.skipped else report.outcome
        if _outcomes.get(name, "passed") == "passed":
            _outcomes[name] = outcome
