"""The number of wanted hosts, one look at the cluster after the other. Seeds are those of `tests/sim/test_fleet.py`."""

from scaler.provisioning.core import Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.core.wanted import MANY, Wanted

PLAIN = frozenset()
#: hosts are fewer at once where it is rows that say so, by estimates after 30 s
LIMITS = Limits(maximum=100, drain_time=60.0, guess=1.0, idle_time=0.0)


class Looks:
    """A cluster that is looked at once a second; the number that is wanted, of LIMITS."""

    def __init__(self):
        self.wanted = Wanted()
        self.now = 0.0

    def see(self, known=0, each=0.0, unknown=0, at_agents=0, workers=0, seconds=1.0, hardly=0):
        self.now += seconds
        agents = tuple(ev.Agent(f"{n}", 1, 1) for n in range(workers))
        asked = ev.Asked(PLAIN, known + unknown, known * each, unknown, at_agents, hardly)
        jobs = frozenset(agent.job for agent in agents)
        return self.wanted.update(ev.Observed(agents, (asked,)), LIMITS, jobs, self.now)

    def work_off(self, rows, each, seconds, step=1, **others):
        """So many rows less each second; the last number."""
        numbers = [self.see(rows - n * step, each, **others) for n in range(seconds)]
        return numbers[-1]


def test_rows_of_unknown_duration_keep_hosts_while_the_others_are_worked_off():
    """Seeds 3983, 7397, 30333: they counted as the guess, and when one of them had ended the hosts were wanted back."""
    looks = Looks()
    assert looks.see(unknown=500) == 9
    assert looks.see(known=100, each=30.0, unknown=400) == 57
    assert looks.work_off(100, 30.0, seconds=100, unknown=400) == 57
    assert looks.see(known=399, each=8.0) == 57


def test_rows_of_which_few_have_ended_keep_hosts_while_others_of_another_function_are_worked_off():
    """Seed 721049: 400 rows of one function ended, by which the first ones of another said too little for long."""
    looks = Looks()
    assert looks.see(known=500, each=6.0) == 50
    assert looks.work_off(500, 0.5, seconds=100, step=4, hardly=90) == 50
    assert looks.see(known=90, each=10.0, hardly=0) <= 50


def test_no_more_hosts_are_kept_than_there_are_rows_of_unknown_duration():
    looks = Looks()
    assert looks.see(known=100, each=30.0, unknown=7) == 51
    assert looks.work_off(100, 30.0, seconds=100, unknown=7) < 25
    for _ in range(40):
        fewer = looks.see(unknown=7)
    assert fewer == 7


def test_more_hosts_are_wanted_for_a_guess_and_not_for_a_worker_each():
    looks = Looks()
    assert looks.see(unknown=120) == 2
    assert looks.see(unknown=240) == 4


def test_hosts_are_not_made_fewer_by_what_a_few_rows_took():
    """Seeds 200138, 211344, 217555: short rows ended first, and the hosts were wanted back when longer ones had."""
    looks = Looks()
    assert looks.see(known=400, each=6.0) == 40
    for n in range(MANY - 1):
        few = looks.see(known=399 - n, each=3.0, seconds=10.0)
    assert few == 40
    assert looks.see(known=350, each=3.0) == 20


def test_estimates_keep_what_is_wanted_and_bring_nothing_back():
    """Seed 101238: what was wanted for the wave before was wanted for rows that came a minute after its end."""
    looks = Looks()
    assert looks.see(known=40, each=60.0) == 40
    assert looks.see(known=30, each=60.0) == 30
    assert looks.see() == 0
    for _ in range(100):
        looks.see()
    assert looks.see(unknown=120) == 2


def test_where_many_work_as_many_have_to_have_ended():
    looks = Looks()
    assert looks.see(known=4000, each=1.2) == 80
    for n in range(79):
        few = looks.see(known=3999 - n, each=0.6, at_agents=80, workers=80, seconds=10.0)
    assert few == 80
    assert looks.work_off(3920, 0.6, seconds=100, at_agents=80, workers=80) < 50


def test_time_in_which_nobody_saw_the_cluster_says_nothing_of_it():
    """A scheduler that is back has none of its clients for a moment."""
    limits = Limits(maximum=100, drain_time=60.0, idle_time=30.0)
    wanted, none = Wanted(), ev.Observed((), (ev.Asked(PLAIN, 0, 0.0, 0, 0),))
    assert wanted.update(ev.Observed((), (ev.Asked(PLAIN, 20, 600.0, 0, 0),)), limits, PLAIN, 0.0) == 10
    wanted.lose_sight()
    assert wanted.update(none, limits, PLAIN, 500.0) == 10
    assert wanted.update(none, limits, PLAIN, 529.0) == 10
    assert wanted.update(none, limits, PLAIN, 531.0) == 0
