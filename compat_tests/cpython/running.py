"""Each test in a process of its own, with a limit of time; and what came of it."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import signal
import subprocess
import sys
import unittest

from compat_tests.cpython.kinds import KINDS
from compat_tests.cpython.suite import case

#: seconds that one test may take; the slowest waits for 6
LIMIT = 60.0

#: (kind, test) -> why it can't pass. What passes though it stands here is an error.
EXPECTED_FAILURES: dict[tuple[str, str], str] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one test."""

    passed: bool
    #: why it did not, in a line
    reason: str = ""
    #: all that was printed
    output: str = ""


def run_apart(kind: str, name: str, limit: float = LIMIT) -> Outcome:
    """Run a test in another process; blocks until it has ended, at most `limit` seconds."""
    command = [sys.executable, "-m", "compat_tests.cpython.running", kind, name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(False, f"it hangs: no end after {limit:g} s", _killed(process))
    try:
        passed, reason = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        return Outcome(False, f"its process ended with {process.returncode} and no answer", output)
    if process.returncode:
        return Outcome(False, f"its process ended with {process.returncode}", output)
    return Outcome(passed, reason, output)


def _killed(process: subprocess.Popen[str]) -> str:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        return process.communicate(timeout=5.0)[0]
    except subprocess.TimeoutExpired:  # a daemon of its holds the pipe
        return ""


def main(kind: str, name: str) -> None:
    """Run a test in this process; the last line printed says what came of it."""
    faulthandler.dump_traceback_later(LIMIT - 5.0)
    result = unittest.TestResult()
    case(KINDS[kind], name).run(result)
    faulthandler.cancel_dump_traceback_later()
    reason = ""
    for _, text in [*result.errors, *result.failures]:
        print(text)
        reason = reason or _last_words(text)
    for _, why in result.skipped:
        reason = reason or f"skipped: {why}"
    print()  # tests leave their last line open
    print(json.dumps((not reason and result.wasSuccessful(), reason)), flush=True)


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    return lines[-1][:120] if lines else "no reason"


if __name__ == "__main__":
    main(*sys.argv[1:])
