"""Whatever peers say to a scheduler that keeps durable jobs, before it is killed and after: another's job ends."""

from random import Random

import pytest
from support.enemies.jobs import JobsAmongEnemies
from support.seeds import run

#: seeds of the suite, and of `make sim`
SOME, MANY = 300, 30_000


def harm(seed: int) -> None:
    """Anything is said for a while, the scheduler is killed now and then; then the decent job has to end."""
    random = Random(seed)
    story = JobsAmongEnemies(random, Random(seed))
    story.live()
    story.end(random)


#: seeds that found something
FOUND = [
    17331,  # a job without rows ended before it was on disk, and could not be read when more was added
    1002285,  # the first part of a job was not looked at: its rows were twice of one id
    1025905,  # an agent said that a job's value is in a store: it was written, and told in an answer that is none
]


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something_find_nothing_any_more(seed: int) -> None:
    harm(seed)


def test_a_job_ends_whatever_is_said() -> None:
    run(range(SOME), harm)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(2))
def test_a_job_ends_whatever_is_said_in_many_runs(part: int) -> None:
    run(range(1_000_000 + part * MANY // 2, 1_000_000 + (part + 1) * MANY // 2), harm)
