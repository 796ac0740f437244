"""The score card: `python -m compat_tests.cpython [KIND ...]`."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from compat_tests import environments
from compat_tests.cpython.kinds import KINDS
from compat_tests.cpython.running import EXPECTED_FAILURES, run_apart
from compat_tests.cpython.suite import names, why_not

#: that which carries the tests in the form they are taken in
VERSION = "3.13"
VERSION_INFO = (3, 13)


def main(kinds: list[str]) -> int:
    """Measure these kinds of executors, or all; the exit code says whether Scaler passes what it should."""
    unknown = set(kinds) - KINDS.keys()
    if unknown:
        print(f"no executor is called {', '.join(sorted(unknown))}: there are {', '.join(KINDS)}", file=sys.stderr)
        return 2
    reason = why_not()
    if reason is not None:
        return elsewhere(kinds, reason)
    tests, wrong = names(), 0
    with ThreadPoolExecutor(2) as pool:
        for kind in kinds or KINDS:
            if not KINDS[kind].is_installed:
                print(f"{kind:<12} not installed")
                continue
            outcomes = dict(zip(tests, pool.map(lambda test, kind=kind: run_apart(kind, test), tests), strict=True))
            failed = {test: outcome.reason for test, outcome in outcomes.items() if not outcome.passed}
            print(f"{kind:<12} {len(tests) - len(failed)} / {len(tests)}", flush=True)
            for test, why in failed.items():
                print(f"    {test}: {why}")
            expected = {test for expecting, test in EXPECTED_FAILURES if expecting == kind}
            if kind == "scaler":
                wrong = len(expected ^ failed.keys())
    return 1 if wrong else 0


def elsewhere(kinds: list[str], reason: str) -> int:
    """Measure under another Python, in an environment that is made for it; the exit code."""
    python = environments.find_python(VERSION) if sys.version_info[:2] != VERSION_INFO else None
    if python is None:
        print(f"skipped: {reason}, and name it by the variable PYTHON3_13", file=sys.stderr)
        return 0
    python = environments.make(f"python-{VERSION}", python, ["distributed"])
    command = [python, "-m", "compat_tests.cpython", *kinds]
    return subprocess.run(command, cwd=environments.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
