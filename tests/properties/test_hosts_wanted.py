"""The number of wanted hosts while durations are estimates that waver."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scaler.provisioning.core import Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.core.wanted import Wanted

PLAIN = frozenset[str]()


def asked(rows: int, each: float) -> ev.Observed:
    """So many rows, each of which is thought to take so many seconds."""
    return ev.Observed((), (ev.Asked(PLAIN, rows, rows * each, 0, 0),))


def turns(numbers: list[int]) -> int:
    signs = [b > a for a, b in pairwise(numbers) if a != b]
    return sum(a != b for a, b in pairwise(signs))


@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(0.85, 1.2)), min_size=10, max_size=60),
    st.integers(1, 4), st.floats(10.0, 60.0), st.floats(0.0, 4.0), st.integers(3, 100),
)  # fmt: skip
def test_a_queue_that_is_worked_off_is_one_way_up_and_one_way_down(seconds, workers, drain_time, idle_time, maximum):
    limits = Limits(maximum=maximum, workers=workers, drain_time=drain_time, idle_time=idle_time)
    wanted, said, rows = Wanted(), [], sum(went for went, _ in seconds)
    for now, (went, wavers) in enumerate(seconds):
        said.append(wanted.update(asked(rows, 3.0 * wavers), limits, PLAIN, float(now)))
        rows -= went
    assert turns([0, *said]) <= 1


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_rows_that_come_get_their_hosts_at_once_whatever_was_before(first, second, third):
    limits = Limits(maximum=1000, drain_time=1.0, idle_time=0.0)
    wanted = Wanted()
    for now, rows in enumerate((first, second, third)):
        assert wanted.update(asked(rows, 1.0), limits, PLAIN, float(now)) == rows


@given(st.integers(1, 20), st.floats(1.6, 10.0))
def test_rows_that_take_far_longer_than_was_thought_get_their_hosts(hosts, factor):
    limits = Limits(maximum=1000, drain_time=100.0, idle_time=1.0)
    wanted = Wanted()
    wanted.update(asked(4000, 2.5 * hosts), limits, PLAIN, 0.0)
    for now in range(1, 4):
        fewer = wanted.update(asked(3900, hosts / 40), limits, PLAIN, 60.0 * now)
    assert fewer == hosts
    more = wanted.update(asked(3900, factor * hosts / 40), limits, PLAIN, 185.0)
    assert (more > hosts) == (factor * hosts * 0.975 > hosts + max(1.0, 0.5 * hosts))
