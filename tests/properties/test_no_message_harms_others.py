"""Whatever a peer says of what is there, or of what can't be: the others' work ends as it should, and no defect shows.

Rows named twice, ids of others, batches that don't exist: each costs at most the one who says it.
"""

from collections.abc import Callable
from random import Random

import pytest
from simulator.hostile_messages import Hostile
from simulator.scripted import BATCHES, IDS, FakeScheduler, WellSpoken, some_work
from support.enemies.scheduler import SchedulerAmongEnemies
from support.seeds import run

from scaler.protocol import messages as m
from scaler.scheduler.core.returning import PATIENCE
from scaler.scheduler.state.validate import validate

#: seeds of the suite, and of `make sim`
SOME, MANY = 400, 100_000
OTHERS_SESSION = 6


def harm(seed: int) -> None:
    """A client and an agent of several say anything; then all the others have to come to an end."""
    random = Random(seed)
    fake = WellSpoken(*random.choice([(1,), (1, 2), (3, 1)]))
    hostile, *decent = fake.agents
    client, other = fake.client("/store"), fake.client()
    for number in (client, other):
        fake.say(number, *some_work())
    lead_a_life(random, fake, (client, other))
    messages = Hostile(random, (client, other, *fake.agents), IDS)
    for _ in range(random.choice([1, 3, 8, 20])):
        fake.now += random.choice([0, 0.01, 0.1])
        fake.say(random.choice([hostile, client]), messages.message())
        look(fake)
    decent.append(fake.agent(8))
    fake.lose(hostile)
    look(fake)
    come_to_an_end(fake, other, decent)


def harm_at_return(seed: int) -> None:
    """They come from another scheduler, and say anything of what they had there."""
    random = Random(seed)
    fake = WellSpoken()
    client, other, hostile, decent = 1_002, 1_003, 1_004, 1_005
    messages = Hostile(random, (client, other, hostile, decent), (*IDS, OTHERS_SESSION))

    def say_anything(number: int) -> None:
        for _ in range(random.choice([1, 3, 8])):
            fake.say(number, messages.message())
            look(fake)

    def hostile_agent() -> None:
        fake.come_back("agent", hostile, 4)
        fake.say(hostile, messages.message(m.Inventory))
        say_anything(hostile)

    def hostile_client() -> None:
        fake.come_back("client", client, 5, agents=m.u32(random.choice([[], [hostile], [decent, 77]])))
        say_anything(client)
        fake.say(client, m.ClientReturn(m.u64([random.choice(IDS)])))
        say_anything(client)

    def decent_agent() -> None:
        held = m.Spans()
        held.add(other, 14, 1, random.choice([2, 3]))
        fake.come_back("agent", decent, 7)
        fake.say(decent, m.Inventory(m.u32([other]), m.u64([OTHERS_SESSION]), held))

    def decent_client() -> None:
        fake.come_back("client", other, OTHERS_SESSION, agents=m.u32(random.choice([[decent], [decent, hostile], []])))
        fake.say(other, m.ObjectAnnounce(m.u64([1]), m.u8([0]), [b"function"]))
        ended = m.u32(random.choice([[], [0, 1]]))
        fake.say(other, *some_work(ended=ended))
        fake.say(other, m.ClientReturn())

    who = [hostile_agent, hostile_client, decent_agent, decent_client]
    random.shuffle(who)
    for comes in who:
        comes()
        look(fake)
    helper = fake.agent(8)
    fake.lose(hostile)
    fake.wait(PATIENCE + 1.0)
    come_to_an_end(fake, other, [decent, helper])


def look(fake: FakeScheduler) -> None:
    """The state adds up."""
    assert validate(fake.core.state) == []


def come_to_an_end(fake: FakeScheduler, other: int, agents: list[int]) -> None:
    """These agents run what the other client has, and all of it ends."""
    for _ in range(12):
        for agent in agents:
            fake.end_all(agent, other, m.VALUES_EACH)
            look(fake)
    left = [batch.id for batch in fake.core.state.clients[other].batches.values() if batch.id in BATCHES]
    assert not left, f"batches {left} have not ended"


def harm_while_watched(seed: int) -> None:
    """The same while somebody watches, and a monitor says anything, too: all that is shown gets through the codec."""
    random = Random(seed)
    fake = WellSpoken(*random.choice([(1, 2), (3, 1)]))
    hostile, decent = fake.agents
    client, other, monitor, watcher = fake.client(), fake.client(), fake.monitor(), fake.monitor()
    for number in (client, other):
        fake.say(number, *some_work())
    fake.say(watcher, m.Watch(100))
    lead_a_life(random, fake, (client, other))
    messages = Hostile(random, (client, other, *fake.agents), IDS, figures=True)
    for _ in range(random.choice([3, 8, 20])):
        chosen = random.choice([None, None, m.HostReport, m.Heartbeat, m.TaskResult])
        fake.say(random.choice([hostile, client, monitor]), messages.message(chosen))
        look(fake)
        fake.wait(random.choice([0.01, 1.0]))
        fake.say(decent, m.Heartbeat(fake.now, 2))
        fake.say(other, m.Heartbeat(fake.now))
        fake.say(watcher, m.Watch(100, fake.shown))
    fake.wait(2.0)
    assert fake.shown
    decent = fake.agent(8)
    fake.lose(hostile)
    come_to_an_end(fake, other, [fake.agents[1], decent])


def harm_again_and_again(seed: int) -> None:
    """A client, an agent and a monitor say what is mostly taken, and come again when they were thrown out."""
    random = Random(seed)
    story = SchedulerAmongEnemies(random)
    for _ in range(random.choice([3, 8, 20, 40])):
        story.step()
        look(story.scheduler)
    story.end()


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


#: seeds that found something
FOUND = [
    (harm, 1070215),  # a stored value of no bytes passed for one that is not stored, and was never made again
    (harm_at_return, 1157555),  # the same, of an agent that had come back
    (harm, 98),  # a client sent an object with the id of a row that was yet to end
    (harm, 109),  # an object came with a batch that did not need it, and stayed
    (harm_at_return, 432),  # the same, of a client that had come back
    (harm, 222),  # rows had ids of others
    (harm_while_watched, 1107564),  # an object had the id of a row of the batch that it came with
    (harm, 344),  # an agent had 2**32 - 1 workers: all together did not fit into what the next one was answered
]


@pytest.mark.parametrize(("how", "seed"), FOUND)
def test_seeds_that_found_something_find_nothing_any_more(how: Callable[[int], None], seed: int) -> None:
    how(seed)


def test_a_hostile_peer_harms_itself_at_most() -> None:
    run(range(SOME), harm)


def test_a_hostile_peer_harms_nobody_who_watches() -> None:
    run(range(SOME // 3), harm_while_watched)


def test_a_hostile_peer_that_comes_from_another_scheduler_harms_itself_at_most() -> None:
    run(range(SOME), harm_at_return)


def test_hostile_peers_that_come_again_harm_themselves_at_most() -> None:
    run(range(SOME), harm_again_and_again)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
def test_many_hostile_peers_that_come_again_harm_themselves_at_most(part: int) -> None:
    run(range(1_000_000 + part * MANY // 4, 1_000_000 + (part + 1) * MANY // 4), harm_again_and_again)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
def test_many_hostile_peers_harm_nobody_who_watches(part: int) -> None:
    run(range(1_000_000 + part * MANY // 4, 1_000_000 + (part + 1) * MANY // 4), harm_while_watched)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
def test_many_hostile_peers_that_come_from_another_scheduler_harm_themselves_at_most(part: int) -> None:
    run(range(1_000_000 + part * MANY // 4, 1_000_000 + (part + 1) * MANY // 4), harm_at_return)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(4))
def test_a_hostile_peer_harms_itself_at_most_in_many_runs(part: int) -> None:
    run(range(1_000_000 + part * MANY // 4, 1_000_000 + (part + 1) * MANY // 4), harm)
