"""Send a large object once and use it in many tasks."""

from scaler import Client, SchedulerClusterCombo


def lookup(table: list[int], index: int) -> int:
    return table[index]


with SchedulerClusterCombo(n_workers=2) as cluster, Client(address=cluster.address) as client:
    # the reference stands for the object wherever it is a positional argument: itself, not inside of a list
    table = client.send_object([n * n for n in range(1_000_000)], name="squares")

    futures = [client.submit(lookup, table, index) for index in range(0, 1_000_000, 50_000)]

    assert [future.result() for future in futures] == [index * index for index in range(0, 1_000_000, 50_000)]
    print(f"{len(futures)} tasks used one table; the last found {futures[-1].result()}")  # 902500000000
