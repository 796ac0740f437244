"""Agents die with large values that others need: those are made again, or asked of the client again."""

import signal
import time

import numpy as np
import pytest
from support import until
from support.client_parts import store_place
from support.stores import holdings, objects_of, stores

from scaler import ObjectLost
from scaler.store.directory import clean_up_dead

#: small, so that the tests need not wait
QUICK = ("--heartbeat-interval", "0.2", "--agent-timeout", "1", "--client-timeout", "2")
#: numbers in an array of 160 kB: large enough to be stored
NUMBERS = 20_000
#: numbers in an array of 5 MB
MANY = 625_000
#: columns of the graph, of four keys each
COLUMNS = 1_250


@pytest.fixture(autouse=True)
def _the_next_agent_cleans_up(traces):
    yield
    clean_up_dead()


def two_agents(daemons):
    daemons.start_scheduler(*QUICK)
    agents = [daemons.start_agent(1), daemons.start_agent(1)]
    client = daemons.client()
    until(lambda: client.n_workers == 2)
    return agents, client


def kill_who_holds(agents, size):
    """Kill the agents in whose stores there is an object of this size, at least one; the others."""
    until(lambda: any(objects_of(agent.pid, size) for agent in agents), "an agent to have the object")
    killed = [agent for agent in agents if objects_of(agent.pid, size)]
    for agent in killed:
        agent.signal(signal.SIGKILL)
        agent.ends(5)
    return [agent for agent in agents if agent not in killed]


def make(number):
    return np.full(NUMBERS, float(number))


def grid(columns):
    """A graph of four layers of arrays; each array is needed by two columns, so that no two keys become one row."""

    def add(one, other):
        return one + other

    def mix(one, other):
        return 2 * one - other

    def tell(one, other):
        assert np.ptp(one) == np.ptp(other) == 0
        return float(one[0]), float(other[-1])

    graph = {}
    for x in range(columns):
        after = (x + 1) % columns
        graph[f"made {x}"] = (make, x)
        graph[f"sum {x}"] = (add, f"made {x}", f"made {after}")
        graph[f"mix {x}"] = (mix, f"sum {x}", f"sum {after}")
        graph[f"told {x}"] = (tell, f"mix {x}", f"mix {after}")
    return graph


def grid_values(columns):
    made = np.arange(columns, dtype=float)
    sums = made + np.roll(made, -1)
    mixed = 2 * sums - np.roll(sums, -1)
    return list(zip(mixed.tolist(), np.roll(mixed, -1).tolist(), strict=True))


def test_an_agent_killed_with_intermediate_results_costs_no_result(daemons):
    agents, client = two_agents(daemons)
    futures = client.submit_graph(grid(COLUMNS), [f"told {x}" for x in range(COLUMNS)])
    until(lambda: sum(future.done() for future in futures) > COLUMNS // 5, "a part of the graph")
    until(lambda: holdings(agents[0])["live"] + holdings(agents[0])["shm"] > 0, "the agent to hold some of it")
    assert not all(future.done() for future in futures)
    agents[0].signal(signal.SIGKILL)
    assert [future.result(40) for future in futures] == grid_values(COLUMNS)


def test_a_sent_object_that_is_lost_with_its_agent_is_asked_of_the_client_again(daemons):
    agents, client = two_agents(daemons)
    sent = client.send_object(np.arange(MANY))
    assert len(kill_who_holds(agents, 8 * MANY)) == 1
    totals = [client.submit(lambda array, x: int(array.sum()) + x, sent, x) for x in range(20)]
    expected = MANY * (MANY - 1) // 2
    assert [total.result(20) for total in totals] == [expected + x for x in range(20)]


def test_a_sent_object_that_is_lost_while_tasks_use_it_is_asked_of_the_client_again(daemons):
    agents, client = two_agents(daemons)
    sent = client.send_object(np.arange(MANY))
    first = until(lambda: [agent for agent in agents if objects_of(agent.pid, 8 * MANY)], "an agent to have it")[0]
    totals = [client.submit(lambda array, x: int(array.sum()) + x, sent, x) for x in range(2000)]
    until(totals[20].done)
    first.signal(signal.SIGKILL)
    expected = MANY * (MANY - 1) // 2
    assert [total.result(40) for total in totals] == [expected + x for x in range(2000)]


def test_an_argument_that_is_given_again_after_its_agent_died_is_stored_again(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(1)
    client = daemons.client()
    array = np.arange(MANY)
    expected = MANY * (MANY - 1) // 2
    assert client.submit(lambda a: int(a.sum()), array).result(20) == expected
    assert kill_who_holds([agent], 8 * MANY) == []
    waiting = client.submit(lambda a: int(a.sum()) + 1, array)
    new = daemons.start_agent(1)
    assert waiting.result(20) == expected + 1
    assert client.submit(lambda a: int(a.sum()) + 2, array).result(20) == expected + 2
    assert len(objects_of(new.pid, 8 * MANY)) == 1


def test_a_client_that_had_no_agent_on_its_host_uses_the_store_of_one_that_comes(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(1)
    client = daemons.client()
    lost = client.submit(lambda a: time.sleep(0.2) or float(a[0]), np.ones(MANY))
    assert kill_who_holds([agent], 8 * MANY) == []
    beside = int(daemons.scheduler.says(r"store (\d+) joined", 20)[1])
    until(lambda: (place := store_place(client)) and place.agent == beside, "the client to make do with it")
    new = daemons.start_agent(1)
    assert lost.result(20) == 1.0
    assert client.submit(lambda a: float(a[0]), np.full(2 * MANY, 2.0)).result(20) == 2.0
    assert len(objects_of(new.pid, 16 * MANY)) == 1
    assert store_place(client).agent != beside


def test_a_changed_argument_whose_agent_died_is_lost_and_not_another_one(daemons):
    agents, client = two_agents(daemons)
    array = np.ones(MANY)
    blocking = [client.submit(time.sleep, 1.0) for _ in range(2)]
    total = client.submit(lambda a: float(a.sum()), array)
    array[12_345] = 1e6
    kill_who_holds(agents, 8 * MANY)
    daemons.start_agent(1)
    with pytest.raises(ObjectLost, match="has changed since"):
        total.result(20)
    assert [future.result(20) for future in blocking] == [None, None]


def test_an_argument_that_waits_for_its_task_while_its_agent_dies_is_stored_again(daemons):
    agents, client = two_agents(daemons)
    array = np.arange(MANY)
    first = client.submit(np.full, MANY, 7)  # what comes before, so that rows are queued behind it
    totals = [client.submit(lambda a, b, x: int(a.sum() + b[0]) + x, array, first, x) for x in range(50)]
    kill_who_holds(agents, 8 * MANY)
    daemons.start_agent(1)
    expected = MANY * (MANY - 1) // 2 + 7
    assert [total.result(30) for total in totals] == [expected + x for x in range(50)]


@pytest.mark.parametrize("cleaned", [False, True], ids=["its files are still there", "its files are gone"])
def test_a_stored_result_that_nobody_had_fetched_when_its_agent_died_is_there_all_the_same(daemons, tmp_path, cleaned):
    def count(path, number):
        with open(path, "a") as file:
            file.write("x")
        return np.full(MANY, number)

    agents, client = two_agents(daemons)
    log = tmp_path / "log"
    future = client.submit(count, str(log), 7)
    until(future.done)
    kill_who_holds(agents, 8 * MANY)
    if cleaned:
        daemons.start_agent(1)
        until(lambda: not any(stores(agent.pid) for agent in agents if agent.process.poll() is not None))
    result = future.result(20)
    assert result.shape == (MANY,)
    assert (result == 7).all()
    assert log.read_text() in ("x", "xx") if not cleaned else log.read_text() == "xx"


def test_a_chain_of_stored_results_is_made_again_from_its_beginning(daemons):
    agents, client = two_agents(daemons)
    futures = [client.submit(np.full, MANY, 1)]
    for _ in range(5):
        futures.append(client.submit(lambda a: a + a, futures[-1]))
    until(lambda: all(future.done() for future in futures))
    for agent in agents:
        agent.signal(signal.SIGKILL)
        agent.ends(5)
    daemons.start_agent(1)
    assert [int(future.result(20)[-1]) for future in reversed(futures)] == [32, 16, 8, 4, 2, 1]


def test_files_that_somebody_removes_are_made_again_or_asked_of_the_client_again(daemons):
    daemons.start_scheduler(*QUICK)
    agent = daemons.start_agent(2)
    client = daemons.client()
    argument = client.send_object(np.full(MANY, 3.0))
    used, read = client.submit(np.full, MANY, 1.0), client.submit(np.full, MANY, 2.0)
    until(lambda: len(objects_of(agent.pid, 8 * MANY)) == 3, "the files")
    (store,) = stores(agent.pid)
    for name in objects_of(agent.pid, 8 * MANY):
        (store / name).unlink()
    total = client.submit(lambda one, other: float(one[0] + other[-1]), used, argument)
    assert total.result(20) == 4.0
    assert read.result(20)[0] == 2.0
