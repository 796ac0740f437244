"""Functions that are made anew for each call: client, scheduler, agents and workers let go of what they had."""

import gc
import weakref

import pytest
from support import until
from support.weight import objects_below

from scaler import Client
from scaler.client.client import parts_of
from scaler.client.submitting import templates

#: of a list that takes 400 KB, and 100 KB when it is pickled
ITEMS = 50_000


class Held:
    def __init__(self, number):
        self.items = [number % 200] * ITEMS
        self.items[0] = number


def closure(number):
    held = Held(number)
    return (lambda: held.items[0]), weakref.ref(held)


def kept_by_worker():
    return sum(type(found) is list and len(found) == 50_000 for found in gc.get_objects())


@pytest.fixture
def client(start_cluster):
    cluster = start_cluster(n_workers=1)
    with Client(cluster) as client:
        yield client


@pytest.mark.parametrize("is_map", [False, True])
def test_what_only_a_closure_has_goes_when_its_tasks_have_ended(client, is_map):
    gone = []
    for number in range(40):
        function, reference = closure(number)
        gone.append(reference)
        if is_map:
            call = lambda _, function=function: function()  # noqa: E731
            assert client.map(call, range(3)) == [number] * 3
            del call
        else:
            assert client.submit(function).result() == number
        del function
    gc.collect()
    until(lambda: sum(each() is not None for each in gone) <= 1, "all but the last list are freed")


def test_a_program_of_many_closures_leaves_a_few_at_client_and_worker(client):
    sizes, most = [], templates.SENT_BYTES // (2 * ITEMS) + 2
    for _ in range(3):
        for number in range(60):
            function, _reference = closure(number)
            client.submit(function).result()
            del function
        gc.collect()
        sizes.append(objects_below(parts_of(client)[0].templates))
        until(lambda: client.submit(kept_by_worker).result() <= most, "the worker lets go of functions")
        assert client.submit(kept_by_worker).result() > 0, "the worker has some"
    assert sizes[-1] < 1.2 * sizes[0]
