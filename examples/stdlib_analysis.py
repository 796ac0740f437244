"""Unchanged dask code that reads every source file of Python's standard library, on dask's threads and on Scaler.

It parses each file, counts its functions, classes, lines and names, and adds everything up in a tree. This is pure
Python work, which threads cannot do in parallel and processes can.

    python stdlib_analysis.py            # all of it
    python stdlib_analysis.py asyncio    # one package of it
"""

import ast
import contextlib
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask

from scaler_dask import scaler_get


def analyse(path: str) -> Counter[str]:
    """What one source file holds: totals, and how often each name is used (as "name:...")."""
    warnings.filterwarnings("ignore", category=SyntaxWarning)
    counts = Counter(files=1)
    try:
        source = Path(path).read_bytes()
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a few test files are wrong on purpose
        counts["unreadable"] += 1
        return counts
    counts["lines"] += source.count(b"\n")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            counts["functions"] += 1
        elif isinstance(node, ast.ClassDef):
            counts["classes"] += 1
        elif isinstance(node, ast.Name):
            counts[f"name:{node.id}"] += 1
    return counts


def add_up(parts: list[Counter[str]]) -> Counter[str]:
    """The sum of several analyses."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def describe(counts: Counter[str]) -> str:
    """The answer in two lines."""
    names = Counter({name.removeprefix("name:"): n for name, n in counts.items() if name.startswith("name:")})
    top = ", ".join(f"{name} {n:,}" for name, n in names.most_common(8))
    return (
        f"{counts['files']:,} files ({counts['unreadable']} of them unreadable on purpose), {counts['lines']:,} lines, "
        f"{counts['classes']:,} classes, {counts['functions']:,} functions\nmost used names: {top}"
    )


@contextlib.contextmanager
def dots() -> Iterator[None]:
    """Prints a dot for each second that this takes."""
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(1.0):
            print(".", end="", flush=True)

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        yield
    finally:
        is_over.set()
        ticking.join()


def timed(scheduler: Any, collection: Any) -> tuple[Counter[str], float]:
    """The collection's value and the seconds it took."""
    start = time.perf_counter()
    with dots():
        (value,) = dask.compute(collection, scheduler=scheduler)
    return value, time.perf_counter() - start


def main() -> int:
    library = Path(sysconfig.get_path("stdlib"))
    part = library.joinpath(*sys.argv[1:])
    paths = sorted(str(path) for path in part.rglob("*.py") if "site-packages" not in path.parts)
    if not paths:
        sys.exit(f"there are no source files in {part}")
    print(f"analysing the standard library of Python {sys.version.split()[0]}: {len(paths):,} files in {part}")

    parts = [dask.delayed(analyse)(path) for path in paths]
    while len(parts) > 1:
        parts = [dask.delayed(add_up)(parts[i : i + 16]) for i in range(0, len(parts), 16)]

    runs: dict[str, Callable[..., Any] | str] = {"dask's threads": "threads", "scaler_get": scaler_get}
    answers = {}
    for name, scheduler in runs.items():
        print(f"{name:>15}: ", end="", flush=True)
        answers[name], seconds = timed(scheduler, parts[0])
        print(f" {seconds:.2f} s")

    first, second = answers.values()
    print(describe(second))
    print(f"both answers agree: {first == second}")
    print("next: your own dask code with dask.compute(..., scheduler=scaler_get); docs/index.md leads on")
    return 0 if first == second else 1


if __name__ == "__main__":
    sys.exit(main())
