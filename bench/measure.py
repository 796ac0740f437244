"""The process that measures one case on one engine: `python -m bench.measure CASE ENGINE REPETITIONS FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.cases import CASES
from bench.results import append


def main() -> None:
    case, engine, repetitions, file = sys.argv[1:]
    for sample in CASES[case].measure(engine, int(repetitions)):
        append(Path(file), sample)


if __name__ == "__main__":
    main()
