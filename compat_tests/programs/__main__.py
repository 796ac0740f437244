"""Programs of users under several engines, and the score card.

    python -m compat_tests.programs                           # Scaler and threads
    python -m compat_tests.programs --engines all climate     # one program, under all engines

The exit code is 1 if a program fails under Scaler, gives other results than under threads, is not over in time, or
leaves processes or files behind.
"""

from __future__ import annotations

import argparse
import sys

from compat_tests.programs.engines import ENGINES, PROGRAMS, REFERENCE, source
from compat_tests.programs.running import Outcome, differences, run

#: those that decide the exit code
JUDGED = ("scaler", "scaler-client")
#: how many problems of one run are printed
_LINES = 5


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.programs", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"some of {', '.join(PROGRAMS)}; all if none is given")
    parser.add_argument("--engines", default="scaler,scaler-client", help=f"all, or some of {', '.join(ENGINES)}")
    options = parser.parse_args()
    names = options.names or list(PROGRAMS)
    asked = list(ENGINES) if options.engines == "all" else options.engines.split(",")
    unknown = [name for name in names if name not in PROGRAMS] + [name for name in asked if name not in ENGINES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join((*PROGRAMS, *ENGINES))}")
    engines = [REFERENCE, *(engine for engine in asked if engine != REFERENCE)]
    print(f"{'program':12}" + "".join(f"{engine:>16}" for engine in engines), flush=True)
    wrong = False
    for name in names:
        outcomes: dict[str, Outcome] = {}
        print(f"{name:12}", end="", flush=True)
        for engine in engines:
            text = source(name, engine)
            if text is None:
                print(f"{'–':>16}", end="", flush=True)
                continue
            outcome = outcomes[engine] = run(name, text)
            expected = outcomes[REFERENCE].results
            if outcome.results is not None and expected is not None:
                outcome.problems += differences(expected, outcome.results)
            cell = f"{'failed' if outcome.problems else 'ok'} {outcome.seconds:.1f} s"
            print(f"{cell:>16}", end="", flush=True)
            wrong |= bool(outcome.problems) and engine in (REFERENCE, *JUDGED)
        print()
        for engine, outcome in outcomes.items():
            for line in outcome.problems[:_LINES]:
                print(f"    {engine}: {line}", flush=True)
            if len(outcome.problems) > _LINES:
                print(f"    {engine}: and {len(outcome.problems) - _LINES} more", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
