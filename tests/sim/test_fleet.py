"""The provisioning core among batch systems that are slow, fail and lie."""

import time
from collections import Counter

import pytest
from simulator.fleet import FleetWorld


def run(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = FleetWorld(seed)
        try:
            world.play()
            assert world.direction_changes() <= 2, f"wanted goes to and fro: {world.steps}"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, second {world.now:g}: {error}") from error
        seen += world.seen
    return seen


EVER = (
    "requests", "refused", "taken though it seemed refused", "never begins", "never connects", "omitted", "killed",
    "unseen", "walltime or death",
)  # fmt: skip


def test_hosts_come_and_go_with_the_work_whatever_the_provider_does():
    seen = run(range(100))
    assert all(seen[what] for what in EVER), seen


@pytest.mark.parametrize("seed", [3983, 7397, 30333])
def test_hosts_are_not_let_go_while_nobody_knows_how_long_rows_take(seed):
    run(range(seed, seed + 1))


@pytest.mark.parametrize("seed", [101238, 200138, 200563, 211344, 215832, 217555, 721049])
def test_hosts_are_not_let_go_by_what_a_few_rows_took(seed):
    run(range(seed, seed + 1))


@pytest.mark.parametrize("seed", [7, 11, 48])
def test_who_ends_with_the_scheduler_does_not_wait_for_agents_that_nobody_sees(seed):
    run(range(seed, seed + 1))


def test_an_agent_of_a_request_whose_answer_was_lost_is_no_foreign_one():
    run(range(4884, 4885))


@pytest.mark.heavy
@pytest.mark.parametrize("first", [1_000, 6_000])
def test_hosts_come_and_go_with_the_work_in_ten_thousand_runs(first):
    began = time.monotonic()
    seen = run(range(first, first + 5_000))
    print(f"5,000 runs in {time.monotonic() - began:.0f} s: {dict(seen)}")
    assert all(seen[what] for what in EVER), seen
