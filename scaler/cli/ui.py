"""`scaler_ui MONITOR --port P`: shows a cluster in a browser, until it is told to stop."""

from __future__ import annotations

import importlib.util
import sys

from scaler.cli.asking import say_address
from scaler.cli.command import call, make_command
from scaler.config import DashboardConfig
from scaler.errors import ScalerError


def run(config: DashboardConfig) -> int:
    """Serves the dashboard; returns the exit code. Raises `ScalerError`, also where Bokeh is not installed."""
    if importlib.util.find_spec("bokeh") is None:
        raise ScalerError("the dashboard needs Bokeh: pip install scaler[dashboard]")
    from scaler.monitor.dashboard import server  # `-h` and mistakes are answered without loading Bokeh
    from scaler.monitor.listening import plainness

    return server.run(config, lambda address: say_address(f"Dashboard: open {address}", plainness(config)))


command = make_command(
    "ui", DashboardConfig, "Show a cluster in a browser: its workers, functions, objects, and what it did lately.", run
)


def main() -> None:
    """The program `scaler_ui`."""
    sys.exit(call(command, "scaler_ui"))
