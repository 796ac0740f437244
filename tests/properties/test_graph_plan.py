"""Random graphs: what a plan computes is what plain recursion computes."""

import functools
import operator

from hypothesis import given
from hypothesis import strategies as st

from scaler.graph import from_tuples, plan
from scaler.serialize.call import decode_function, encode_entries

#: stands for the value below, whose repr nobody wants to see
LARGE = "LARGE"
LARGE_VALUE = b"L" * 70_000


def combine(*values):
    return hash(repr(values)) % 1009


@functools.cache
def values(number):
    """What the value of a key may be, in a graph that has so many before it."""
    argument = st.sampled_from(range(number)).map("k{}".format) if number else st.integers(0, 9)
    argument = st.recursive(
        argument | st.integers(0, 9) | st.just(LARGE),
        lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=2).map(lambda args: (combine, *args)),
        max_leaves=4,
    )
    call = st.lists(argument, max_size=4).map(lambda args: (combine, *args))
    link = argument.map(lambda arg: (combine, arg))
    return call | link | link | argument


@st.composite
def graphs(draw):
    """A graph without cycles, its keys in any order, and some keys that are wanted."""
    graph = {f"k{number}": draw(values(number)) for number in range(draw(st.integers(1, 25)))}
    graph = {key: graph[key] for key in draw(st.permutations(list(graph)))}
    wanted = draw(st.lists(st.sampled_from(list(graph)), min_size=1, unique=True))
    return graph, wanted


def nodes_of(graph):
    def spelled_out(arg):
        if isinstance(arg, (list, tuple)):
            return type(arg)(map(spelled_out, arg))
        return LARGE_VALUE if arg == LARGE else arg

    return from_tuples({key: spelled_out(task) for key, task in graph.items()})


def evaluate(graph, key):
    def value(arg):
        if isinstance(arg, tuple) and arg and callable(arg[0]):
            return arg[0](*map(value, arg[1:]))
        if isinstance(arg, list):
            return list(map(value, arg))
        if arg == LARGE:
            return LARGE_VALUE
        return evaluate(graph, arg) if isinstance(arg, str) and arg in graph else arg

    return value(graph[key])


def needed(graph, wanted):
    """Return the keys that `wanted` depends on."""
    found = set()

    def visit(arg):
        if isinstance(arg, (list, tuple)):
            for item in arg:
                visit(item)
        elif isinstance(arg, str) and arg in graph and arg not in found:
            found.add(arg)
            visit(graph[arg])

    visit(list(wanted))
    return found


@given(graphs(), st.booleans(), st.integers(1, 5))
def test_a_plan_computes_what_recursion_computes(case, ordered, run_length):
    graph, wanted = case
    order = {key: number for number, key in enumerate(sorted(graph, key=lambda key: int(key[1:])))} if ordered else None
    made = plan(nodes_of(graph), wanted, order, run_length)

    values = []
    for run in made.runs:
        entries, _ = decode_function(encode_entries(run.entries))
        for entry, numbers in zip(entries, run.dependencies, strict=True):
            assert all(-len(made.shared) <= number < len(values) for number in numbers), "a row before its dependency"
            values.append(entry.run([values[n] if n >= 0 else made.shared[-1 - n] for n in numbers]))

    assert set(made.rows_of_keys) | set(made.constants) == set(wanted)
    assert not set(made.rows_of_keys) & set(made.constants)
    got = made.constants | {key: values[row] for key, row in made.rows_of_keys.items()}
    assert got == {key: evaluate(graph, key) for key in wanted}


@given(graphs())
def test_every_call_that_is_needed_runs_once_and_no_other(case):
    graph, wanted = case
    made = plan(nodes_of(graph), wanted)
    keys = []
    for run in made.runs:
        for entry in run.entries:
            keys.extend(step[0] for step in entry[2]) if entry[1] is None else keys.append(entry[0])
    nodes = nodes_of(graph)
    calls = {key for key in needed(graph, wanted) if hasattr(nodes[key], "function")}
    assert sorted(keys) == sorted(calls)


@given(graphs())
def test_what_is_wanted_is_the_last_link_of_its_chain(case):
    graph, wanted = case
    made = plan(nodes_of(graph), wanted)
    entries = [entry for run in made.runs for entry in run.entries]
    for key, row in made.rows_of_keys.items():
        while not hasattr(node := nodes_of(graph)[key], "function"):
            key = node.target
        assert operator.eq(entries[row][0], key)


@given(graphs())
def test_large_values_are_in_no_row(case):
    graph, wanted = case
    made = plan(nodes_of(graph), wanted)
    assert sum(len(encode_entries(run.entries)) for run in made.runs) < len(LARGE_VALUE)
