"""Our own tests of `scaler_dask` on the oldest dask that is supported, in an environment of its own.

    python -m compat_tests.oldest

The newest one is in the project's environment: `make test` runs them there.
"""

from __future__ import annotations

import subprocess
import sys

from compat_tests import environments

OLDEST = "2024.12.0"
TESTS = ["test_dask_client.py", "test_dask_conformance.py", "test_scaler_dask.py"]
PACKAGES = [
    f"dask[array,dataframe]=={OLDEST}", "pandas<3", "hypothesis", "joblib", "psutil", "pytest", "pytest-timeout",
    "pytest-xdist",
]  # fmt: skip


def main() -> int:
    """Run them; the exit code."""
    python = environments.make(f"dask-{OLDEST}", sys.executable, PACKAGES, without=("dask", "numpy", "pandas"))
    command = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    tests = [str(environments.ROOT / "tests" / "api" / name) for name in TESTS]
    return subprocess.run([*command, *tests], cwd=environments.ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
