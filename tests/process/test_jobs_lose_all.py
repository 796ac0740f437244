"""A durable job of a million rows on hosts of its own: client, scheduler and all agents are killed ten times.

ROWS=100000 SEED=7 make test-jobs
"""

import os
import random
import signal
import time
from array import array

import pytest
from support import until
from support.programs import program

ROWS = int(os.environ.get("ROWS", "1_000_000"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
KILLS = 10
PORT = 7411
#: bytes of a row, and when it began: seconds of the clock that all processes of a machine share
ENTRY_BYTES = 12

SUBMITS = """
    import os, struct, sys, time
    import scaler

    address, directory, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    def work(row):
        with open(f"{directory}/{os.getpid()}", "ab") as file:
            file.write(struct.pack("<Id", row, time.monotonic()))
        return 3 * row

    with scaler.Client(address, timeout=60) as client:
        names = [job.name for job in client.jobs()]
        job = client.attach("million") if "million" in names else client.submit_job(work, range(rows), name="million")
        print("submitted", flush=True)
        for row, value in enumerate(job.results()):
            assert value == 3 * row, (row, value)
            if row % 1000 == 0:
                print(f"has {row}", flush=True)
"""

#: writes which rows have ended, as it was told of them, one byte each
ENDED = """
    import sys, time
    import scaler

    address, output, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with scaler.Client(address, timeout=60) as client:
        job, seen = client.attach("million"), bytearray(rows)
        for each in job.as_ended() if sys.argv[4] == "wait" else job.ended():
            assert not seen[each.row], f"row {each.row} has ended twice"
            assert each.value == 3 * each.row, each
            seen[each.row] = 1
    with open(output, "wb") as file:
        file.write(seen)
    print("told of", sum(seen), flush=True)
"""

FETCHES = """
    import sys
    import scaler

    with scaler.Client(sys.argv[1], timeout=60) as client:
        values = list(client.attach("million").results())
    assert values == [3 * row for row in range(int(sys.argv[2]))]
    print("all", len(values), "in order", flush=True)
"""


@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_a_million_rows_outlive_ten_kills_of_all_that_works_on_them(network, tmp_path):
    lot = random.Random(SEED)
    centre, desk, elsewhere = (network.host(name) for name in ("centre", "desk", "elsewhere"))
    hosts = [network.host(f"host{number}") for number in range(2)]
    address = f"tcp://{centre.address}:{PORT}"
    ran = tmp_path / "ran"
    ran.mkdir()

    def begin():
        options = ["--journal", str(tmp_path / "journal"), "--heartbeat-interval", "0.2", "--agent-timeout", "2"]
        scheduler = centre.start("scheduler", *program("scaler_scheduler", "scheduler"), *options, address)
        scheduler.says("listens at")
        agents = [host.start_agent(address, 1, "--heartbeat-interval", "0.2") for host in hosts]
        return [scheduler, *agents, desk.start_script(SUBMITS, address, str(ran), str(ROWS))]

    def rows_ended(how):
        output = tmp_path / "ended"
        script = elsewhere.start_script(ENDED, address, str(output), str(ROWS), how)
        assert script.ends(600) == 0, script.text
        return output.read_bytes()

    began = time.monotonic()
    running = begin()
    running[-1].says("submitted", 120)
    #: what somebody was told of, and when
    told: list[tuple[float, bytes]] = []
    for kill in range(KILLS):
        part = ROWS * (kill + lot.random()) / KILLS
        until(lambda part=part: sum(os.path.getsize(path) for path in ran.iterdir()) >= part * ENTRY_BYTES, "rows", 900)
        if kill % 2:
            ended = rows_ended("now")
            told.append((time.monotonic(), ended))
        for process in lot.sample(running, len(running)):
            process.signal(signal.SIGKILL)
            process.ends(10)
        running = begin()
    running[-1].says("submitted", 120)
    told.append((time.monotonic(), b""))
    fetches = elsewhere.start_script(FETCHES, address, str(ROWS))
    assert fetches.ends(1800) == 0, fetches.text
    assert running[-1].ends(600) == 0, running[-1].text
    assert rows_ended("wait") == b"\1" * ROWS
    taken = time.monotonic() - began

    latest, runs = array("d", bytes(8 * ROWS)), 0
    for path in ran.iterdir():
        data = path.read_bytes()
        for at in range(0, len(data) - len(data) % ENTRY_BYTES, ENTRY_BYTES):
            row, when = int.from_bytes(data[at : at + 4], "little"), array("d", data[at + 4 : at + 12])[0]
            latest[row] = max(latest[row], when)
            runs += 1
    assert all(latest), f"seed {SEED}: a row has a result and never ran"
    again = [row for when, ended in told for row in range(len(ended)) if ended[row] and latest[row] > when]
    print(
        f"seed {SEED}: {ROWS:,} rows, {KILLS} kills of everything, {taken:.0f} s: every result once, in order; "
        f"{runs - ROWS:,} rows ran again, {len(again)} of them after they were known to have ended"
    )
    assert not again, f"seed {SEED}: rows that were known to have ended ran again: {again[:20]}"
