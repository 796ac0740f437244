"""What has ended is gone at once: schedulers and agents look for garbage that refers to itself but rarely.

An agent made such a piece with each lone task; they were 4 MB until the collector came. A scheduler did with each
question why a row waits, and kept the arguments of batches that had ended by it.
"""

import gc
from collections import Counter

from simulator.moves import Moves
from simulator.runs import run

#: mixes in which no scheduler and no agent dies: what a dead process leaves is not ours to count
LASTING = ("calm", "rows", "workers", "connections", "clients", "unwaited", "threads", "leaving")


def run_tidily(seed: int, mix: str) -> Moves:
    """One run, at whose end no object of this project is left that only the collector can free; what moved in it."""
    gc.collect()
    gc.disable()
    try:
        cluster = run(seed, mix)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()  # with all still there
        found = Counter(f"{type(item).__module__}.{type(item).__qualname__}" for item in gc.garbage)
        moves = cluster.world.moves
        del cluster
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    left = {name: count for name, count in found.items() if name.startswith("scaler.")}
    assert not left, f"seed {seed} of the mix {mix!r} leaves garbage: {left}"
    return moves
