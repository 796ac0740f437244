"""What `bench.compare` says of pairs of runs."""

import math
import random

import pytest

from bench.compare import Ratio, _engines_of, _pairs, compared, ratio_of
from bench.figures import FIGURES

#: another state of this project, as far as it is asked for samples: one figure three times, and one once
_STATE = """
from dataclasses import dataclass

@dataclass
class Sample:
    figure: str
    engine: str
    value: float
    rows: int

class Case:
    def measure(self, engine, repetitions):
        yield Sample("submit", engine, 1.0, 0)
        yield Sample("memory_empty", engine, 50.0, 0)
        yield Sample("submit", engine, 2.0, 0)
        yield Sample("submit", engine, 3.0, 0)

CASES = {"both": Case()}
"""


def test_a_rate_is_better_if_it_is_more_and_a_time_if_it_is_less():
    assert FIGURES["submit"].times_better(110, 100) == pytest.approx(1.1)
    assert FIGURES["startup"].times_better(100, 110) == pytest.approx(1.1)


@pytest.mark.parametrize("openings", [5, 8, 9, 20])
def test_an_interval_holds_the_true_median_as_often_as_it_says(openings):
    chance, held = random.Random(openings), 0
    for _ in range(2_000):
        ratio = ratio_of([math.exp(chance.gauss(0.0, 0.2)) for _ in range(openings)])  # the true median is 1
        held += ratio.low <= 1 <= ratio.high
    assert held >= 0.88 * 2_000


def test_fewer_than_five_openings_decide_nothing():
    assert ratio_of([0.5] * 4) == Ratio(0.5, 0, math.inf)
    assert ratio_of([0.5] * 4).verdict(0.03) == "not decided"
    assert ratio_of([0.5] * 5).verdict(0.03) == "WORSE"


def test_a_table_says_how_many_times_better_a_figure_is():
    [head, *rows] = compared({("submit", "scaler"): [[(100.0, 200.0)] * 2] * 5}, 0.03)
    [row] = rows
    assert row == ["submit, tasks/s", "100", "200", "2.000", "2.000 and 2.000", "5", "10", "better"]
    assert len(head) == len(row)


def test_an_engine_that_is_not_the_ordinary_one_is_named():
    [_, row] = compared({("submit", "daemons"): [[(100.0, 90.0)]] * 6}, 0.03)
    assert row[0] == "submit, tasks/s (Scaler, daemons apart)"
    assert row[-1] == "WORSE"


def test_what_many_pairs_of_one_opening_say_counts_once():
    often, seldom = [(100.0, 50.0)] * 50, [(100.0, 100.0)] * 2
    [_, row] = compared({("submit", "scaler"): [often, *[seldom] * 7]}, 0.03)
    assert row[3:] == ["1.000", "1.000 and 1.000", "8", "64", "not worse"]


def test_the_first_of_a_figure_is_left_out_unless_it_has_no_other(tmp_path):
    cases = tmp_path / "bench" / "cases"
    cases.mkdir(parents=True)
    (tmp_path / "bench" / "__init__.py").touch()
    (cases / "__init__.py").write_text(_STATE)
    pairs = list(_pairs(tmp_path, tmp_path, "both", "scaler", random.Random(0)))
    assert sorted((old.figure, old.value, new.value) for old, new in pairs) == [
        ("memory_empty", 50.0, 50.0),
        ("submit", 2.0, 2.0),
        ("submit", 3.0, 3.0),
    ]


def test_a_case_is_compared_with_its_own_engine_and_says_so_if_none_of_those_wanted_is_one(capsys):
    assert _engines_of("million", None) == ["daemons"]
    assert _engines_of("argument", None) == ["scaler"]
    assert _engines_of("argument", ["daemons", "threads"]) == ["daemons"]
    assert _engines_of("million", ["scaler"]) == []
    assert capsys.readouterr().err == "million is for daemons only: not compared\n"
