"""Submit tasks from inside of tasks: a client travels as an argument."""

from scaler import Client, SchedulerClusterCombo


def fibonacci(client: Client, n: int) -> int:
    if n < 2:
        return n
    a = client.submit(fibonacci, client, n - 1)
    b = client.submit(fibonacci, client, n - 2)
    return a.result() + b.result()


# any depth works on any number of workers: one that waits for a task in the queue runs it itself
with SchedulerClusterCombo(n_workers=1) as cluster, Client(address=cluster.address) as client:
    print(client.submit(fibonacci, client, 8).result())  # 21
