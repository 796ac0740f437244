"""What has ended is gone at once: schedulers and agents look for garbage that refers to itself but rarely.

An agent made such a piece with each lone task; they were 4 MB until the collector came. A scheduler did with each
question why a row waits, and kept the arguments of batches that had ended by it.
"""

import gc
from collections import Counter

import pytest
from simulator.runs import run

#: mixes in which no scheduler and no agent dies: what a dead process leaves is not ours to count
MIXES = ("calm", "rows", "workers", "connections", "clients", "unwaited", "threads", "leaving")
#: seeds of each; and such as found something that those don't meet: rows of a worker that goes
SEEDS = 3
FOUND = [("workers", 20), ("unwaited", 3), ("unwaited", 22), ("threads", 16), ("disks", 22)]


@pytest.mark.parametrize(("mix", "seed"), [*((mix, seed) for mix in MIXES for seed in range(SEEDS)), *FOUND])
def test_nothing_that_ends_is_left_to_the_garbage_collector(mix: str, seed: int) -> None:
    assert left_by(seed, mix) == {}


def left_by(seed: int, mix: str) -> Counter[str]:
    """How many objects of this project only the collector can free, by class, at the end of a run, all still there."""
    gc.collect()
    gc.disable()
    try:
        cluster = run(seed, mix)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.garbage)
        del cluster
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return Counter({name: count for name, count in found.items() if name.startswith("scaler.")})
