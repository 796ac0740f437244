"""What a client says and a scheduler passes on ends no agent, nor does what workers say; others' rows end."""

from random import Random

import pytest
from fuzz.targets import worker_says
from support.enemies.hosts import HostsAmongEnemies
from support.seeds import run

#: seeds of the suite, and of `make sim`
SOME, MANY = 200, 50_000


def harm(seed: int) -> None:
    """They say anything for a while; then another client's rows have to end."""
    random = Random(seed)
    cluster = HostsAmongEnemies(random, worker_says)
    for _ in range(random.choice([3, 8, 20, 40])):
        cluster.step()
    cluster.end()


def test_no_client_and_no_worker_ends_an_agent() -> None:
    run(range(SOME), harm)


@pytest.mark.heavy
def test_no_client_and_no_worker_ends_an_agent_in_many_runs() -> None:
    run(range(1_000_000, 1_000_000 + MANY), harm)
