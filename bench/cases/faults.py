"""What a killed worker costs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

from bench import work
from bench.engines import Engine, opened
from bench.results import Sample

KILLS = {"scaler": 10, "distributed": 2}
#: seconds after which nobody will answer any more
PATIENCE = 10.0


def replace(name: str, _repetitions: int) -> Iterator[Sample]:
    """Milliseconds from `kill -9` of an engine's only worker, which is idle, to the first answer of another one."""
    kills = KILLS.get(name, 1)
    with opened(name, workers=1) as engine:
        for _ in range(kills):
            old = _ask(engine, PATIENCE)
            if not isinstance(old, int):
                raise AssertionError(f"no worker to kill: {old}")
            start = time.perf_counter()
            os.kill(old, signal.SIGKILL)
            answer: int | str = old
            while answer == old:
                answer = _ask(engine, PATIENCE)
            if isinstance(answer, str):
                yield Sample("replace", name, None, 1, answer)
                os._exit(0)  # what is broken may not close either
            yield Sample("replace", name, (time.perf_counter() - start) * 1e3, 1)


def _ask(engine: Engine, timeout: float) -> int | str:
    """The process of the worker that answers, or why none does."""
    answers: list[int | str] = []

    def ask() -> None:
        try:
            answers.extend(engine.collect([engine.submit(work.pid, 0)]))
        except BrokenProcessPool:
            answers.append("breaks")
        except Exception as error:
            answers.append(type(error).__name__)

    thread = threading.Thread(target=ask, daemon=True)  # not every engine's collect takes a timeout
    thread.start()
    thread.join(timeout)
    return answers[0] if answers else "hangs"
