"""A case of the state of this project that is found first, one sample at a time, as `bench.compare` asks for them.

Not to be imported: it is run by its path, with another state's folder as PYTHONPATH. Each line on standard input is
answered by one on standard output, the sample that the case yielded next, as JSON; when the case is over, or there are
no more lines, it ends, and the engine with it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from bench.cases import CASES

#: of each figure
REPETITIONS = 4


def main() -> None:
    """Samples until nobody asks for more."""
    case, engine = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints is no sample
    samples = CASES[case].measure(engine, REPETITIONS)
    for _line, sample in zip(sys.stdin, samples, strict=False):
        print(json.dumps(asdict(sample)), file=answers, flush=True)
    del samples  # which ends the engine


if __name__ == "__main__":
    main()
