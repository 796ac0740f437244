"""Say goodbye: `disconnect` leaves the cluster running, `shutdown` ends it for everybody."""

from scaler import Client, SchedulerClusterCombo, ShutdownRefused

# by default a scheduler is protected: no client can shut it down
with SchedulerClusterCombo(n_workers=1) as cluster:
    client = Client(address=cluster.address)
    try:
        client.shutdown()
    except ShutdownRefused:
        print("a protected scheduler refuses")
    client.disconnect()

with SchedulerClusterCombo(n_workers=1, protected=False) as cluster:
    first = Client(address=cluster.address)
    print(first.submit(pow, 2, 10).result())  # 1024
    first.disconnect()

    second = Client(address=cluster.address)
    second.shutdown()
    print("the cluster is down")
