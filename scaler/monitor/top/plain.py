"""`scaler_top` without a terminal to draw on: one screen as text, or snapshots as lines of JSON."""

from __future__ import annotations

import time
from typing import TextIO

from scaler.errors import ConnectionTimeout
from scaler.monitor.records import json_line
from scaler.monitor.sayable import sayable
from scaler.monitor.top.looking import Looking
from scaler.monitor.top.screen import HEIGHT, WIDTH, draw, text_of
from scaler.monitor.watcher import Seen, Watcher

#: seconds that the first snapshot may take
_PATIENCE = 10.0


def first(watcher: Watcher) -> Seen:
    """The first snapshot. Blocks; raises `ConnectionTimeout`."""
    end, version = time.monotonic() + _PATIENCE, 0
    while (left := end - time.monotonic()) > 0:
        seen = watcher.wait(version, left)
        if seen is not None and seen.snapshot is not None:
            return seen
        version = watcher.seen.version
    reason = watcher.seen.reason or "it sent none"
    raise ConnectionTimeout(f"the scheduler at {watcher.address} has shown nothing within {_PATIENCE:g} s ({reason})")


def write_screen(watcher: Watcher, looking: Looking, size: tuple[int, int], out: TextIO) -> None:
    """One screen of so many columns and lines, or of the smallest there is. Raises `ConnectionTimeout`."""
    seen = sayable(first(watcher), out.encoding)
    screen = draw(looking, seen, watcher.address, max(size[0], WIDTH), max(size[1], HEIGHT), time.time(), views=False)
    out.write(text_of(screen).rstrip("\n") + "\n")
    out.flush()


def write_lines(watcher: Watcher, out: TextIO, *, once: bool) -> None:
    """One line for each snapshot, and for each time that the scheduler is lost, until interrupted; or the first one."""
    if once:
        out.write(json_line(first(watcher)) + "\n")
        return
    for seen in watcher:
        if (seen.snapshot is not None and not seen.silence) or not seen.is_connected:
            out.write(json_line(seen) + "\n")
            out.flush()
