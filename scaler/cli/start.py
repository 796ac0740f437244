"""How `scaler` and `scaler_cluster` start: what runs user code begins anew before much is loaded."""

from __future__ import annotations

import sys

from scaler.common import start_environment


def main() -> None:
    """The program `scaler`."""
    if sys.argv[1:2] in (["cluster"], ["worker"]):
        start_environment.start_again()
    from scaler.cli import main as program

    program.main()


def cluster() -> None:
    """The programs `scaler_cluster` and `scaler_worker`."""
    start_environment.start_again()
    from scaler.cli import cluster as program

    program.main()
