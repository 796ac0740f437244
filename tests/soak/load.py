"""What a client of the soak does until it is told to end: mixed work whose results are known; a line of JSON a round.

python load.py ADDRESS OUTPUT STOP_FILE SEED
"""

import ctypes
import json
import os
import random
import sys
import time

from scaler import Client
from scaler.errors import ScalerError

#: seconds in which a call has to end, whatever is killed meanwhile
PATIENCE = 180.0
#: seconds after which it is asked what a call waits for
LATE = 20.0


class MallocInfo(ctypes.Structure):
    """As malloc.h has it: bytes, but for the blocks."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def in_use():
    """MB that malloc has given out: a process has what was freed as well; None where it can't be asked."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return None
    ask.restype = MallocInfo
    info = ask()
    return (info.uordblks + info.hblkhd) / 1e6


def double(x):
    return 2 * x


def slow(x, seconds):
    time.sleep(seconds)
    return x + 1


def large(n, value):
    return bytes([value]) * n


def size_and_sum(data, value):
    return len(data), data.count(value)


def nested(client, n):
    return sum(client.map(double, [(i,) for i in range(n)]))


def one_round(client, lot):
    """What is asked for, and what has to come: (kind, future, value)."""
    asked = []
    for _ in range(lot.randint(20, 200)):
        x = lot.randint(0, 1 << 40)
        asked.append(("small", client.submit(double, x), 2 * x))
    for _ in range(lot.randint(2, 8)):
        x = lot.randint(0, 1000)
        asked.append(("slow", client.submit(slow, x, lot.choice((0.05, 0.3, 1.0))), x + 1))
    for _ in range(lot.randint(1, 4)):
        n, value = lot.choice((300_000, 4_000_000, 12_000_000)), lot.randint(1, 255)
        made = client.submit(large, n, value)
        asked.append(("stored", client.submit(size_and_sum, made, value), (n, n)))
        if lot.random() < 0.3:
            asked.append(("read", made, bytes([value]) * n))
    n = lot.randint(1, 5)
    asked.append(("nested", client.submit(nested, client, n), n * (n - 1)))
    graph = {"a": 1}
    for i in range(lot.randint(3, 30)):
        graph[f"n{i}"] = (slow, "a" if not i else f"n{i - 1}", 0.001)
    last = f"n{len(graph) - 2}"
    asked.append(("graph", client.submit_graph(graph, [last])[0], len(graph)))
    return asked


def whole(error):
    """What there is to be read of an error, for whoever looks into it; when it came, seconds of the monotonic clock."""
    notes = "\n".join(getattr(error, "__notes__", ()))
    return f"{time.monotonic():.1f}: {type(error).__name__}: {error}\n{notes}"


def explained(client, future):
    """What the cluster says of a call that has not ended."""
    try:
        return f"{time.monotonic():.1f}: {future!r}: {client.cluster.explain(future)}"
    except Exception as error:
        return f"{time.monotonic():.1f}: {future!r}: {error!r}"


def connected(address):
    """A client, as soon as there is a scheduler."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return Client(address, reconnect=PATIENCE / 3)
        except ScalerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def collected(client, asked, patience):
    """What has come of all that was asked for, each of which has to end in so many seconds."""
    told = {"ok": 0, "wrong": 0, "hung": 0, "errors": {}, "seconds": 0.0, "stories": [], "late": []}
    for kind, future, value in asked:
        try:
            try:
                got = future.result(timeout=min(LATE, patience))
            except TimeoutError:
                told["late"] = [*told["late"][-4:], f"{time.strftime('%X')} {kind}: {explained(client, future)}"]
                got = future.result(timeout=patience)
        except TimeoutError:
            told["hung"] += 1
            told["stories"] = [*told["stories"][-4:], f"{kind} hangs: {explained(client, future)}"]
        except Exception as error:
            name = f"{kind}: {type(error).__name__}: {str(error)[:150]}"
            told["errors"][name] = told["errors"].get(name, 0) + 1
            told["stories"] = [*told["stories"][-4:], whole(error)]
        else:
            told["ok" if got == value else "wrong"] += 1
    return told


def main():
    """Rounds until the file to stop by is there."""
    address, output, stop, seed = sys.argv[1:]
    lot = random.Random(int(seed))
    with connected(address) as client, open(output, "a") as file:
        while not os.path.exists(stop):
            begun = time.monotonic()
            told = collected(client, one_round(client, lot), PATIENCE)
            told["seconds"] = time.monotonic() - begun
            told["pid"], told["in use"] = os.getpid(), in_use()
            print(json.dumps(told), file=file, flush=True)
    print("ended well", flush=True)


if __name__ == "__main__":
    main()
