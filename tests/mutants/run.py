"""Plants one fault at a time in a copy of the code and says which test notices: `make mutants`.

A mutant is a patch beside this file whose first line, `# ...`, says what is broken. It is caught by the first test that
fails with it and passes without it; the quick suites come first. Whoever survives shows a test that is missing.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: each is run only if those before it noticed nothing
SUITES = (["tests/unit"], ["tests/properties", "tests/sim"], ["tests/api", "tests/process"])
#: tests that fail at once are enough
ARGUMENTS = ["-q", "-x", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "-p", "failures"]
#: seconds for a suite: a mutant may make it hang
PATIENCE = 1800.0
#: writes the names of failed tests to a file, in the process that runs the tests of all others
PLUGIN = """
import os
def pytest_runtest_logreport(report):
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ["FAILURES"], "a") as file:
            print(report.nodeid, file=file)
"""


class Verdict(NamedTuple):
    """What became of a mutant."""

    patch: str
    what: str
    caught_by: str
    seconds: float
    is_good: bool


def fault_of(patch: Path) -> str:
    """What the first line of a patch says."""
    first = patch.read_text().partition("\n")[0]
    if not first.startswith("# "):
        raise SystemExit(f"{patch.name}: the first line has to say what is broken: # ...")
    return first[2:].strip()


def copy_to(place: Path) -> None:
    """The code as it is in this checkout, committed or not; but for the mutants, which apply to it alone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.endswith(".patch"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    (place / ".plugin").mkdir(parents=True)
    (place / ".plugin" / "failures.py").write_text(PLUGIN)


def apply(patch: Path, place: Path) -> str:
    """Why the patch can't be applied; empty if it was."""
    done = subprocess.run(["git", "apply", str(patch)], cwd=place, capture_output=True, text=True, check=False)
    return done.stderr.strip()


#: what pytest ends with if all tests are left out
NO_TESTS = 5


def failures(place: Path, tests: list[str]) -> list[str]:
    """The tests of these that fail; "it hangs" if they don't end."""
    told = place / ".plugin" / "failed"
    told.unlink(missing_ok=True)
    path = os.pathsep.join((str(place), str(place / ".plugin")))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**ours, "PYTHONPATH": path, "FAILURES": str(told), "HYPOTHESIS_STORAGE_DIRECTORY": str(place / ".h")}
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--rootdir", str(place), *ARGUMENTS, *tests],  # whatever lies around it
        cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        status = run.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return ["it hangs"]
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    named = told.read_text().splitlines() if told.exists() else []
    return named or ([f"pytest ends with {status}"] if status not in (0, NO_TESTS) else [])


def judge(patch: Path) -> Verdict:
    """Plant a fault, and look for the test that notices."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mutant-") as with_it,
        tempfile.TemporaryDirectory(prefix="plain-") as plain,
    ):
        copy_to(Path(with_it))
        problem = apply(patch, Path(with_it))
        copy_to(Path(plain))
        caught_by, is_good = (f"does not apply: {problem}", False) if problem else ("SURVIVED", False)
        for suite in () if problem else SUITES:
            found = noticed(Path(with_it), Path(plain), suite)
            if found is not None:
                caught_by, is_good = found, True
                break
    return Verdict(patch.name, fault_of(patch), caught_by, time.monotonic() - began, is_good)


def noticed(with_it: Path, plain: Path, suite: list[str]) -> str | None:
    """A test of the suite that fails with the fault, once more by itself, and not without it; None if there is none.

    A test that fails for another reason now and then is left out, and the rest is run again.
    """
    left_out: list[str] = []
    while True:
        failed = failures(with_it, [*suite, *(f"--deselect={test}" for test in left_out)])
        if not failed:
            return None
        test = failed[0]
        if "::" not in test or (failures(with_it, [test]) and not failures(plain, [test])):
            return test
        left_out.append(test)


def main() -> int:
    """The program; 1 if a mutant survived or can't be judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patches", nargs="*", type=Path, help="of this directory; all by default")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the copies are removed
    patches = [patch.resolve() for patch in options.patches] or sorted(HERE.glob("*.patch"))
    verdicts = []
    print("| mutant | what is broken | caught by | s |\n|---|---|---|---|")
    for patch in patches:
        verdict = judge(patch)
        verdicts.append(verdict)
        print(f"| {verdict.patch} | {verdict.what} | {verdict.caught_by} | {verdict.seconds:.0f} |", flush=True)
    caught = sum(verdict.is_good for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} caught")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
