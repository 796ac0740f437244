"""CPython's tests of executors, each as one of pytest's."""

import sys

import pytest

from compat_tests.cpython.running import EXPECTED_FAILURES, run_apart
from compat_tests.cpython.suite import names, why_not

REASON = why_not()


def test_there_are_as_many_as_cpython_has():
    if REASON is not None:
        pytest.skip(REASON)
    assert len(names()) >= (31 if sys.version_info >= (3, 13) else 25)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", names() if REASON is None else [])
def test_executor(name):
    outcome = run_apart("scaler", name)
    if ("scaler", name) in EXPECTED_FAILURES:
        assert not outcome.passed, "it passes: take it off the list"
    else:
        assert outcome.passed, f"{outcome.reason}\n{outcome.output}"
