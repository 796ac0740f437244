"""How programs start: they heed Ctrl-C before much is loaded, and what runs user code begins anew before that."""

from __future__ import annotations

import importlib
import sys
from functools import partial

from scaler.common import early_interrupts, start_environment


def main() -> None:
    """The program `scaler`."""
    _run("main", runs_user_code=sys.argv[1:2] in (["cluster"], ["worker"]))


def _run(module: str, runs_user_code: bool = False) -> None:
    early_interrupts.begin()
    if runs_user_code:
        start_environment.start_again()
    importlib.import_module(f"scaler.cli.{module}").main()


#: the programs `scaler_cluster`, which is `scaler_worker` as well, `scaler_scheduler`, `scaler_top` and so on
cluster = partial(_run, "cluster", runs_user_code=True)
scheduler, symphony, provision = partial(_run, "scheduler"), partial(_run, "symphony"), partial(_run, "provision")
top, ui = partial(_run, "top"), partial(_run, "ui")
