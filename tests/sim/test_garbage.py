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
SEEDS = 3


@pytest.mark.parametrize("mix", MIXES)
def test_nothing_that_ends_is_left_to_the_garbage_collector(mix: str) -> None:
    for seed in range(SEEDS):
        assert left_by(seed, mix) == {}, f"mix {mix!r}, seed {seed}"


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
