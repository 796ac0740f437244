"""One process is killed between two effects of its core: at each such point of a fixed piece of work, by roles."""

import pytest
from simulator.crash_points import ROLES, CrashPoints

#: so many points apart are those that the fast suite tries, from the seed on
STRIDE = 60


def every(seed: int, is_local: bool, role: str, stride: int) -> int:
    """Kill at every so many-th point; how many those were, of how many."""
    work = CrashPoints(seed, is_local)
    points = work.count(role)
    tried = range(seed % stride, points, stride)
    for at in tried:
        work.run(role, at)
    print(f"{role}, {'local cluster' if is_local else 'cluster'}, seed {seed}: {len(tried)} of {points} points")
    return points


@pytest.mark.parametrize("role", ROLES)
def test_work_ends_rightly_whoever_dies_between_two_effects(role: str) -> None:
    assert every(3, False, role, STRIDE) >= 40


def test_work_ends_rightly_if_a_local_cluster_dies_between_two_effects() -> None:
    assert every(2, True, "agent", STRIDE) > 50


@pytest.mark.parametrize(
    ("role", "at"),
    [
        ("client", 187),  # rows of another one that its worker had ended, and not told of, as it was ended for this one
        ("scheduler", 96),  # a row that was cancelled, and of whose end the next scheduler heard before that
    ],
)
def test_work_ends_rightly_at_points_that_were_missed(role: str, at: int) -> None:
    CrashPoints(1, False).run(role, at)


@pytest.mark.heavy
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_work_ends_rightly_at_each_point(role: str, is_local: bool) -> None:
    every(1 + is_local, is_local, role, 1)


def test_the_process_that_is_killed_does_nothing_more() -> None:
    cluster = CrashPoints(1, False).run("scheduler", 20)
    fuse = cluster.world.fuse
    assert fuse is not None
    (killed,) = [(when, who) for when, who, what in cluster.world.events if "is killed at its boundary 20" in str(what)]
    assert not fuse.killed.alive
    starts = [when for when, who, what in cluster.world.events if (who, what) == ("scheduler", "starts")]
    said = [when for when, who, what in cluster.world.events if who == "scheduler" and isinstance(what, tuple)]
    assert len(starts) == 2
    assert not [when for when in said if killed[0] < when < starts[1]]
