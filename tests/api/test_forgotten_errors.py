"""An error that is forgotten keeps nothing of the program that got it: no frame waits for the garbage collector."""

import asyncio
import gc
import weakref

import pytest
from support import until

from scaler import Executor
from scaler.client.waiting.map_job import MapJob


def refuse(x):
    raise LookupError(f"no {x}")


class Held:
    """What a program has at hand while it waits."""


@pytest.fixture
def executor(cluster):
    with Executor(address=cluster.address) as executor:
        yield executor


@pytest.fixture
def collector_off():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client, _: client.submit(refuse, 1).result(),
        lambda client, _: client.submit(refuse, 1).fresh_result(),
        lambda client, _: client.map(refuse, range(3)),
        lambda client, _: client.map(refuse, range(300)),
        lambda client, _: client.get({"a": 1, "b": (refuse, "a")}, ["b"]),
        lambda _, executor: executor.submit(refuse, 1).result(),
        lambda _, executor: list(executor.map(refuse, range(3))),
        lambda _, executor: list(executor.map(refuse, range(3_000))),
        lambda _, executor: list(executor.map(refuse, range(30), chunksize=10)),
    ],
    ids=["result", "fresh", "map", "blocks", "get", "executor", "its map", "its blocks", "its chunks"],
)
def test_what_a_program_had_goes_with_the_error_that_it_got(client, executor, collector_off, ask):
    def program():
        held = Held()
        with pytest.raises(LookupError, match="no "):
            ask(client, executor)
        return weakref.ref(held)

    assert program()() is None


def test_so_it_does_in_a_coroutine_that_awaits(client, collector_off):
    async def program():
        async def part():
            held = Held()
            try:
                await client.submit(refuse, 1)
            except LookupError:
                return weakref.ref(held)

        return await part()

    held = asyncio.run(program())
    until(lambda: held() is None)  # the thread that has told the loop may not have returned from that yet


def test_a_map_that_has_ended_is_gone(client, collector_off):
    before = maps()
    assert client.map(abs, range(-300, 0)) == [*range(300, 0, -1)]
    assert maps() == before


def maps():
    return sum(type(found) is MapJob for found in gc.get_objects())
