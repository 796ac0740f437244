"""joblib's own tests and scikit-learn under several backends, and the score card.

    python -m compat_tests.joblib                          # Scaler, threading, loky and joblib's dask backend
    python -m compat_tests.joblib --backends scaler threading

Each backend has a process of its own. The exit code is 1 if a test fails under Scaler that is not in `expected.py`, if
one that is there passes, or if scikit-learn's scores are others than loky's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BACKENDS = ("scaler", "threading", "loky", "dask")
#: seconds for a test, and for all tests under a backend. joblib's own wait ten seconds where they abort nothing
TEST_SECONDS, SUITE_SECONDS = 25, 2_400
PASSED = "passed"


def run_tests(backend: str) -> dict[str, Any]:
    """joblib's tests under a backend: their outcomes, and which functions are for any backend. Blocks."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "compat_tests.joblib.plugin",
            "-c", os.devnull, "--rootdir", directory, "--tb=line", "-W", "ignore", f"--timeout={TEST_SECONDS}",
            "--pyargs", "joblib.test.test_parallel",
        ]  # fmt: skip
        environment = _environment(COMPAT_BACKEND=backend, COMPAT_REPORT=str(report))
        began = time.monotonic()
        with Path(directory, "output").open("w+b") as output:
            try:
                ended = subprocess.run(
                    command, cwd=directory, env=environment, stdout=output, stderr=output, timeout=SUITE_SECONDS
                )
                code = ended.returncode
            except subprocess.TimeoutExpired:
                print(f"{backend}: not over after {SUITE_SECONDS} s", file=sys.stderr)
                code = 1
            if backend == "scaler" and code:
                output.seek(0)
                sys.stderr.write(output.read().decode(errors="replace")[-3_000:])
        result = json.loads(report.read_text()) if report.exists() else {"outcomes": {}, "general": []}
        return {**result, "code": code, "seconds": time.monotonic() - began}


def run_learning(backend: str) -> dict[str, Any]:
    """Scores and seconds of scikit-learn's under a backend; nothing if it failed. Blocks."""
    command = [sys.executable, "-m", "compat_tests.joblib.learning", backend]
    try:
        ended = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=600)
        result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return result
    except (IndexError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"scikit-learn under {backend}: {error!r}", file=sys.stderr)
        return {}


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": path, **more}


def _print_tests(results: dict[str, dict[str, Any]]) -> None:
    first = next(iter(results.values()))
    general = set(first["general"])
    names = {name.partition("[")[0] for name in first["outcomes"]}
    rows = {"for any backend": general, "for processes only": names - general}
    print(f"\n{'joblib/test/test_parallel.py':<30}" + "".join(f"{backend:>12}" for backend in results))
    for title, functions in rows.items():
        counts = []
        for result in results.values():
            outcomes = [is_ for name, is_ in result["outcomes"].items() if name.partition("[")[0] in functions]
            counts.append(f"{outcomes.count(PASSED)}/{sum(outcome != 'skipped' for outcome in outcomes)}")
        print(f"{title:<30}" + "".join(f"{count:>12}" for count in counts))
    print(f"{'seconds':<30}" + "".join(f"{result['seconds']:>12.0f}" for result in results.values()))


def _print_learning(learnt: dict[str, dict[str, Any]]) -> None:
    print(f"\n{'scikit-learn, seconds':<30}" + "".join(f"{backend:>12}" for backend in learnt))
    for work in next(iter(learnt.values())):
        cells = [f"{result[work]['seconds']:>12.2f}" if work in result else f"{'-':>12}" for result in learnt.values()]
        print(f"{work:<30}" + "".join(cells))


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="compat_tests.joblib", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--only", choices=("tests", "learning"), help="one of the two parts")
    arguments = parser.parse_args()
    good = True
    if arguments.only != "learning":
        results = {backend: run_tests(backend) for backend in arguments.backends}
        _print_tests(results)
        good = not ("scaler" in results and results["scaler"]["code"])
    if arguments.only != "tests":
        learnt = {backend: run_learning(backend) for backend in arguments.backends}
        _print_learning(learnt)
        if "scaler" in learnt and "loky" in learnt:
            scores = [{work: it["scores"] for work, it in learnt[name].items()} for name in ("scaler", "loky")]
            same = bool(scores[0]) and scores[0] == scores[1]
            print(f"{'the scores of loky':<30}{'yes' if same else 'NO':>12}")
            good = good and same
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
