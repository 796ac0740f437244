"""Somebody says that it is the other one of two schedulers, and then anything: the process and its journal stay."""

from random import Random

import pytest
from support.enemies.journals import HostileLeader, HostileStandby, a_directory
from support.enemies.pair import PairAmongEnemies
from support.seeds import run

#: seeds of the suite, and of `make sim`
SOME, MANY = 150, 10_000


def harm(seed: int) -> None:
    """It leads, stands by, has heard of any term and any roster; in the end the scheduler can be promoted."""
    random = Random(seed)
    story = PairAmongEnemies(random)
    for _ in range(random.choice([3, 8, 20, 40])):
        story.step()
    story.end()


def harm_copies(seed: int) -> None:
    """It has a copy of the journal that is written here, or sends one: what is here can be used in the end."""
    random = Random(seed)
    with a_directory() as path:
        story = random.choice((HostileLeader, HostileStandby))(random, path)
        for _ in range(random.choice([3, 8, 20, 40])):
            story.step()
        story.end()


def test_whoever_claims_to_be_the_other_one_ends_no_scheduler() -> None:
    run(range(SOME), harm)


def test_whatever_is_said_of_a_copy_a_journal_can_be_used() -> None:
    run(range(SOME), harm_copies)


@pytest.mark.heavy
def test_whoever_claims_to_be_the_other_one_ends_no_scheduler_in_many_runs() -> None:
    run(range(1_000_000, 1_000_000 + MANY), harm)


@pytest.mark.heavy
def test_whatever_is_said_of_a_copy_a_journal_can_be_used_in_many_runs() -> None:
    run(range(1_000_000, 1_000_000 + MANY), harm_copies)
