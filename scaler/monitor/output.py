"""The last lines that a worker's tasks have printed, as a monitor has been told."""

from __future__ import annotations

import json
from dataclasses import dataclass

from scaler.monitor.formats import inert
from scaler.protocol.messages import QueryResult

#: lines that are shown, and characters of each
_LINES, _LONGEST = 40, 500


@dataclass(frozen=True)
class LastOutput:
    """What one worker has answered; texts are fit for a screen."""

    #: stdout or stderr, and what was printed there, the last line last
    lines: tuple[tuple[str, str], ...] = ()
    #: why there is no answer; empty if there is
    error: str = ""


def output_of(result: QueryResult) -> LastOutput:
    """An answer, of which nothing is believed.

    >>> output_of(QueryResult(1, bodies=[b'{"stream": "stderr", "text": "\\\\u001b[31mred"}'])).lines
    (('stderr', '?[31mred'),)
    """
    if result.error:
        return LastOutput(error=inert(result.error))
    lines = []
    for line in bytes(result.bodies[0]).decode("utf-8", "replace").split("\n")[-_LINES:]:
        try:
            said = json.loads(line)
            stream, text = said["stream"], said["text"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if stream in ("stdout", "stderr") and isinstance(text, str):
            lines.append((stream, inert(text.expandtabs()[:_LONGEST])))
    return LastOutput(tuple(lines))


def place_of(worker: str) -> tuple[int, int] | None:
    """Agent and slot of a worker as snapshots call it; None if that is no name of one.

    >>> place_of("3.12"), place_of("3."), place_of("node-7"), place_of("4294967296.1")
    ((3, 12), None, None, None)
    """
    agent, point, slot = worker.partition(".")
    if not (point and all(part.isascii() and part.isdigit() and len(part) <= 10 for part in (agent, slot))):
        return None
    place = int(agent), int(slot)
    return place if max(place) < 1 << 32 else None
