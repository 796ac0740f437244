"""Runs that once left garbage; those of `test_simulation.py` in which nobody dies are asked for it as well."""

import pytest
from simulator.garbage import run_tidily


@pytest.mark.parametrize(
    ("mix", "seed"), [("workers", 20), ("unwaited", 3), ("unwaited", 22), ("threads", 16), ("disks", 22)]
)
def test_nothing_that_ends_is_left_to_the_garbage_collector(mix: str, seed: int) -> None:
    run_tidily(seed, mix)
