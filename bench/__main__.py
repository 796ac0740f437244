"""The command line: `python -m bench`, or `make bench`. See docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.cases import CASES
from bench.engines import ENGINES
from bench.figures import FIGURES
from bench.options import end_in_order, names_of
from bench.report import Report, as_markdown, as_text
from bench.results import Sample
from bench.runner import ROOT, Plan, execute
from bench.targets import verdicts

RESULTS = ROOT / "bench" / "results"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="This engine beside others on the same work, with 2 workers each."
    )
    names: dict[str, Any] = {"metavar": "NAME,..."}
    parser.add_argument("--only", type=names_of(CASES), action="extend", help=f"cases: {', '.join(CASES)}", **names)
    parser.add_argument("--engines", type=names_of(ENGINES), default=list(ENGINES), help=", ".join(ENGINES), **names)
    parser.add_argument("--quick", action="store_true", help="one round, one repetition, less of what takes long")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which it ends (default: 480)")
    parser.add_argument("--json", metavar="FILE", help="where the JSON lines go; - for standard output")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show these JSON lines of an earlier run instead")
    return parser.parse_args()


def _run_facts() -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": git.stdout.strip(),
        "python": platform.python_version(),
        "distributed": _version("distributed"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.platform(),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _earlier(path: Path) -> tuple[list[Sample], dict[str, Any]]:
    """The samples in a file of JSON lines, and the facts of their run."""
    samples, facts = [], {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if line["figure"] not in FIGURES:
            continue
        values = line["samples"] or [None]
        samples += [Sample(line["figure"], line["engine"], value, line["rows"], line["note"]) for value in values]
        facts = {name: line[name] for name in (*_run_facts(), "measurements", "disturbed")}
    if not samples:
        raise SystemExit(f"python -m bench: there are no figures in {path}")
    return samples, facts


def main() -> int:
    """Returns 1 if a measurement failed; missed targets are no failure."""
    options = _arguments()
    signal.signal(signal.SIGTERM, end_in_order)
    failures = 0
    if options.read:
        samples, facts = _earlier(options.read)
    else:
        rounds, repetitions = (1, 1) if options.quick else (options.rounds, 2)
        cases = options.only or [name for name, case in CASES.items() if not case.on_demand]
        plan = Plan(cases, options.engines, rounds, repetitions, options.budget)
        facts = _run_facts()
        run = execute(plan, lambda line: print(line, file=sys.stderr, flush=True))
        samples, failures = run.samples, run.failures
        facts |= {"measurements": run.made, "disturbed": run.disturbed}
    report = Report(samples)
    if options.json != "-":
        _show(report, facts, options.markdown)
    if not options.read or options.json:
        _write(report, facts, options.json)
    return 1 if failures else 0


def _show(report: Report, facts: dict[str, Any], markdown: bool) -> None:
    render = as_markdown if markdown else as_text
    for _title, rows in report.tables():
        print(f"\n{render(rows)}")
    print(f"\n{render(list(verdicts(report)))}")
    print(
        f"\n{facts['time']}, commit {facts['commit']}, Python {facts['python']}, distributed {facts['distributed']}, "
        f"{facts['cores']} cores, {facts['machine']}. Medians; in brackets how many times better Scaler is."
    )
    if facts["disturbed"]:
        print(
            f"Other programs were busy during {facts['disturbed']} of {facts['measurements']} measurements: "
            "don't trust these figures, the latencies least of all."
        )


def _write(report: Report, facts: dict[str, Any], where: str | None) -> None:
    lines = "".join(f"{line}\n" for line in report.json_lines(facts))
    if where == "-":
        print(lines, end="")
        return
    path = Path(where) if where else RESULTS / f"{facts['time'][:19].replace(':', '')}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines)
    print(f"JSON lines: {path}", file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
