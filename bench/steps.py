"""The cases of the state of this project that is found first, one sample at a time, as `bench.compare` asks for them.

Not to be imported: it is run by its path, with another state's folder as PYTHONPATH. Each line on standard input is
answered by one on standard output, the samples that the case yielded next, as JSON; when there are no more lines it
ends, and the engine with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from dataclasses import asdict

from bench.cases import CASES
from bench.results import Sample

#: of a case, before it opens a new engine
REPETITIONS = 6


def _without_end(case: str, engine: str) -> Generator[Sample]:
    while True:
        yield from CASES[case].measure(engine, REPETITIONS)


def main() -> None:
    """Samples until nobody asks for more."""
    case, engine = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no sample
    samples = _without_end(case, engine)
    for _line in sys.stdin:
        print(json.dumps(asdict(next(samples))), file=answers, flush=True)
    samples.close()


if __name__ == "__main__":
    main()
