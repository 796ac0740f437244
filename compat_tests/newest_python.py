"""Our own tests of how programs end and of what travels, on the newest Python that is supported.

    python -m compat_tests.newest_python

What the interpreter does at its end, and at Ctrl-C, differs from version to version, and so do the insides of what is
pickled by value. It has an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys

from compat_tests import environments

VERSION = "3.13"
TESTS = [
    "process/test_interrupts.py", "process/test_script_endings.py", "unit/test_capture.py", "unit/test_processors.py",
    "unit/test_serialize_call.py", "unit/test_serialize_payload.py",
]  # fmt: skip
PACKAGES = ["dask", "hypothesis", "joblib", "numpy", "pandas", "psutil", "pytest", "pytest-timeout", "pytest-xdist"]


def main() -> int:
    """Run them; the exit code."""
    python = environments.find_python(VERSION)
    if python is None:
        print(f"skipped: there is no Python {VERSION}; name one by the variable PYTHON3_13", file=sys.stderr)
        return 0
    python = environments.make(f"endings-{VERSION}", python, PACKAGES)
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    tests = [str(environments.ROOT / "tests" / name) for name in TESTS]
    return subprocess.run([*command, *tests], cwd=environments.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
