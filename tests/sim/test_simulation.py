"""The whole engine, without its sockets and processes, under faults from a seed.

SCALER_SIM_RUNS=2000 make sim                                         more seeds
SCALER_SIM_SEED=17 pytest tests/sim -k everything                     one seed again
SCALER_SIM_SEED=17 SCALER_SIM_THOROUGH=1 pytest tests/sim -k rows     all invariants after each step of it
"""

import os

import pytest
from simulator.faults import MIXES
from simulator.runs import run

#: runs of each mix; and of those in which hosts come and go all the time, which take longer
FEW, FEWER = 40, 12
MANY = int(os.environ.get("SCALER_SIM_RUNS", "1000"))
SEED = os.environ.get("SCALER_SIM_SEED")


def seeds(first: int, count: int) -> range:
    """The seeds to run, or the one that was asked for."""
    return range(int(SEED), int(SEED) + 1) if SEED else range(first, first + count)


@pytest.mark.timeout(600)  # of computing; beside others' work it takes as much longer
@pytest.mark.parametrize("mix", MIXES)
def test_every_row_ends_once_and_rightly_and_nothing_is_left(mix: str) -> None:
    for seed in seeds(0, FEWER if MIXES[mix].walltime else FEW):
        run(seed, mix)


@pytest.mark.heavy
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("part", range(4))
def test_every_row_ends_once_and_rightly_in_many_runs(mix: str, part: int) -> None:
    for seed in seeds(1000 + part * MANY // 4, MANY // 4):
        run(seed, mix)


def test_a_seed_says_all() -> None:
    stories = {tuple((when, who) for when, who, _ in run(3, "everything").world.events) for _ in range(2)}
    assert len(stories) == 1
