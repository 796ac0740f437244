"""Functions that tests have run, and that leave a trace of it."""

import time
from collections.abc import Callable
from pathlib import Path


def noting(path: Path, seconds: float = 0.0) -> Callable[[int], int]:
    """A function that notes its argument, takes a while, and triples it."""
    name = str(path)

    def noted(x: int) -> int:
        import os
        import time

        file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{x}\n".encode())
        os.close(file)
        time.sleep(seconds)
        return 3 * x

    return noted


def working() -> Callable[[int, float], int]:
    """A function that takes so many seconds and returns its first argument; it travels whole to where tests are not."""

    def work(n: int, seconds: float) -> int:
        time.sleep(seconds)
        return n

    return work
