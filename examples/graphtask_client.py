"""Submit tasks that need each other's results, as a graph."""

from scaler import Client, SchedulerClusterCombo


def inc(i: int) -> int:
    return i + 1


def add(a: int, b: int) -> int:
    return a + b


def minus(a: int, b: int) -> int:
    return a - b


graph = {
    "a": 2,
    "b": 2,
    "c": (inc, "a"),  # c = a + 1 = 3
    "d": (add, "a", "b"),  # d = a + b = 4
    "e": (minus, "d", "c"),  # e = d - c = 1
}

with SchedulerClusterCombo(n_workers=2) as cluster, Client(address=cluster.address) as client:
    print(client.get(graph, keys=["e"]))  # {'e': 1}

    # or as futures, in the order of the keys
    futures = client.submit_graph(graph, keys=["c", "d"])
    print([future.result() for future in futures])  # [3, 4]
