"""What a client does beside other engines: the same calls with each of them. A line of JSON a round.

python peers_load.py ENGINE ADDRESS OUTPUT STOP_FILE
"""

import json
import os
import random
import sys
import time

#: seconds in which a call has to end
PATIENCE = 60.0


def double(x):
    return 2 * x


def slow(x, seconds):
    time.sleep(seconds)
    return x + 1


def large(n, value):
    return bytes([value]) * n


def size_and_sum(data, value):
    return len(data), data.count(value)


def connected(engine, address):
    """`submit(function, *arguments)`, and how a result is had: `result(future, seconds)`."""
    if engine == "Scaler":
        from scaler import Client

        client = Client(address, timeout=PATIENCE)
        return client.submit, lambda future, left: future.result(left)
    if engine == "Distributed":
        from distributed import Client

        client = Client(address, timeout=PATIENCE)
        return (lambda f, *a: client.submit(f, *a, pure=False)), lambda future, left: future.result(timeout=left)
    import ray

    ray.init(address=address, logging_level="ERROR")
    remote = {function: ray.remote(function) for function in (double, slow, large, size_and_sum)}
    return (lambda f, *a: remote[f].remote(*a)), lambda future, left: ray.get(future, timeout=left)


def one_round(submit, lot):
    """What is asked for, and what has to come: (kind, future, value)."""
    asked = []
    for _ in range(lot.randint(20, 100)):
        x = lot.randint(0, 1 << 40)
        asked.append(("small", submit(double, x), 2 * x))
    for _ in range(lot.randint(2, 8)):
        x = lot.randint(0, 1000)
        asked.append(("slow", submit(slow, x, lot.choice((0.05, 0.3, 1.0))), x + 1))
    for _ in range(lot.randint(1, 4)):
        n, value = lot.choice((300_000, 4_000_000, 12_000_000)), lot.randint(1, 255)
        made = submit(large, n, value)
        asked.append(("stored", submit(size_and_sum, made, value), (n, n)))
        if lot.random() < 0.3:
            asked.append(("read", made, bytes([value]) * n))
    last, length = submit(double, 0), lot.randint(3, 20)
    for _ in range(length):
        last = submit(slow, last, 0.001)
    asked.append(("chain", last, length))
    return asked


def main():
    """Rounds until the file to stop by is there."""
    engine, address, output, stop = sys.argv[1:]
    lot = random.Random(1)
    submit, result = connected(engine, address)
    with open(output, "a") as file:
        while not os.path.exists(stop):
            told = {"asked": 0, "right": 0, "wrong": 0, "hung": 0, "errors": {}}
            begun = time.monotonic()
            try:
                asked = one_round(submit, lot)
            except Exception as error:
                told["errors"][f"submit: {type(error).__name__}"] = 1
                asked = []
                time.sleep(1)
            told["asked"] = len(asked)
            deadline = time.monotonic() + PATIENCE
            for kind, future, value in asked:
                try:
                    got = result(future, max(0.01, deadline - time.monotonic()))
                except Exception as error:
                    name = type(error).__name__
                    if name in ("TimeoutError", "GetTimeoutError"):
                        told["hung"] += 1
                    else:
                        told["errors"][f"{kind}: {name}"] = told["errors"].get(f"{kind}: {name}", 0) + 1
                else:
                    told["right" if got == value else "wrong"] += 1
            told["seconds"] = time.monotonic() - begun
            print(json.dumps(told), file=file, flush=True)
    os._exit(0) if engine == "Ray" else sys.exit(0)


if __name__ == "__main__":
    main()
