"""Runs of a property over many seeds."""

from collections.abc import Callable, Iterable
from typing import Any


def run(seeds: Iterable[int], how: Callable[[int], Any]) -> None:
    """Call it with each seed; a failure names the seed, and how to have it again."""
    for seed in seeds:
        try:
            how(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {how.__name__}({seed}) shows it again") from error
