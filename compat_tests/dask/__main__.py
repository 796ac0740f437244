"""Dask's own tests under several engines, and the score card.

    python -m compat_tests.dask                                     # the parts that take minutes, Scaler and threads
    python -m compat_tests.dask --parts all --engines all
    python -m compat_tests.dask --parts dataframe/40 --engines all   # "processes" takes hours for all of them

Each part runs in a process of its own under each engine. What passes under threads and fails under Scaler has to be in
`expected.py`, with the reason; what is there has to fail. The exit code is 1 where that is not so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.dask.expected import BY_CHANCE, EXPECTED

ROOT = Path(__file__).parents[2]
PARTS = {
    "tests": "dask.tests",
    "bag": "dask.bag",
    "diagnostics": "dask.diagnostics",
    "array": "dask.array",
    "dataframe": "dask.dataframe",
}
#: of arrays and data frames, which take long, some of the tests
QUICK = ("tests", "bag", "diagnostics", "array/4", "dataframe/40")
ENGINES = ("scaler", "threads", "processes", "distributed")
#: seconds for a test, some of which take most of a minute under any engine; for a part; and for its report after that
TEST_SECONDS, PART_SECONDS, REPORT_SECONDS = 120, 7_200, 60


@dataclass
class Outcome:
    """What became of the tests of a part under an engine."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    seconds: float = 0.0


def run(part: str, engine: str, sample: int = 1) -> Outcome:
    """Run a part, or one of `sample` tests of it; blocks until it is over."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "compat_tests.dask.plugin", "--tb=no",
            f"--timeout={TEST_SECONDS}", f"--junitxml={report}", "--pyargs", PARTS[part],
        ]  # fmt: skip
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {
            **os.environ, "PYTHONPATH": path, "SCALER_COMPAT_ENGINE": engine, "SCALER_COMPAT_SAMPLE": str(sample),
        }  # fmt: skip
        began = time.monotonic()
        with Path(directory, "output").open("w+b") as output:
            process = subprocess.Popen(command, cwd=directory, env=environment, stdout=output, stderr=output)
            try:
                process.wait(PART_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"{part} under {engine}: not over after {PART_SECONDS} s", file=sys.stderr)
                _interrupt(process)
            if not report.exists():
                output.seek(0)
                sys.stderr.write(output.read().decode(errors="replace")[-3_000:])
                return Outcome()
        outcome = Outcome(seconds=time.monotonic() - began)
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                outcome.failed.add(name)
            elif "skipped" not in kinds and short(name) not in BY_CHANCE:
                outcome.passed.add(name)
        return outcome


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End pytest so that it reports what it has run."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(REPORT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def judge(scaler: Outcome, threads: Outcome) -> list[str]:
    """What is not as `expected.py` says, a line each."""
    lost = [name for name in sorted(threads.passed - scaler.passed) if reason_of(name) is None]
    won = [name for name in sorted(scaler.passed) if reason_of(name) is not None]
    return [
        *(f"{name} passes under threads, fails under scaler, and is not expected to" for name in lost),
        *(f"{name} is expected to fail, and passes" for name in won),
    ]


def short(name: str) -> str:
    """The name of a test as it is in the lists."""
    module, _, test = name.partition("::")
    return f"{module.rpartition('.')[2]}::{test}"


def reason_of(name: str) -> str | None:
    """Why a test is expected to fail, None if it isn't."""
    return EXPECTED.get(short(name)) or EXPECTED.get(short(name).partition("[")[0])


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.dask", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--parts",
        default=",".join(QUICK),
        help=f"all, or some of {', '.join(PARTS)}; array/4: one of four tests, the same each time",
    )
    parser.add_argument("--engines", default="scaler,threads", help=f"all, or some of {', '.join(ENGINES)}")
    options = parser.parse_args()
    parts = list(PARTS) if options.parts == "all" else options.parts.split(",")
    engines = list(ENGINES) if options.engines == "all" else options.engines.split(",")
    wrong: list[str] = []
    totals = {engine: [0, 0, 0.0] for engine in engines}
    print(f"{'part':12}" + "".join(f"{engine:>28}" for engine in engines), flush=True)
    for name in parts:
        part, _, sample = name.partition("/")
        outcomes = {engine: run(part, engine, int(sample or 1)) for engine in engines}
        base = outcomes.get("threads", outcomes[engines[0]]).passed
        cells = []
        for engine, outcome in outcomes.items():
            good = len(outcome.passed & base)
            cells.append(f"{good} / {len(base)} ({outcome.seconds:.0f} s)")
            for i, value in enumerate((good, len(base), outcome.seconds)):
                totals[engine][i] += value
        print(f"{name:12}" + "".join(f"{cell:>28}" for cell in cells), flush=True)
        if {"scaler", "threads"} <= outcomes.keys():
            wrong += judge(outcomes["scaler"], outcomes["threads"])
    cells = [f"{good:.0f} / {of:.0f} = {100 * good / max(of, 1):.1f} % ({s:.0f} s)" for good, of, s in totals.values()]
    print(f"{'all':12}" + "".join(f"{cell:>28}" for cell in cells))
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
