"""`scaler metrics MONITOR`: a cluster as Prometheus reads it, printed once, or served with `--port`."""

from __future__ import annotations

import sys
from contextlib import closing

from scaler.cli.asking import quietly, say_address
from scaler.cli.command import make_command
from scaler.config import MetricsConfig
from scaler.errors import ScalerError

#: seconds that the first snapshot may take
_PATIENCE = 10.0


def run(config: MetricsConfig) -> int:
    """Prints or serves; returns the exit code. Raises `ScalerError`."""
    from scaler.monitor import Watcher  # `-h` and mistakes are answered without loading the engine
    from scaler.monitor.formats import inert
    from scaler.monitor.listening import keys_of, plainness
    from scaler.monitor.metrics import Exposition, exposition
    from scaler.monitor.metrics_server import serve

    security, if_refused = keys_of(config)
    told = Exposition(lambda: watcher.seen)
    watcher = Watcher(
        config.monitor, config.interval, security=security, if_refused=if_refused, name="scaler metrics",
        on_change=told.note,
    )  # fmt: skip
    with closing(watcher):
        if config.port is not None:
            return serve(config, told.text, lambda text: say_address(text, plainness(config)))
        seen = watcher.wait(0, _PATIENCE)
        if seen is None or seen.snapshot is None:
            raise ScalerError(f"the scheduler at {watcher.address} showed nothing within {_PATIENCE:g} s")
    text = exposition(seen)
    if sys.stdout is not None and sys.stdout.isatty():  # a terminal would obey names of functions
        text = "\n".join(map(inert, text.split("\n")))
    return quietly(lambda: sys.stdout.write(text))


command = make_command("metrics", MetricsConfig, "Show a cluster as Prometheus reads it.", run)
