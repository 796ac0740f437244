"""What a block leaves open. Other tests of the same process may be closing theirs meanwhile."""

import contextlib
import gc
import os
from collections.abc import Iterator

from support.waiting import until


@contextlib.contextmanager
def no_descriptor_stays() -> Iterator[None]:
    """Fail if something is open after the block that was not open before it.

    What was open before may be gone: threads of earlier tests, and the garbage collector, close what these have left.
    """
    gc.collect()
    before = _open()
    yield
    gc.collect()
    stay = _open() - before
    # What is closed by another thread may take its time; what is leaked stays.
    until(lambda: not stay & _open(), f"descriptors that stay open: {sorted(stay)}")


def _open() -> set[tuple[str, str]]:
    """Numbers and what they stand for: a number that is given again stands for another socket, pipe or file."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the directory itself, and what another thread closes just now
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found
