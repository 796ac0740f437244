"""`scaler metrics MONITOR`: a cluster as Prometheus reads it, printed once, or served with `--port`."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from scaler.cli.asking import quietly, say_address
from scaler.cli.command import make_command
from scaler.common.outlet import complain
from scaler.config import MetricsConfig
from scaler.errors import ScalerError

if TYPE_CHECKING:
    from scaler.monitor.watcher import Seen

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
    told, outages = Exposition(lambda: watcher.seen), _Outages()

    def note(seen: Seen) -> None:
        told.note(seen)
        if config.port is not None:
            outages.note(seen)

    watcher = Watcher(
        config.monitor, config.interval, security=security, if_refused=if_refused, name="scaler metrics",
        on_change=note, waits=config.wait,
    )  # fmt: skip
    with closing(watcher):
        if config.port is not None:
            outages.note(watcher.seen)
            return serve(config, told.text, lambda text: say_address(text, plainness(config)))
        seen = watcher.wait(0, _PATIENCE)
        if seen is None or seen.snapshot is None:
            raise ScalerError(f"the scheduler at {watcher.address} showed nothing within {_PATIENCE:g} s")
    text = exposition(seen)
    if sys.stdout is not None and sys.stdout.isatty():  # a terminal would obey names of functions
        text = "\n".join(map(inert, text.split("\n")))
    return quietly(lambda: sys.stdout.write(text))


class _Outages:
    """Says on standard error why there is nothing to be shown: who asks is told `scaler_up 0`, and nothing else."""

    def __init__(self) -> None:
        #: what was said since a scheduler was there
        self._said: set[str] = set()

    def note(self, seen: Seen) -> None:
        """This has been seen. Does not block."""
        why = seen.reason or ("the scheduler does not answer" if seen.silence else "")
        if why and why not in self._said:
            self._said.add(why)
            complain(f"scaler metrics shows no cluster: {why}\n")
        elif not why and self._said:
            self._said.clear()
            complain("scaler metrics shows the cluster again\n")


command = make_command("metrics", MetricsConfig, "Show a cluster as Prometheus reads it.", run)
