"""Other people's tests, and programs on other people's libraries, with Scaler under them, and the score cards.

    python -m compat_tests          # what fits in a quarter of an hour
    python -m compat_tests --all    # everything, beside the other engines

Nothing of theirs is in this repository: the suites run as they are installed. The exit code is 1 if a card is not as
the lists of expected failures say.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

#: what to run: with which arguments, and with which for everything
SUITES: dict[str, tuple[list[str], list[str]]] = {
    "compat_tests.dask": ([], ["--parts", "all", "--engines", "all"]),
    "compat_tests.cpython": (["scaler", "processes"], []),
    "compat_tests.joblib": (["--backends", "scaler", "loky"], []),
    "compat_tests.programs": (["--engines", "scaler,threads"], ["--engines", "all"]),
    "compat_tests.oldest": ([], []),
    "compat_tests.newest_python": ([], []),
    "compat_tests.companions": ([], []),
}


def main() -> int:
    """Run all suites, one after the other; the exit code."""
    # A shell has what runs in the background ignore Ctrl-C, and who was started so hands it on: tests of it would hang.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong = 0
    for module, (some, everything) in SUITES.items():
        began = time.monotonic()
        print(f"== python -m {module}", flush=True)
        arguments = everything if "--all" in sys.argv[1:] else some
        ended = subprocess.run([sys.executable, "-m", module, *arguments], cwd=Path(__file__).parents[1], check=False)
        print(f"== {'passed' if not ended.returncode else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
        wrong |= ended.returncode
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
