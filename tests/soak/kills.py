"""The scheduler is killed a thousand times, at moments by lot, while all else lives: `make kills KILLS=1000`.

Clients ask for mixed work whose values are known. Each task, nested ones included, leaves a line when it begins: so it
shows if one has run twice, which none may while all agents live. Prints what came of it; the exit code is 1 if anything
was lost, wrong, hung, run twice or left behind.

    kills.py --kills 1000                            the whole
    kills.py --be-client ADDRESS TOLD STOP SEED      one of its clients
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from support.programs import Daemons, Program  # noqa: E402

from soak.accounts import MARK, marked, told  # noqa: E402
from soak.load import collected, connected  # noqa: E402

#: seconds between the start of a scheduler and its end, at most
LASTS = 2.0
#: seconds in which a call has to end: some of the schedulers live too short to hear of it
PATIENCE = 120.0
CLIENTS, AGENTS, WORKERS = 2, 2, 2


# ---- the tasks: each leaves a line in a file of the process that it runs in ------------------------------------------
def note(place: str, name: str) -> None:
    file = os.open(f"{place}/ran{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{name}\n".encode())
    os.close(file)


def small(place: str, name: str) -> str:
    note(place, name)
    return name


def slow(place: str, name: str, seconds: float) -> str:
    note(place, name)
    time.sleep(seconds)
    return name


def large(place: str, name: str, size: int) -> bytes:
    note(place, name)
    return name.encode().ljust(size)


def measured(place: str, name: str, data: bytes) -> tuple[int, str]:
    note(place, name)
    return len(data), data.rstrip().decode()


def nested(place: str, name: str, client, count: int) -> list[str]:
    note(place, name)
    return client.map(small, [(place, f"{name}.{n}") for n in range(count)])


def link(place: str, name: str, so_far: int) -> int:
    note(place, name)
    return so_far + 1


# ---- the client ------------------------------------------------------------------------------------------------------
def one_round(client, place: str, lot: random.Random, prefix: str):
    """What is asked for, and what has to come: (kind, future, value)."""
    names = [f"{prefix}.small{n}" for n in range(lot.randint(20, 200))]
    asked = [("small", client.submit(small, place, name), name) for name in names]
    for n in range(lot.randint(2, 8)):
        name = f"{prefix}.slow{n}"
        asked.append(("slow", client.submit(slow, place, name, lot.choice((0.02, 0.1, 0.5))), name))
    for n in range(lot.randint(1, 4)):
        name, size = f"{prefix}.large{n}", lot.choice((300_000, 1_000_000, 4_000_000))
        made = client.submit(large, place, name, size)
        asked.append(("stored", client.submit(measured, place, f"{name}.measured", made), (size, name)))
        if lot.random() < 0.3:
            asked.append(("read", made, name.encode().ljust(size)))
    name, count = f"{prefix}.nested", lot.randint(1, 5)
    asked.append(("nested", client.submit(nested, place, name, client, count), [f"{name}.{n}" for n in range(count)]))
    length = lot.randint(3, 30)
    graph = {"link0": (link, place, f"{prefix}.link0", 0)}
    graph |= {f"link{n}": (link, place, f"{prefix}.link{n}", f"link{n - 1}") for n in range(1, length)}
    asked.append(("graph", client.submit_graph(graph, [f"link{length - 1}"])[0], length))
    return asked


def be_client(address: str, output: str, stop: str, seed: str) -> None:
    """Rounds until the file to stop by is there; a line of JSON each."""
    lot, place, number = random.Random(int(seed)), os.path.dirname(output), 0
    with connected(address) as client, open(output, "a") as file:
        while not os.path.exists(stop):
            number += 1
            begun = time.monotonic()
            said = collected(client, one_round(client, place, lot, f"{seed}.{number}"), PATIENCE)
            said["seconds"] = time.monotonic() - begun
            print(json.dumps(said), file=file, flush=True)


# ---- the killer ------------------------------------------------------------------------------------------------------
def kill(daemons: Daemons, lot: random.Random, kills: int) -> None:
    """Kill the scheduler so often, and start it again each time at the same address."""
    for number in range(kills):
        time.sleep(lot.uniform(0, LASTS))
        old = daemons.scheduler
        old.process.kill()
        old.process.wait()
        daemons.scheduler = daemons.run("scaler_scheduler", "scheduler", daemons.address)
        if number % 100 == 99:
            print(f"  {number + 1:,} kills", flush=True)


def ran(directory: Path) -> Counter[str]:
    """How often each task has begun."""
    counted: Counter[str] = Counter()
    for path in directory.glob("ran*"):
        counted.update(path.read_text().split())
    return counted


def whole_run(directory: Path, seed: int, kills: int) -> tuple[list[str], list[int]]:
    """All of it; complaints in the logs of the programs, and how the clients have ended."""
    lot, stop = random.Random(seed), directory / "stop"
    logs = directory / "logs"
    logs.mkdir()
    daemons, clients = Daemons(logs), []
    try:
        daemons.start_scheduler()
        for _ in range(AGENTS):
            daemons.start_agent(WORKERS)
        for number in range(CLIENTS):
            arguments = daemons.address, str(directory / f"told{number}"), str(stop), str(lot.randrange(1 << 30))
            command = [sys.executable, __file__, "--be-client", *arguments]
            clients.append(Program(command, logs / f"client{number}.log"))
        kill(daemons, lot, kills)
        stop.touch()
        endings = [client.ends(2 * PATIENCE) for client in clients]
    finally:
        for client in clients:
            client.stop()
        daemons.close()
    complaints = [
        f"{path.name}: {line}"
        for path in sorted(logs.iterdir())
        for line in path.read_text(errors="replace").splitlines()
        if "Traceback" in line or "ERROR" in line
    ]
    return complaints, endings


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--be-client", nargs=4, metavar=("ADDRESS", "TOLD", "STOP", "SEED"))
    options = parser.parse_args()
    if options.be_client:
        be_client(*options.be_client)
        return 0
    os.environ[MARK] = f"{os.getpid()}"
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    began = time.monotonic()
    print(f"{options.kills:,} kills of the scheduler, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        complaints, endings = whole_run(Path(name), options.seed, options.kills)
        clients, counted = told(Path(name)), ran(Path(name))
    twice, left = [name for name, times in counted.items() if times > 1], marked()
    print(f"  {clients['ok']:,} right, {clients['wrong']} wrong, {clients['hung']} hung, errors {clients['errors']}")
    print(f"  {len(counted):,} tasks have run, {len(twice)} of them twice: {twice[:5]}")
    print(f"  the longest round took {clients['longest']:.1f} s; all together {time.monotonic() - began:.0f} s")
    print(f"  clients ended with {endings}; left behind: {left}")
    for line in [*complaints[:10], *clients["stories"][:5]]:
        print(f"  {line}")
    bad = clients["wrong"] or clients["hung"] or clients["errors"] or any(endings) or twice or left or complaints
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
