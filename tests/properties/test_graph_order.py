"""Orders of random graphs: they are orders, and few values are kept at a time."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.graph import order as orders
from scaler.graph.order import completing_first, fewest_kept, heaviest_first, is_order, releasing_first


def most_kept(order, needs, kept=()):
    """Return how many values there are at most after a call, those let go of that nobody needs any more."""
    users = [[user for user, needed in enumerate(needs) if number in needed] for number in range(len(needs))]
    made, most = set(), 0
    for number in order:
        made.add(number)
        most = max(most, sum(value in kept or not made.issuperset(users[value]) for value in made))
    return most


ORDERS = {"best": fewest_kept, "releasing": releasing_first, "completing": completing_first}


@st.composite
def graphs(draw):
    """The needs of each call, all of them smaller than its number, and the calls whose values are kept."""
    size = draw(st.integers(1, 25))
    needs = [
        tuple(draw(st.lists(st.integers(0, number - 1), max_size=4, unique=True))) if number else ()
        for number in range(size)
    ]
    return needs, draw(st.sets(st.integers(0, size - 1)))


@st.composite
def trees(draw, largest=8):
    """One tree, its calls numbered depth first."""
    needs = []
    roots = []
    for number in range(draw(st.integers(1, largest))):
        count = draw(st.integers(0, len(roots)))
        mine = roots[len(roots) - count :]
        del roots[len(roots) - count :]
        needs.append(tuple(mine))
        roots.append(number)
    if len(roots) > 1:
        needs.append(tuple(roots))
    return needs


@given(graphs())
def test_calls_that_let_go_come_first_without_keeping_more_values(case):
    needs, kept = case
    order = releasing_first(needs, kept)
    assert sorted(order) == list(range(len(needs)))
    assert is_order(order, needs)
    assert most_kept(order, needs, kept) <= most_kept(range(len(needs)), needs, kept)


@given(graphs())
def test_calls_that_are_completed_early_come_after_those_they_need(case):
    needs, kept = case
    order = completing_first(needs, kept)
    assert sorted(order) == list(range(len(needs)))
    assert is_order(order, needs)


def test_a_call_may_name_a_value_twice():
    """As nodes that users make may."""
    needs = [(), (0, 0), (1, 1, 0), (), (3, 3, 2)]
    assert all(is_order(order(needs, []), needs) for order in ORDERS.values())


@given(graphs())
def test_the_better_of_the_orders_is_taken(case):
    needs, kept = case
    kept_by = {name: most_kept(order(needs, kept), needs, kept) for name, order in ORDERS.items()}
    assert kept_by["best"] == min(kept_by.values())
    assert kept_by["best"] == orders.most_kept(fewest_kept(needs, kept), needs, kept)


@pytest.mark.parametrize("order", [releasing_first, completing_first])
def test_calls_that_all_need_the_same_values_are_put_into_order_in_linear_time(order):
    """Each of the values is let go of by the last call: looked at once, not once for each."""
    looks = 0

    class Counted(tuple):
        __slots__ = ()

        def __getitem__(self, index):
            nonlocal looks
            looks += 1
            return super().__getitem__(index)

        def __iter__(self):
            nonlocal looks
            looks += len(self)
            return super().__iter__()

    values = 300
    needs = [Counted() for _ in range(values)] + [Counted(range(values)) for _ in range(10)]
    order(needs, [])
    assert looks <= 10 * sum(map(len, needs))


@given(trees())
def test_no_order_of_a_tree_keeps_fewer_values_than_the_heaviest_branch_first(needs):
    order = heaviest_first(needs) or list(range(len(needs)))
    assert sorted(order) == list(range(len(needs)))
    assert is_order(order, needs)
    if len(needs) <= 7:
        others = (other for other in itertools.permutations(range(len(needs))) if is_order(other, needs))
        assert most_kept(order, needs) == min(most_kept(other, needs) for other in others)


@given(graphs(), st.randoms(use_true_random=False))
def test_an_order_is_told_from_other_sequences(case, random):
    needs, _ = case
    sequence = list(range(len(needs)))
    random.shuffle(sequence)
    expected = all(sequence.index(need) < sequence.index(number) for number in sequence for need in needs[number])
    assert is_order(sequence, needs) == expected
