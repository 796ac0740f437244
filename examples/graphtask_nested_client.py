"""Build a graph inside of a task, when its shape is only known there."""

from scaler import Client, SchedulerClusterCombo


def add(*numbers: int) -> int:
    return sum(numbers)


def inc(i: int) -> int:
    return i + 1


def sum_of_increments(client: Client, count: int) -> int:
    """A graph of `count` increments and the sum of them all."""
    graph: dict[str, object] = {f"input-{i}": i for i in range(count)}
    graph |= {f"inc-{i}": (inc, f"input-{i}") for i in range(count)}
    graph["total"] = (add, *(f"inc-{i}" for i in range(count)))
    return client.get(graph, keys=["total"])["total"]


with SchedulerClusterCombo(n_workers=2) as cluster, Client(address=cluster.address) as client:
    futures = [client.submit(sum_of_increments, client, count) for count in (1, 10, 100)]
    print([future.result() for future in futures])  # [1, 55, 5050]
