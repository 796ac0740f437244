"""`python -m bench.compare COMMIT`: the figures of another state of this project beside those of the one that is here.

One measurement differs from the next by more than what is looked for, and a machine is slower for a minute now and
then. So both states have their engines open at the same time and are asked for one sample each in turn, who is first is
left to chance, and what counts is the ratio within such a pair.

Engines differ as well, as long as they live: a data frame is shuffled a tenth faster by one than by the next of the
very same state, by where its memory happens to lie. Any number of pairs of one opening repeats what that one is like.
So each opening is for a few samples of each figure, the first of which is left out, and says their pairs' median. What
is told is the median over all openings, and an interval that holds the true one with a probability of at least 90 %,
whatever the values are distributed like. If that interval allows for both more and less than the limit, it is said that
this is not decided, and more openings have to be measured.

Each state is measured with the cases that it has itself, in a worktree of its own; figures that only one has are left
out.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cases import CASES
from bench.engines import ENGINES, TITLES
from bench.figures import FIGURES
from bench.options import end_in_order, names_of
from bench.report import as_markdown, as_text
from bench.results import Sample
from bench.runner import ROOT

#: what an interval holds the true median with, at least
CONFIDENCE = 0.9
#: of the engines, at least: fewer decide nothing
OPENINGS = 5
#: seconds that an engine may take to end
ENDING = 30.0
#: of what a case said that failed, at most
LINES = 20
#: a figure of an engine, and by it what the pairs of each opening say
Key = tuple[str, str]
Pairs = Mapping[Key, Sequence[Sequence[tuple[float, float]]]]


def _arguments() -> argparse.Namespace:
    cases = [name for name, case in CASES.items() if not case.on_demand]
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description="Measure two states of this project in turn, and say which figures differ.",
    )
    parser.add_argument("before", help="a commit, or a folder with another state of this project")
    parser.add_argument("--after", default="HEAD", metavar="COMMIT", help="the same (default: HEAD)")
    parser.add_argument(
        "--seconds", type=float, default=120.0, help="for each case (default: 120), or longer for few openings"
    )
    parser.add_argument("--only", type=names_of(CASES), default=cases, metavar="NAME,...", help=", ".join(CASES))
    parser.add_argument(
        "--engines", type=names_of(ENGINES), default=None, help="(default: scaler, or the first that a case is for)"
    )
    parser.add_argument("--worse", type=float, default=3.0, metavar="PERCENT", help="the limit (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where each pair goes, as a line of JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    return parser.parse_args()


@dataclass(frozen=True)
class Ratio:
    """How many times better a figure is than before, over some openings: above 1 it is better."""

    median: float
    #: the interval; from 0 to infinity if there are too few openings
    low: float
    high: float

    def verdict(self, limit: float) -> str:
        """Whether it is worse by more than `limit`, a fraction.

        >>> [Ratio(1.0, low, high).verdict(0.03) for low, high in [(1.1, 1.2), (0.98, 1.1), (0.8, 0.9), (0.9, 1.0)]]
        ['better', 'not worse', 'WORSE', 'not decided']
        """
        if self.low > 1:
            return "better"
        if self.low >= 1 - limit:
            return "not worse"
        return "WORSE" if self.high < 1 - limit else "not decided"


def ratio_of(said: Sequence[float]) -> Ratio:
    """The median of what openings say, and its interval between two of them: it takes no distribution for granted.

    >>> ratio_of([1.0, 1.1, 0.9, 1.2, 0.8])
    Ratio(median=1.0, low=0.8, high=1.2)
    >>> ratio_of([1.0, 1.1])
    Ratio(median=1.05, low=0, high=inf)
    """
    ordered, count = sorted(said), len(said)
    below, inside = 0.0, -1  # the probability that at most so many values are below the true median
    for rank in range(count // 2):
        below += math.comb(count, rank) / 2**count
        if 2 * below > 1 - CONFIDENCE:
            break
        inside = rank
    if inside < 0:
        return Ratio(statistics.median(ordered), 0, math.inf)
    return Ratio(statistics.median(ordered), ordered[inside], ordered[count - 1 - inside])


@contextlib.contextmanager
def _state(name: str, folder: Path) -> Iterator[Path]:
    """The folder of a state: that which was given, or a worktree of a commit as long as it is needed."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(folder), name], cwd=ROOT, check=True)
    try:
        for package in "scaler", "scaler_dask", "bench":  # as one that is installed
            compileall.compile_dir(folder / package, quiet=2)
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=False)


class _Incomparable(Exception):
    """A case has failed, or has other figures in the two states."""


class _Side:
    """A case of one state, in a process of its own that has its engine open."""

    def __init__(self, tree: Path, case: str, engine: str) -> None:
        command = [sys.executable, str(ROOT / "bench" / "steps.py"), case, engine]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def sample(self) -> Sample | None:
        """What it measures next; None if that was all, or it has failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        return Sample(**json.loads(line)) if line else None

    def has_failed(self) -> bool:
        """Whether it ended in another way than by having no more samples; to be asked when there are none."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING)
        return self._process.returncode != 0

    def last_lines(self) -> str:
        """What it said last."""
        self._said.seek(0)
        return "".join(self._said.readlines()[-LINES:])

    def close(self) -> None:
        """End it, and its engine."""
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.communicate(timeout=ENDING)
        self._process.kill()
        self._process.wait()
        self._said.close()


def _pairs(before: Path, after: Path, case: str, engine: str, chance: random.Random) -> Iterator[tuple[Sample, Sample]]:
    """Samples of an opening of the two states.

    The first of a figure is left out, as engines have just been opened, unless it has no other: that of a case which
    starts what it measures. Raises `_Incomparable`.
    """
    #: of each figure, the first; None once there has been another
    first: dict[str, tuple[Sample, Sample] | None] = {}
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(contextlib.closing(_Side(tree, case, engine))) for tree in (before, after)]
        while True:
            if chance.random() < 0.5:
                old, new = sides[0].sample(), sides[1].sample()
            else:
                new, old = sides[1].sample(), sides[0].sample()
            if old is None or new is None:
                for when, side, sample in zip(("before", "now"), sides, (old, new), strict=True):
                    if sample is None and side.has_failed():
                        raise _Incomparable(f"{case} failed {when}:\n{side.last_lines()}")
                yield from filter(None, first.values())
                return
            if old.figure != new.figure:
                raise _Incomparable(f"{case}: the two states have other figures, {old.figure} and {new.figure}")
            if old.figure in first:
                first[old.figure] = None
                yield old, new
            else:
                first[old.figure] = old, new


def compared(pairs: Pairs, limit: float) -> Iterator[list[str]]:
    """Rows of a table, with what is worse by more than the limit, a fraction."""
    yield ["Figure", "before", "now", "times better", "90 % between", "openings", "pairs", ""]
    for figure in FIGURES:
        for engine in (engine for engine in ENGINES if pairs.get((figure, engine))):
            openings, form, times_better = pairs[figure, engine], FIGURES[figure].form, FIGURES[figure].times_better
            ratio = ratio_of([statistics.median(times_better(b, a) for a, b in opening) for opening in openings])
            both = [pair for opening in openings for pair in opening]
            yield [
                FIGURES[figure].label.strip() + ("" if engine == "scaler" else f" ({TITLES[engine]})"),
                *(form.format(statistics.median(side)) for side in zip(*both, strict=True)),
                f"{ratio.median:.3f}",
                f"{ratio.low:.3f} and {ratio.high:.3f}",
                str(len(openings)),
                str(len(both)),
                ratio.verdict(limit),
            ]


def _engines_of(case: str, wanted: Sequence[str] | None) -> list[str]:
    """Those of the wanted engines that a case is for; without any wish, `scaler` or else its first."""
    engines = CASES[case].engines
    if wanted is None:
        return ["scaler"] if "scaler" in engines else [engines[0]]
    found = [engine for engine in wanted if engine in engines]
    if not found:
        print(f"{case} is for {', '.join(engines)} only: not compared", file=sys.stderr)
    return found


def _measure(before: Path, after: Path, options: argparse.Namespace) -> Iterator[tuple[int, Sample, Sample]]:
    """Number of the opening, and a pair."""
    for case in options.only:
        chance = random.Random(case)  # by turns a figure's third sample, say, might have the same side first each time
        for engine in _engines_of(case, options.engines):
            print(f"{case} on {engine}, {options.seconds:.0f} s", file=sys.stderr, flush=True)
            end, opening = time.monotonic() + options.seconds, 0
            try:
                while opening < OPENINGS or time.monotonic() < end:
                    for old, new in _pairs(before, after, case, engine, chance):
                        yield opening, old, new
                    opening += 1
            except _Incomparable as why:
                print(why, file=sys.stderr)


def main() -> int:
    """Returns 1 if a figure is worse by more than the limit."""
    options = _arguments()
    signal.signal(signal.SIGTERM, end_in_order)
    pairs: dict[Key, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scaler-compare-")))
        before = stack.enter_context(_state(options.before, folder / "before"))
        after = stack.enter_context(_state(options.after, folder / "after"))
        file = stack.enter_context(options.json.open("a")) if options.json else None
        for opening, old, new in _measure(before, after, options):
            if old.value and new.value:
                pairs[old.figure, old.engine][opening].append((old.value, new.value))
                if file is not None:
                    line = {"figure": old.figure, "engine": old.engine, "opening": opening}
                    print(json.dumps({**line, "before": old.value, "now": new.value}), file=file, flush=True)
    rows = list(compared({key: [*by_opening.values()] for key, by_opening in pairs.items()}, options.worse / 100))
    print((as_markdown if options.markdown else as_text)(rows))
    return 1 if any(row[-1] == "WORSE" for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
