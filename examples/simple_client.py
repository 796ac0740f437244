"""Submit calls one by one; each gives a future at once and its result later."""

import math

from scaler import Client, SchedulerClusterCombo

with SchedulerClusterCombo(n_workers=2) as cluster, Client(address=cluster.address) as client:
    futures = [client.submit(math.sqrt, i) for i in range(100)]

    total = sum(future.result() for future in futures)
    print(f"{total:.2f}")  # 661.46
