"""Timing of a block."""

from __future__ import annotations

import gc
import time


class Clock:
    """`with Clock() as clock: ...`; then `seconds` and `cpu`, the CPU seconds of this process meanwhile."""

    def __enter__(self) -> Clock:
        gc.collect()  # what earlier work left is not this one's to clean up
        self._cpu = time.process_time()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.cpu = time.process_time() - self._cpu
