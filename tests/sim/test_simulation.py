"""The whole engine, without its sockets and processes, under faults from a seed.

SCALER_SIM_RUNS=1000 make sim                                         more seeds
SCALER_SIM_SEED=17 pytest tests/sim -k everything                     one seed again
SCALER_SIM_SEED=17 SCALER_SIM_THOROUGH=1 pytest tests/sim -k rows     all invariants after each step of it
"""

import os
from collections import Counter

import pytest
from simulator.faults import MIXES
from simulator.garbage import LASTING, run_tidily
from simulator.moves import ALL, RARE, never_met
from simulator.runs import run
from support import no_descriptor_stays

#: runs of each mix; of those that take longest, less
FEW = 6
FEWER = {
    "stores": 2, "disks": 2, "swarm": 4, "schedulers alone": 2, "leaving": 5, "leaving and faults": 5, "durable": 4,
    "durable and faults": 4, "shared journal": 3, "copied journal": 3, "copied journal and stopped workers": 3,
    "leaving and schedulers": 3, "unwaited": 3, "unwaited and faults": 2, "missed clients": 4, "one by one": 4,
}  # fmt: skip
MANY = int(os.environ.get("SCALER_SIM_RUNS", "60"))
SEED = os.environ.get("SCALER_SIM_SEED")
#: the moves that were met, by mix
MET: dict[str, Counter[str]] = {}


def seeds(first: int, count: int) -> range:
    """The seeds to run, or the one that was asked for."""
    return range(int(SEED), int(SEED) + 1) if SEED else range(first, first + count)


@pytest.mark.timeout(600)  # of computing; beside others' work it takes as much longer
@pytest.mark.parametrize("mix", MIXES)
def test_every_row_ends_once_and_rightly_and_nothing_is_left(mix: str) -> None:
    met: Counter[str] = Counter()
    for seed in seeds(0, FEWER.get(mix, FEW)):
        moves = run_tidily(seed, mix) if mix in LASTING else run(seed, mix).world.moves
        met += moves.met()
    MET[mix] = met


@pytest.mark.heavy
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("part", range(4))
def test_every_row_ends_once_and_rightly_in_many_runs(mix: str, part: int) -> None:
    for seed in seeds(1000 + part * MANY // 4, MANY // 4):
        run(seed, mix)


#: seeds that found something, and what that was
FOUND = {
    "a worker idles, as there is no room for what is for it: others are not for it": ("pair and faults", 28610297),
    "rows for an idle agent go to it alone, one each time, and the others where they were": ("everything", 30010085),
    "the standby's connection changes under a stream": ("copied journal", 8),
    "a whole copy is made of a journal in which nothing is left": ("copied journal", 17),
    "one is elected whose copy is old": ("copied journal", 26),
    "one is started again while the other has the lock of both": ("shared journal", 5027),
    "one that was stopped hears a goodbye of long ago": ("copied journal", 40305),
    "one that was stopped hears agents that have left it": ("shared journal", 5_000_258),
    "a row is heard of after a restart before what it was made of": ("stores", 281),
    "a row that is to be computed again is told of by the agent that is to do it": ("stores", 668),
    "a row that waits at an agent to be computed again is unknown to the next scheduler": ("stores", 1049),
    "a root comes back while what others have submitted for it is being cancelled": ("unwaited and faults", 28_101_360),
    "a root was lost with its scheduler, and is named at the next one for the first time": ("swarm", 28_610_184),
    "rows are set aside that an agent has time for, as it had none for those before": ("leaving and faults", 1045),
    "rows that were set aside are next that an agent has time for, after one of unknown duration": ("leaving", 1039),
    "a task's client comes to the next scheduler before its agent does": ("swarm", 1005),
    "what a worker has used as a file is sent along": ("restarts", 2754),
    "workers count as having what could not be read from disk": ("disks", 586),
    "a part that was not on disk is submitted anew, and agents have ended rows of it": ("shared journal", 5_000_007),
    "a part comes late over a connection that was given up, when its job is deleted": ("shared journal", 2_000_232),
    "an agent comes late to a job that goes on, and is given the rows that it is to end": ("shared journal", 2_001_080),
    "one that was stopped steps down, and hears in that step what came long ago": ("copied journal", 2_001_465),
    "a hand-over fails whose journal is shared": ("shared journal", 2_002_323),
    "one is elected for a moment that knows of no roster": ("copied journal", 2_002_773),
    "one is elected by agents that are back at the other, which goes on alone": ("copied journal", 2_000_667),
    "a client sends a value that is computed again, too": ("shared journal", 2_003_808),
    "both have gone on alone, and what one has acknowledged goes aside": ("copied journal", 2_003_933),
    "one that was alone once leads again, and its standby knows of nobody": ("copied journal", 4_000_936),
    "one is lost with its disk while the other, whose disk was lost, waits for its copy": ("copied journal", 4_002_505),
    "one leads for a moment, and nobody knows": ("copied journal", 5_000_028),
    "a row is cancelled that its worker has not read yet": ("shared journal", 7_005_476),
    "one that was stopped takes up a part of a job that was deleted at the other since": ("shared journal", 7_008_757),
    "two streams are begun over two connections, and the first comes last": ("copied journal", 5_000_278),
    "one is started again before any agent has counted": ("copied journal", 7_005_195),
    "one that starts again without the other one and without agents is given a job": ("copied journal", 9_400_807),
    "one that was stopped is asked for a job that was made at the other meanwhile": ("copied journal", 9_102_231),
    "the one that stands by is asked for its copy over many connections that are lost": ("copied journal", 9_103_143),
    "one goes on behind what the other has written in two files and not synced": ("shared journal", 9_700_682),
    "a standby that was stopped hears long after that agents looked for it": ("copied journal", 9_850_747),
    "one that was stopped is asked for a job to which the other has added meanwhile": ("copied journal", 9_860_011),
    "one that starts again is cut off before it is told who counts, and goes on alone": ("copied journal", 11_100_611),
    "a client that was given up says again what it has cancelled": ("one by one", 27_500_276),
    "rows that have ended at their client were waiting for what it says is lost": ("one by one", 1044),
    "a row is claimed, and cancelled before its agent has granted that": ("durable and faults", 1031),
    "a store can't fetch from the only agent that it was told of, while another one has a copy": ("leaving", 7003),
    "a value is made again for a host that has no room, beyond its reach, and again": ("workers", 7_300_299),
    "what rows need that are about to go was moved to disk, and is read there": ("threads", 71_000_099),
    "one hands over to one that dies at once, and is to lead again": ("shared journal", 70_300_117),
    "what could not be computed again is asked for once more": ("stores", 70_600_086),
    "rows that take several slots are behind endless ones of two roots": ("swarm", 70_800_017),
    "what only a host beyond reach can make is made again there, again and again": ("disks", 72_101_415),
    "who had work alone waits for ever behind another root's rows, each of which is followed by the next": (
        "unwaited and faults",
        74_000_340,
    ),
    "a job that is deleted while it is copied is there again after a restart": ("shared journal", 76_101_142),
    "a row goes to and fro behind a long one for each more urgent one that comes": ("workers", 78_000_134),
    "what is made again for a host is given back by it, and made beyond its reach": ("ways", 80_003_221),
    "an agent that comes back gives up rows that it is to end, and is waited for ever to end them": (
        "ways and faults",
        82_000_109,
    ),
    "a value is made again of what was gone before its batch was heard of": ("ways and faults", 82_000_363),
    "a client has let go of what rows of its graph need, whose host is lost with the scheduler": ("stores", 82_000_015),
    "a small value that its client has let go of is told again by its agent, and is not made again": (
        "schedulers alone",
        85_000_697,
    ),
    # that rows of an unknown function are taken back from behind a long one at once, again and again, was found by
    # ("unwaited", 3): `test_garbage.py` runs it
    "an agent speaks of a client that does not come, and of one that has come, in one message": (
        "missed clients",
        28_580_033,
    ),
    # these two found a lock that a simulated process kept when it died
    "one is killed while it closes the journal that both have": ("shared journal", 7_001_524),
    "one is killed while it closes its journal": ("copied journal", 7_005_202),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_once_is_not_met_again(what: str) -> None:
    mix, seed = FOUND[what]
    run(seed, mix)


@pytest.mark.heavy
def test_a_thousand_kills_of_the_scheduler_lose_nothing() -> None:
    """Each run counts its own: no row is lost or hangs, none ends twice or wrongly, none runs again for a scheduler."""
    kills = rows = seed = 0
    while kills < 1_000:
        cluster = run(50_000 + seed, "schedulers alone")
        seed += 1
        kills += cluster.restarts
        rows += sum(len(client.jobs) for client in cluster.clients)
    print(f"{kills:,} kills of the scheduler in {seed} runs: {rows:,} rows, 0 lost, 0 twice, 0 hung, 0 wrong")


def test_no_move_of_the_tables_is_unmet() -> None:
    if SEED or MET.keys() != MIXES.keys():
        pytest.skip("only after all mixes, in the same process")
    missing = set(never_met(sum(MET.values(), Counter()))) - RARE
    assert not missing, f"no run of any mix has met: {sorted(missing)}"


def test_what_is_said_to_be_rare_is_in_the_tables() -> None:
    assert RARE <= ALL


def test_rows_are_given_back_for_idle_agents_of_other_capabilities() -> None:
    """Which they are is checked where they are asked for, in `simulator.recalls`; here, that there are some."""
    met = sum((run(seed, "everything").world.recalls for seed in seeds(0, 3)), Counter())
    assert {"asked for some", "given back"} <= met.keys()


def test_workers_that_are_stopped_come_to_rows_that_were_taken_back_meanwhile() -> None:
    """That none of these is begun twice is checked in each run; here, that there are some."""
    met = sum((run(seed, "stopped workers").world.revoked for seed in seeds(24, 5)), Counter())
    assert {"asked", "found"} <= met.keys()


def test_rows_that_are_held_back_end_where_they_are_cancelled() -> None:
    """That none of these begins is checked in each run; here, that there are some."""
    assert sum(run(seed, "one by one").world.ended_here for seed in seeds(4, 4)) > 20


def test_a_seed_says_all() -> None:
    stories = {tuple((when, who) for when, who, _ in run(3, "everything").world.events) for _ in range(2)}
    assert len(stories) == 1


def test_a_run_leaves_no_file_open() -> None:
    """Thousands are run in a process."""
    for mix in ("shared journal", "copied journal"):
        run(2, mix)
        with no_descriptor_stays():
            run(2, mix)
