"""Whatever the records of a journal say that are whole: a scheduler begins with it, and its jobs can be used.

A standby has the records that another scheduler has sent.
"""

from random import Random

import pytest
from support.enemies.records import AlteredRecords
from support.seeds import run

#: seeds of the suite, and of `make sim`
SOME, MANY = 200, 10_000


def harm(seed: int) -> None:
    """Records are changed, three times one after the other."""
    story = AlteredRecords(Random(seed))
    story.live()
    for _ in range(3):
        story.begin_again()
        story.use()


def test_a_record_that_was_early_and_is_wrong_does_not_cost_the_one_that_it_waited_for_its_place() -> None:
    """The journal was cut there, and what came next was written over a record that still counted."""
    harm(171)


def test_no_record_of_a_journal_ends_a_scheduler() -> None:
    run(range(SOME), harm)


@pytest.mark.heavy
def test_no_record_of_a_journal_ends_a_scheduler_in_many_runs() -> None:
    run(range(1_000_000, 1_000_000 + MANY), harm)
