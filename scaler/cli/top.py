"""`scaler_top MONITOR`: shows what a cluster does, in the terminal, as one screen of text, or as lines of JSON."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scaler.cli.asking import quietly
from scaler.cli.command import call, make_command
from scaler.config import TopConfig
from scaler.errors import ScalerError

if TYPE_CHECKING:
    from scaler.monitor.top.looking import Looking
    from scaler.transport import Security

#: columns and lines of a screen that goes to no terminal, unless COLUMNS and LINES say otherwise
_PAPER = (120, 40)


def run(config: TopConfig) -> int:
    """Shows the cluster; returns the exit code when the user leaves, or when all is said."""
    on_paper = config.once or not _has_terminal()
    if config.json:
        return _write_lines(config)
    return _write_screen(config) if on_paper else _show(config)


def _has_terminal() -> bool:
    """Textual reads from the first and draws on the last; a shell may have closed each. A dumb one shows no screens."""
    return os.environ.get("TERM") != "dumb" and all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
    )


def _write_lines(config: TopConfig) -> int:
    from scaler.monitor.top.plain import write_lines
    from scaler.monitor.watcher import Watcher  # `-h` and mistakes are answered without loading the engine

    with Watcher(config.address, config.interval, security=_security(config), name="scaler_top") as watcher:
        return quietly(lambda: write_lines(watcher, sys.stdout, once=config.once))


def _write_screen(config: TopConfig) -> int:
    from scaler.monitor.top.plain import write_screen
    from scaler.monitor.watcher import Watcher

    with Watcher(config.address, config.interval, security=_security(config), name="scaler_top") as watcher:
        size = shutil.get_terminal_size(_PAPER)
        return quietly(lambda: write_screen(watcher, _looking(config), size, sys.stdout))


def _show(config: TopConfig) -> int:
    if find_spec("textual") is None:
        raise ScalerError("this screen needs Textual: pip install scaler[top]   (--once and --json do without)")
    from scaler.monitor.top.app import TopApp
    from scaler.monitor.watcher import Watcher

    for name in (
        "COLUMNS",
        "LINES",
    ):  # a shell may have exported them; the terminal itself is asked, also when it changes
        os.environ.pop(name, None)
    app = TopApp(config.address, _looking(config))
    security = _security(config)
    with Watcher(
        config.address, config.interval, security=security, name="scaler_top", on_change=app.arrived
    ) as watcher:
        app.view.look_at = watcher.look_at
        return quietly(app.run)


def _security(config: TopConfig) -> Security | None:
    from scaler.transport import known_security

    return known_security(config.key_file, config.insecure)


def _looking(config: TopConfig) -> Looking:
    from scaler.monitor.tables import TABLES
    from scaler.monitor.top.looking import Looking

    looking = Looking()
    looking.show([table.name for table in TABLES].index(config.view), config.filter)
    return looking


command = make_command(
    "top", TopConfig, "Show what the cluster whose scheduler, or its monitor address, is at ADDRESS does.", run
)


def main() -> None:
    """The program `scaler_top`."""
    sys.exit(call(command, "scaler_top"))
