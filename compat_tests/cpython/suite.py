"""The tests: CPython's mixins with an executor of ours in the place of theirs.

A mixin says what every executor does, and leaves the executor to a second mixin. What CPython's modules add to that in
the classes of one executor (its threads, its queues) is not here. Three tests run a script that imports the executor
by name; `_as_written_for` puts the other name, and the path to it, into that script.
"""

from __future__ import annotations

import os
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.cpython.kinds import Kind

#: modules of `test.test_concurrent_futures`, and the mixins there
MIXINS = {
    "executor": ("ExecutorTest",),
    "test_wait": ("WaitTests",),
    "test_as_completed": ("AsCompletedTests",),
    "test_shutdown": ("ExecutorShutdownTest",),
    "test_init": ("InitializerMixin", "FailingInitializerMixin"),
}


def why_not() -> str | None:
    """Why CPython's tests can't be had here, or None."""
    try:
        import test.test_concurrent_futures.executor  # noqa: F401
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:3]))
        return f"Python {version} at {sys.prefix} has no test.test_concurrent_futures.executor ({error}): take 3.13"
    return None


def names() -> list[str]:
    """All tests, as "module.mixin.test"."""
    return [
        f"{module}.{mixin.__name__}.{name}"
        for module, mixin in _mixins()
        for name in unittest.TestLoader().getTestCaseNames(mixin)  # type: ignore[arg-type]
    ]


def case(kind: Kind, name: str) -> unittest.TestCase:
    """One test, ready to run."""
    wanted_module, wanted_mixin, test = name.split(".")
    for module, mixin in _mixins():
        if (module, mixin.__name__) == (wanted_module, wanted_mixin):
            return _test_class(kind, mixin)(test)  # type: ignore[no-any-return]
    raise KeyError(f"there is no test {name}")


def _mixins() -> Iterator[tuple[str, type]]:
    import importlib

    for module, mixins in MIXINS.items():
        imported = importlib.import_module(f"test.test_concurrent_futures.{module}")
        for mixin in mixins:
            yield module, getattr(imported, mixin)


def _test_class(kind: Kind, mixin: type) -> Any:
    from test.test_concurrent_futures import test_shutdown
    from test.test_concurrent_futures.util import BaseTestCase, ExecutorMixin

    test_shutdown.assert_python_ok = _as_written_for(kind, test_shutdown.assert_python_ok)
    attributes: dict[str, Any] = {"executor_type": staticmethod(kind.executor_type)}
    if kind.module == "concurrent.futures":
        attributes["executor_type"] = kind.executor_type  # tests ask whether it is the process pool's
    if kind.context is not None:
        attributes["ctx"] = kind.context
    bases = (mixin, BaseTestCase) if issubclass(mixin, ExecutorMixin) else (mixin, ExecutorMixin, BaseTestCase)
    return type(mixin.__name__, bases, attributes)


def _as_written_for(kind: Kind, run: Callable[..., Any]) -> Callable[..., Any]:
    def run_script(option: str, script: str) -> Any:
        script = re.sub(
            rf"from concurrent\.futures import {kind.name}\b", f"from {kind.module} import {kind.name}", script
        )
        return run(option, script, PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path)))

    return run_script
