"""How programs start: they heed Ctrl-C before much is loaded, and what runs user code begins anew before that."""

from __future__ import annotations

import sys

from scaler.common import early_interrupts, start_environment


def main() -> None:
    """The program `scaler`."""
    early_interrupts.begin()
    if sys.argv[1:2] in (["cluster"], ["worker"]):
        start_environment.start_again()
    from scaler.cli import main as program

    program.main()


def cluster() -> None:
    """The programs `scaler_cluster` and `scaler_worker`."""
    early_interrupts.begin()
    start_environment.start_again()
    from scaler.cli import cluster as program

    program.main()


def scheduler() -> None:
    """The program `scaler_scheduler`."""
    early_interrupts.begin()
    from scaler.cli import scheduler as program

    program.main()


def symphony() -> None:
    """The program `scaler_symphony_cluster`."""
    early_interrupts.begin()
    from scaler.cli import symphony as program

    program.main()


def provision() -> None:
    """The program `scaler_provision`."""
    early_interrupts.begin()
    from scaler.cli import provision as program

    program.main()


def top() -> None:
    """The program `scaler_top`."""
    early_interrupts.begin()
    from scaler.cli import top as program

    program.main()


def ui() -> None:
    """The program `scaler_ui`."""
    early_interrupts.begin()
    from scaler.cli import ui as program

    program.main()
