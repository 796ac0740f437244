"""Our own tests of how programs end, on the newest Python that is supported, in an environment of its own.

    python -m compat_tests.newest_python

What the interpreter does at its end, and at Ctrl-C, differs from version to version.
"""

from __future__ import annotations

import subprocess
import sys

from compat_tests import environments

VERSION = "3.13"
TESTS = ["test_interrupts.py", "test_script_endings.py"]
PACKAGES = ["dask", "hypothesis", "joblib", "psutil", "pytest", "pytest-timeout", "pytest-xdist"]


def main() -> int:
    """Run them; the exit code."""
    python = environments.find_python(VERSION)
    if python is None:
        print(f"skipped: there is no Python {VERSION}; name one by the variable PYTHON3_13", file=sys.stderr)
        return 0
    python = environments.make(f"endings-{VERSION}", python, PACKAGES)
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    tests = [str(environments.ROOT / "tests" / "process" / name) for name in TESTS]
    return subprocess.run([*command, *tests], cwd=environments.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
