"""The plan: rounds of cases, in each case the engines in turn, every measurement in a fresh and contained process."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.cases import CASES
from bench.containment import adopt_orphans, run
from bench.figures import FIGURES
from bench.results import Sample, read

ROOT = Path(__file__).parent.parent
#: of one core: more than this used by other programs falsifies what we measure
DISTURBANCE = 0.15


@dataclass(frozen=True)
class Plan:
    cases: Collection[str]
    engines: Collection[str]
    rounds: int
    #: within one process
    repetitions: int
    #: seconds after which no further measurement begins, and after which one that runs is ended
    budget: float

    def steps(self) -> Iterator[tuple[int, str, str]]:
        """Round, case and engine, in the order of measuring; who begins changes with the round."""
        for turn in range(self.rounds):
            for name in self.cases:
                case = CASES[name]
                engines = [e for e in case.engines if e in self.engines and turn < case.rounds.get(e, self.rounds)]
                shift = turn % len(engines) if engines else 0
                for engine in engines[shift:] + engines[:shift]:
                    yield turn, name, engine


@dataclass(frozen=True)
class Run:
    samples: list[Sample]
    #: measurements that failed
    failures: int
    #: measurements
    made: int
    #: measurements during which other programs were busy
    disturbed: int


def execute(plan: Plan, say: Callable[[str], None]) -> Run:
    """Measure; `say` is told of each measurement as it ends."""
    adopt_orphans()
    begin = time.monotonic()
    samples: list[Sample] = []
    failed: set[tuple[str, str]] = set()
    made = disturbed = 0
    with tempfile.TemporaryDirectory(prefix="scaler-bench-") as folder:
        # a key of our own: the daemons and their clients find it, and nothing is made in the user's home
        environment = {**os.environ, "SCALER_KEY_FILE": f"{folder}/key"}
        environment.pop("SCALER_ADDRESS", None)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        for number, (turn, case, engine) in enumerate(plan.steps()):
            if (case, engine) in failed:
                continue
            rest = plan.budget - (time.monotonic() - begin)
            if rest < 1:
                say(f"stopped before {case} on {engine}, round {turn + 1}: {plan.budget:.0f} s are used up")
                break
            file = Path(folder, f"{number}.jsonl")
            file.touch()
            arguments = [sys.executable, "-m", "bench.measure", case, engine, str(plan.repetitions), str(file)]
            outcome = run(arguments, environment, min(CASES[case].limit, rest))
            got = read(file)
            samples += got
            made += 1
            disturbed += outcome.foreign > DISTURBANCE
            at = f"[{time.monotonic() - begin:3.0f} s] round {turn + 1} {case:<10} {engine:<12}"
            if outcome.error:
                failed.add((case, engine))
                say(f"{at} FAILED: {outcome.error}")
            else:
                left = f"; processes left behind: {outcome.left}" if outcome.left else ""
                busy = f"; others used {outcome.foreign:.1f} cores" if outcome.foreign > DISTURBANCE else ""
                say(f"{at} {_summary(got)}{left}{busy}")
    return Run(samples, len(failed), made, disturbed)


def _summary(samples: list[Sample]) -> str:
    last = {sample.figure: sample for sample in samples}
    return ", ".join(FIGURES[name].form.format(s.value) if s.value is not None else s.note for name, s in last.items())
