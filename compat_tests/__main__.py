"""Other people's tests, and programs on other people's libraries, with Scaler under them, and the score cards.

    python -m compat_tests          # what fits in a quarter of an hour
    python -m compat_tests --all    # everything, beside the other engines

Nothing of theirs is in this repository: the suites run as they are installed. The exit code is 1 if a card is not as
the lists of expected failures say.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

#: what to run, and what to add for everything
SUITES = {
    "compat_tests.dask": ["--parts", "all", "--engines", "all"],
    "compat_tests.cpython": [],
    "compat_tests.joblib": [],
    "compat_tests.programs": ["--engines", "all"],
    "compat_tests.oldest": [],
}


def main() -> int:
    """Run all suites, one after the other; the exit code."""
    wrong = 0
    for module, more in SUITES.items():
        began = time.monotonic()
        print(f"== python -m {module}", flush=True)
        arguments = more if "--all" in sys.argv[1:] else []
        ended = subprocess.run([sys.executable, "-m", module, *arguments], cwd=Path(__file__).parents[1], check=False)
        print(f"== {'passed' if not ended.returncode else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
        wrong |= ended.returncode
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
