"""Call one function over many inputs, in parallel, and get the results as a list."""

import random

from scaler import Client, SchedulerClusterCombo


def calculate(seconds: int) -> int:
    return seconds * 1


def main() -> None:
    # without an address the cluster takes a free port of this host
    cluster = SchedulerClusterCombo(n_workers=2)

    with Client(address=cluster.address) as client:
        tasks = [random.randint(0, 100) for _ in range(10_000)]

        # each item is the tuple of arguments of one call
        results = client.map(calculate, [(task,) for task in tasks])

        assert results == tasks
        print(f"{len(results):,} results, the same as the inputs: {results == tasks}")

    cluster.shutdown()


if __name__ == "__main__":
    main()
