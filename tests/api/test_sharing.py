"""Clients that share a cluster: what each has of it."""

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait

from scaler import Client


def nap(_: int) -> float:
    """A task of 2 ms; when it began."""
    began = time.monotonic()
    time.sleep(0.002)
    return began


def ran_meanwhile(one: Client, other: Client) -> int:
    """Tasks of one client that began while 300 of the other did."""
    many = [one.submit(nap, i) for i in range(10_000)]
    began: list[float] = []
    pending: set[Future[float]] = set()
    while len(began) < 400:
        while len(pending) < 64:
            pending.add(other.submit(nap, 0))
            time.sleep(0.0002)  # what is submitted at once would be sent together
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        began += [call.result() for call in done]
    began.sort()
    meanwhile = sum(began[50] <= call.result() < began[350] for call in many if call.done())
    for call in many:
        call.cancel()
    return meanwhile


def test_who_submits_as_results_come_has_as_much_as_who_submitted_all_at_once(cluster, serializer) -> None:
    """It had a fortieth: its tasks are sent one by one, and those of the other one hundreds together.

    Once more where a processor was elsewhere for a moment: a nap that takes a second is thought of as one of many.
    """
    with Client(cluster.address, serializer=serializer) as one, Client(cluster.address, serializer=serializer) as other:
        one.submit(nap, 0).result()
        other.submit(nap, 0).result()
        tries = [ran_meanwhile(one, other)]
        while not 100 < tries[-1] < 900 and len(tries) < 3:
            tries.append(ran_meanwhile(one, other))
    assert 100 < tries[-1] < 900, f"{tries} of one client while 300 of the other were done"
