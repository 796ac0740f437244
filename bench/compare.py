"""`python -m bench.compare COMMIT`: the figures of another state of this project beside those of the one that is here.

One run of a benchmark differs from the next by more than what is looked for. So the two states take turns, who begins
changes each time, and what counts is the ratio within a pair: the median over all pairs, and an interval that holds the
true one with a probability of at least 90 %, whatever the values are distributed like. If that interval allows for both
more and less than the limit, it is said that this is not decided, and more pairs have to be measured.

Each state is measured with the cases that it has itself, in a worktree of its own; figures that only one has are left
out.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.cases import CASES
from bench.engines import ENGINES, TITLES
from bench.figures import FIGURES
from bench.options import names_of
from bench.report import Report, as_markdown, as_text
from bench.runner import ROOT

#: what an interval holds the true median with, at least
CONFIDENCE = 0.9
#: figures of one kind and engine
Key = tuple[str, str]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description="Measure two states of this project in turn, and say which figures differ.",
    )
    parser.add_argument("before", help="a commit, or a folder with another state of this project")
    parser.add_argument("--after", default="HEAD", metavar="COMMIT", help="the same (default: HEAD)")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of runs (default: 8; 5 are needed for an interval)")
    parser.add_argument("--only", type=names_of(CASES), action="extend", help=f"cases: {', '.join(CASES)}")
    parser.add_argument("--engines", type=names_of(ENGINES), default=["scaler"], help="(default: scaler)")
    parser.add_argument("--worse", type=float, default=3.0, metavar="PERCENT", help="the limit (default: 3)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the runs' JSON lines; those there count")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    return parser.parse_args()


@dataclass(frozen=True)
class Ratio:
    """How many times better a figure is than before, over some pairs: above 1 it is better."""

    median: float
    #: the interval; from 0 to infinity if there are too few pairs
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


def ratio_of(pairs: Sequence[float]) -> Ratio:
    """The median of what pairs say, and its interval between two of them: it takes no distribution for granted.

    >>> ratio_of([1.0, 1.1, 0.9, 1.2, 0.8])
    Ratio(median=1.0, low=0.8, high=1.2)
    >>> ratio_of([1.0, 1.1])
    Ratio(median=1.05, low=0, high=inf)
    """
    ordered, count = sorted(pairs), len(pairs)
    below = outer = 0.0  # the probability that at most so many values are below the true median
    inside = -1
    for rank in range(count // 2):
        below += math.comb(count, rank) / 2**count
        if 2 * below > 1 - CONFIDENCE:
            break
        inside, outer = rank, below
    if not outer:
        return Ratio(statistics.median(ordered), 0, math.inf)
    return Ratio(statistics.median(ordered), ordered[inside], ordered[count - 1 - inside])


def pair_ratio(figure: str, before: float, after: float) -> float:
    """How many times better the second value is."""
    return after / before if FIGURES[figure].more else before / after


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


def _measure(tree: Path, options: argparse.Namespace, file: Path) -> None:
    command = [sys.executable, "-m", "bench", "--rounds", "1", "--engines", ",".join(options.engines)]
    if options.only:
        command += ["--only", ",".join(options.only)]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    partial = file.with_suffix(".part")
    subprocess.run(
        [*command, "--json", str(partial)], cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=False
    )
    if partial.exists():  # it had figures, though perhaps not all
        partial.rename(file)


def _values(file: Path) -> dict[Key, float]:
    """The medians of a run."""
    if not file.exists():
        return {}
    samples = Report.samples_of(Report.lines(file))
    report = Report(samples)
    keys = {(sample.figure, sample.engine) for sample in samples}
    return {key: value for key in keys if (value := report.value(*key)) is not None}


def compared(runs: Sequence[tuple[dict[Key, float], dict[Key, float]]], limit: float) -> Iterator[list[str]]:
    """Rows of a table from pairs of runs, and of what is worse by more than the limit, a fraction."""
    yield ["Figure", "before", "now", "times better", "90 % between", "pairs", ""]
    seen = {key for pair in runs for side in pair for key in side}
    for figure in FIGURES:
        for engine in (engine for engine in ENGINES if (figure, engine) in seen):
            key = figure, engine
            both = [(a[key], b[key]) for a, b in runs if a.get(key) and b.get(key)]
            if not both:
                continue
            ratio, form = ratio_of([pair_ratio(figure, *pair) for pair in both]), FIGURES[figure].form
            yield [
                FIGURES[figure].label.strip() + ("" if engine == "scaler" else f" ({TITLES[engine]})"),
                *(form.format(statistics.median(side)) for side in zip(*both, strict=True)),
                f"{ratio.median:.3f}",
                f"{ratio.low:.2f} and {ratio.high:.2f}",
                str(len(both)),
                ratio.verdict(limit),
            ]


def main() -> int:
    """Returns 1 if a figure is worse by more than the limit."""
    options = _arguments()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scaler-compare-")))
        before = stack.enter_context(_state(options.before, folder / "before"))
        after = stack.enter_context(_state(options.after, folder / "after"))
        kept = options.keep or folder
        kept.mkdir(parents=True, exist_ok=True)
        runs = []
        for number in range(options.pairs):
            sides = [(before, kept / f"{number}.before.jsonl"), (after, kept / f"{number}.after.jsonl")]
            for tree, file in sides if number % 2 == 0 else reversed(sides):
                if not file.exists():
                    print(f"pair {number + 1} of {options.pairs}: {file.stem}", file=sys.stderr, flush=True)
                    _measure(tree, options, file)
            runs.append((_values(sides[0][1]), _values(sides[1][1])))
        rows = list(compared(runs, options.worse / 100))
    print((as_markdown if options.markdown else as_text)(rows))
    return 1 if any(row[-1] == "WORSE" for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
