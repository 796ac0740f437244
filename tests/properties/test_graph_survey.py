"""Random graphs: sparse matrices find in them what a walk finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.errors import CycleError
from scaler.graph import Alias, Call, Constant, depth_first, plan, sparse

pytest.importorskip("graphblas")
sparse.survey({"a": Constant(1)}, ["a"])  # most of it is imported when it is first used, which takes long


class Foreign:
    """A node that the planner does not know, which may name a dependency twice."""

    def __init__(self, dependencies):
        self.dependencies = dependencies

    def __call__(self, values):
        return [values[key] for key in self.dependencies]


@st.composite
def graphs(draw):
    """Nodes that may have cycles and lack some of what they need, and some keys that are wanted."""
    size = draw(st.integers(1, 12))
    is_ordered = draw(st.booleans())
    keys = [("k", number) for number in range(size)]
    nodes = {}
    for number, key in enumerate(keys):
        known = keys[:number] if is_ordered else keys
        some = st.sampled_from([*known, *(["nowhere", "lost"] if draw(st.integers(0, 5)) == 0 else [])] or ["nowhere"])
        kind = draw(st.integers(0, 5 if known else 0))
        if kind == 0:
            nodes[key] = Constant(number)
        elif kind == 1:
            nodes[key] = Alias(draw(some))
        elif kind == 2:
            nodes[key] = Foreign(draw(st.lists(some, max_size=4)))
        else:
            nodes[key] = Call(max, tuple(draw(st.lists(some, max_size=4, unique=True))))
    nodes = {key: nodes[key] for key in draw(st.permutations(keys))}
    return nodes, draw(st.lists(st.sampled_from([*keys, *keys, "nowhere"]), unique=True))


def levels_of(nodes, keys):
    levels = {}
    for key in keys:
        levels[key] = max([levels[need] + 1 for need in nodes[key].dependencies], default=0)
    return levels


@given(graphs())
def test_a_survey_finds_what_a_walk_finds(case):
    nodes, wanted = case
    survey = sparse.survey(nodes, wanted)
    try:
        walk = depth_first(nodes, wanted)
    except (CycleError, KeyError):
        assert survey is None
        return
    assert survey is not None
    assert dict(zip(survey.keys, survey.levels, strict=True)) == levels_of(nodes, walk)
    assert len(survey.keys) == len(walk)
    places = {key: place for place, key in enumerate(survey.keys)}
    assert all(places[need] < places[key] for key in walk for need in nodes[key].dependencies)


@given(graphs())
def test_plans_are_the_same_with_and_without(case):
    nodes, wanted = case
    order = {key: number for number, key in enumerate(nodes)}
    order |= dict.fromkeys(["nowhere", "lost"], -1)
    outcomes = []
    for first in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sparse, "FROM", first)
            try:
                made = plan(nodes, wanted, order)
            except (CycleError, KeyError) as error:
                outcomes.append((type(error), str(error)))
            else:
                outcomes.append((made.runs, made.rows_of_keys, made.constants, made.shared))
    assert outcomes[0] == outcomes[1]


def test_a_graph_that_is_too_deep_is_left_to_a_walk():
    nodes = {0: Call(max, ())} | {number: Call(max, (number - 1,)) for number in range(1, sparse.DEEPEST + 5)}
    assert sparse.survey(nodes, [sparse.DEEPEST]) is None
    survey = sparse.survey(nodes, [sparse.DEEPEST - 10])
    assert survey is not None
    assert survey.levels == list(range(sparse.DEEPEST - 9))


def test_nothing_wanted_is_nothing_found():
    survey = sparse.survey({"a": Constant(1)}, [])
    assert survey is not None
    assert survey.keys == []
