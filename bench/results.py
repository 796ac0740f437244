"""What a measurement says, and where it is written down for the process that ordered it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """One value of one figure on one engine. Without a value, `note` says what happened instead."""

    figure: str
    engine: str
    value: float | None
    #: tasks that were measured, or whatever the figure is about
    rows: int = 0
    note: str = ""


def append(path: Path, sample: Sample) -> None:
    """Add a sample to a file, at once: what comes later may fail."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(sample)) + "\n")


def read(path: Path) -> list[Sample]:
    """The samples in a file."""
    return [Sample(**json.loads(line)) for line in path.read_text().splitlines()]
