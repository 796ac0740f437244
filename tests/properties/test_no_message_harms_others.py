"""Whatever a peer says of what is there, or of what can't be: the others' work ends as it should, and no defect shows.

Rows named twice, ids of others, batches that don't exist: each costs at most the one who says it.
"""

from random import Random

import pytest
from simulator import checks
from simulator.hostile_messages import Hostile
from simulator.scripted import FakeScheduler, graph, task
from simulator.world import World

from scaler.protocol import messages as m

#: seeds of the suite, and of `make sim`
SOME, MANY = 1_500, 200_000
BATCHES = (10, 14, 18)
IDS = (1, *range(10, 20), 1_000_014, 1_000_018, 2_000_010)


def harm(seed: int) -> None:
    """A client and an agent of several say anything; then all the others have to come to an end."""
    random = Random(seed)
    fake = FakeScheduler(*random.choice([(1,), (1, 2), (3, 1)]))
    hostile, *decent = fake.agents
    client, other = fake.client(), fake.client()
    for number in (client, other):
        fake.say(number, graph(10, [[], [0], [0, 1]], [2]), task(14, 4), task(18, 2, m.TOGETHER))
    lead_a_life(random, fake, (client, other))
    messages = Hostile(random, (client, other, *fake.agents), IDS)
    for _ in range(random.choice([1, 3, 8, 20])):
        fake.now += random.choice([0, 0.01, 0.1])
        fake.say(random.choice([hostile, client]), messages.message())
        checks.check_scheduler(World(0), fake.core)
    decent.append(fake.agent(8))
    fake.lose(hostile)
    batches = fake.core.state.clients[other].batches
    for _ in range(12):
        for agent in decent:
            fake.end_all(agent, other, m.VALUES_EACH)
    left = [batch.id for batch in batches.values() if batch.id in BATCHES]
    assert not left, f"batches {left} have not ended"


def lead_a_life(random: Random, fake: FakeScheduler, clients: tuple[int, int]) -> None:
    """What may have happened before: values in stores, rows that were cancelled and claimed, values that are read."""
    for number in clients:
        for agent in fake.agents:
            if random.random() < 0.4:
                fake.end_all(agent, number, random.choice([m.STORED, m.VALUES_EACH, m.VALUES_LIST]))
        batch = random.choice([14, 18])
        lo, hi = random.choice([(0, 1), (0, 2), (1, 2)])
        said = random.choice(["nothing", "cancel", "force", "claim", "read"])
        if said == "claim":
            fake.claim(number, (batch, lo, hi))
        elif said == "read":
            fake.say(number, m.ObjectRequest(m.u32([number]), m.u64([12])))
        elif said != "nothing":
            fake.cancel(number, (batch, lo, hi), force=said == "force")


def run(seeds: range) -> None:
    for seed in seeds:
        try:
            harm(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: harm({seed}) shows it again") from error


def test_a_hostile_peer_harms_itself_at_most() -> None:
    run(range(SOME))


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
def test_a_hostile_peer_harms_itself_at_most_in_many_runs(part: int) -> None:
    run(range(1_000_000 + part * MANY // 4, 1_000_000 + (part + 1) * MANY // 4))
