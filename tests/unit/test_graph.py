import operator

import pytest

from scaler.errors import CycleError
from scaler.graph import Call, Constant, RemoteValue, from_tuples, is_large, plan
from scaler.graph.order import most_kept
from scaler.serialize.call import decode_function, encode_entries


def inc(x):
    return x + 1


def add(*values):
    return sum(values)


def run(made):
    """Run a plan as the cluster would: encoded, row by row, each with its dependencies' values."""
    values = []
    for part in made.runs:
        entries, _ = decode_function(encode_entries(part.entries))
        for entry, needed in zip(entries, part.dependencies, strict=True):
            assert all(number < len(values) for number in needed)
            values.append(entry.run([made.shared[-1 - n] if n < 0 else values[n] for n in needed]))
    return made.constants | {key: values[row] for key, row in made.rows_of_keys.items()}


def computed(graph, keys, **options):
    return run(plan(from_tuples(graph), keys, **options))


def rows(made):
    return sum(len(part.entries) for part in made.runs)


def test_the_example_of_the_documents():
    graph = {"a": 2, "b": 2, "c": (inc, "a"), "d": (add, "a", "b"), "e": (operator.sub, "d", "c")}
    assert computed(graph, ["e"]) == {"e": 1}
    assert computed(graph, ["a", "c", "e"]) == {"a": 2, "c": 3, "e": 1}


@pytest.mark.parametrize(
    ("task", "value"),
    [
        ((sum, ["a", "b", 10]), 16),
        ((sum, [(inc, "a"), (inc, (inc, "b"))]), 9),
        ((sum, ("a", "b")), 6),
        ((sum, [["a"], ["b"]][0]), 2),
        ((len, [["a"], ["b"]]), 2),
        ((sorted, {"a", "b"}), [2, 4]),
        ((max, frozenset(["a", "b"])), 4),
        ((add, "a", "a", "b", "a"), 10),
        ((add, 1, "b", 2, "a"), 9),
        ((add, "b", 1, "a", "b", 3), 14),
        ((pow, "b", "a", 5), 1),
        ((str, "nowhere"), "nowhere"),
        ((dict, [("k", "a")]), {"k": 2}),
        ((len, {"x": "a"}), 1),
        ((list, ["a", ["b", ["a"]]]), [2, [4, [2]]]),
        ((add,), 0),
        ("a", 2),
        (["a", "b", 7], [2, 4, 7]),
        ("text", "text"),
        ([1, 2], [1, 2]),
        ("task", "task"),
    ],
)
def test_tuples_are_read_at_any_depth(task, value):
    assert computed({"a": 2, "b": (add, 2, "a"), "task": task}, ["task"]) == {"task": value}


@pytest.mark.parametrize("key", [1, 2.5, ("x", 0), b"k", frozenset([1]), None])
def test_keys_are_of_any_hashable_type(key):
    assert computed({key: 5, "y": (inc, key)}, ["y", key]) == {"y": 6, key: 5}


def test_rows_that_are_not_needed_are_left_out():
    nodes = from_tuples({"a": 1, "b": (inc, "a"), "c": (inc, "a"), "d": (add, "b", "b")})
    made = plan(nodes, ["d"])
    assert [entry[0] for part in made.runs for entry in part.entries] == ["d"]


def test_a_chain_becomes_one_row():
    graph = {"x0": (add, 1)} | {f"x{i}": (inc, f"x{i - 1}") for i in range(1, 10)}
    made = plan(from_tuples(graph), ["x9"])
    assert rows(made) == 1
    assert run(made) == {"x9": 10}


def test_a_chain_is_cut_where_the_user_or_another_row_looks():
    graph = {"a": (add, 1), "b": (inc, "a"), "c": (inc, "b"), "d": (inc, "c"), "e": (add, "d", "b")}
    made = plan(from_tuples(graph), ["c", "e"])
    keys = [entry[0] for part in made.runs for entry in part.entries]
    assert keys == ["b", "c", "e"] or sorted(keys) == ["b", "c", "d", "e"]
    assert run(made) == {"c": 3, "e": 6}


def test_a_row_that_uses_a_value_twice_continues_the_chain():
    made = plan(from_tuples({"a": (add, 3), "b": (add, "a", "a")}), ["b"])
    assert rows(made) == 1
    assert run(made) == {"b": 6}


def test_several_names_of_one_value_are_one_row():
    made = plan(from_tuples({"a": (add, 3), "b": "a", "c": "b", "d": (add, "a", "b", "c")}), ["c", "b", "d"])
    assert rows(made) == 2
    assert run(made) == {"b": 3, "c": 3, "d": 9}


def test_very_long_chains_and_very_deep_graphs_do_not_recurse():
    length = 100_000
    chain = {"k0": (add, 0)} | {f"k{i}": (inc, f"k{i - 1}") for i in range(1, length)}
    assert computed(chain, [f"k{length - 1}"]) == {f"k{length - 1}": length - 1}
    ladder = {"k0": (add, 0)} | {f"k{i}": (max, f"k{i - 1}", f"k{i // 2}") for i in range(1, length)}
    assert rows(plan(from_tuples(ladder), [f"k{length - 1}"])) == length - 1


def test_runs_are_of_the_length_asked_for():
    graph = {f"k{i}": (inc, i) for i in range(10)}
    made = plan(from_tuples(graph), list(graph), run_length=4)
    assert [len(part.entries) for part in made.runs] == [4, 4, 2]


def test_the_order_given_is_the_order_of_the_rows():
    graph = dict.fromkeys("abcde", (add, 1))
    made = plan(from_tuples(graph), list(graph), {key: -ord(key) for key in "abcde"})
    assert [made.rows_of_keys[key] for key in "abcde"] == [4, 3, 2, 1, 0]


def test_an_order_against_the_dependencies_is_ignored():
    graph = {"a": (add, 1), "b": (add, "a", 1), "c": (add, "a", "b")}
    assert computed(graph, ["c"], order={"c": 0, "b": 1, "a": 2}) == {"c": 3}


def order_of(made):
    """The keys of a plan's rows."""
    return [entry[0] for part in made.runs for entry in part.entries]


def test_products_and_powers_of_the_same_parts_are_made_part_by_part():
    """Depth first all parts of a would be kept until the last square is summed."""
    parts = range(200)
    graph = {(name, i): (add, i) for name in "ab" for i in parts}
    graph |= {("aa", i): (operator.mul, ("a", i), ("a", i)) for i in parts}
    graph |= {("bb", i): (operator.mul, ("b", i), ("b", i)) for i in parts}
    graph |= {("ab", i): (operator.mul, ("a", i), ("b", i)) for i in parts}
    for name in ("aa", "bb", "ab"):
        graph |= {(name, "some", j): (sum, [(name, i) for i in parts[j : j + 4]]) for j in parts[::4]}
        graph |= {(name, "all"): (sum, [(name, "some", j) for j in parts[::4]])}
    wanted = [(name, "all") for name in ("aa", "bb", "ab")]
    made = plan(from_tuples(graph), wanted)
    needs = [needed for part in made.runs for needed in part.dependencies]
    assert most_kept(range(len(needs)), needs) < 160, "of which 150 are the sums of four"
    assert run(made) == computed(graph, wanted, order=dict.fromkeys(graph, 0))


def test_the_heavier_branch_comes_first():
    graph = {"k0": (add, 1)} | {f"x{i}": (add, i) for i in range(1, 4)}
    graph |= {f"k{i}": (add, f"x{i}", f"k{i - 1}") for i in range(1, 4)}
    assert order_of(plan(from_tuples(graph), ["k3"])) == ["x1", "k0", "k1", "x2", "k2", "x3", "k3"]
    assert computed(graph, ["k3"]) == {"k3": 7}


def test_a_value_is_used_up_as_soon_as_it_can_be():
    graph = {f"x{i}": (add, i) for i in range(4)}
    graph |= {f"left{i}": (add, f"x{i}", 1) for i in range(4)} | {f"right{i}": (add, f"x{i}", 2) for i in range(4)}
    graph |= {"lefts": (sum, [f"left{i}" for i in range(4)]), "rights": (sum, [f"right{i}" for i in range(4)])}
    graph["end"] = (add, "lefts", "rights")
    keys = order_of(plan(from_tuples(graph), ["end"]))
    assert keys[:6] == ["x0", "left0", "right0", "x1", "left1", "right1"]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"a": (inc, "a")}, "a -> a"),
        ({"a": (inc, "b"), "b": (inc, "c"), "c": (inc, "a")}, "a -> b -> c -> a"),
        ({"x": (add, "a", "b"), "a": (inc, "b"), "b": [1, "a"]}, "a -> b -> a"),
    ],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_cycle_is_named(graph, words, ordered):
    order = {key: index for index, key in enumerate(graph)} if ordered else None
    with pytest.raises(CycleError, match=words):
        plan(from_tuples(graph), [next(iter(graph))], order)


def test_a_long_cycle_is_named_in_short():
    graph = {i: (inc, (i + 1) % 1000) for i in range(1000)}
    with pytest.raises(CycleError, match=r"0 -> 1 -> .* -> \.\.\. -> .* -> 999 -> 0") as caught:
        plan(from_tuples(graph), [0])
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("order", [None, {"a": 0, "nowhere": 1}])
def test_a_missing_key_is_named(order):
    with pytest.raises(KeyError, match="nowhere"):
        plan(from_tuples({"a": 1}), ["a", "nowhere"], order)
    with pytest.raises(KeyError, match="nowhere") as caught:
        plan({"a": Call(inc, ("nowhere",))}, ["a"], order)
    (note,) = caught.value.__notes__
    assert note.startswith("a needs this key, which the graph does not have")


def test_a_large_constant_is_shared_and_copied_into_no_row():
    large = b"x" * 100_000
    graph = {"big": large} | {("byte", i): (operator.getitem, "big", i) for i in range(200)}
    made = plan(from_tuples(graph), [("byte", i) for i in range(200)])
    assert len(made.shared) == 1
    assert made.shared[0] is large
    assert all(part.dependencies[0] == (-1,) for part in made.runs)
    assert sum(len(encode_entries(part.entries)) for part in made.runs) < 10_000
    assert run(made)["byte", 7] == ord("x")


def test_a_large_argument_is_shared_even_when_nested_and_mixed():
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(100_000)
    graph = {"n": 2, "a": (add, 1), "s": (add, (numpy.sum, array), "n", "a", (len, [array, "a"]))}
    made = plan(from_tuples(graph), ["s"])
    assert len(made.shared) == 1
    assert run(made) == {"s": 100_000 + 2 + 1 + 2}


def test_only_calls_of_equal_options_share_a_row_or_a_run():
    graph = from_tuples({"a": (abs, 1), "b": (abs, "a"), "c": (abs, "b"), "d": (abs, "c"), "e": (abs, 2)})
    made = plan(graph, ["d", "e"], options={"b": 5, "c": 5, "elsewhere": 6})
    assert [(run.options, len(run.entries), run.dependencies) for run in made.runs] == [
        (None, 1, [()]),
        (5, 1, [(0,)]),
        (None, 2, [(1,), ()]),
    ]
    assert len(plan(graph, ["d", "e"]).runs) == 1


def test_lone_calls_share_their_row_with_none():
    graph = from_tuples({"a": (abs, -1), "b": (abs, "a"), "c": (abs, "b"), "d": (abs, "c"), "e": (abs, "d")})
    (run,) = plan(graph, ["e"], lone={"c"}).runs
    assert run.dependencies == [(), (0,), (1,)]
    (run,) = plan(graph, ["e"], lone=graph).runs
    assert len(run.entries) == 5


def test_what_is_in_the_cluster_is_shared_unless_it_has_come_here():
    class Here(RemoteValue):
        def value_or_self(self):
            return 7

    there, here = RemoteValue(), Here()
    graph = from_tuples({"a": there, "b": (max, "a", here, there), "c": (min, "b", "a"), "d": here, "e": (abs, "d")})
    made = plan(graph, ["c", "a", "e"])
    (run,) = made.runs
    assert made.shared == [there]
    assert made.constants == {"a": there}
    assert (-1,) in run.dependencies
    assert here not in [value for entry in run.entries for value in entry[2]]


def test_a_large_value_is_shared_however_deep_it_is_in_lists():
    large = b"x" * 100_000
    deep = [[1, [[{"a": [large, 2]}]]], 3]
    assert sum(len(encode_entries(run.entries)) for run in plan(from_tuples({"n": (len, deep)}), ["n"]).runs) < 1000
    itself = [1]
    itself.append(itself)
    assert not is_large(itself)


def test_a_wanted_large_constant_is_just_given_back():
    made = plan(from_tuples({"big": b"x" * 100_000}), ["big"])
    assert (made.runs, made.shared) == ([], [])
    assert run(made) == {"big": b"x" * 100_000}


def test_a_failing_link_of_a_chain_is_named():
    made = plan(from_tuples({"a": (add, 1), "b": (len, "a"), "c": (inc, "b")}), ["c"])
    with pytest.raises(TypeError) as caught:
        run(made)
    assert caught.value.__notes__ == ["while computing 'b'"]


class Strange:
    """A node of a kind the planner does not know."""

    dependencies = frozenset({"a", "b"})

    def __call__(self, values):
        return values["a"] * 10 + values["b"]


def test_nodes_of_other_kinds_run_as_they_are():
    nodes = {**from_tuples({"a": 1, "b": (add, 2)}), "c": Strange()}
    assert run(plan(nodes, ["c"])) == {"c": 12}


def test_nodes_can_be_called_directly():
    nodes = from_tuples({"a": 1, "b": "a", "c": (add, "a", 5)})
    assert isinstance(nodes["a"], Constant)
    assert nodes["a"]({}) == 1
    assert nodes["b"]({"a": 1}) == 1
    assert nodes["c"]({"a": 1}) == 6


def test_a_run_names_its_functions_for_messages():
    made = plan(from_tuples({"a": (add, 1), "b": (abs, "a"), "c": (add, "b", "a")}), ["c"])
    assert made.runs[0].names == "add, abs"


def test_runs_are_small():
    graph = {("inc-8a3b5cf1", i): (inc, i) for i in range(6400)}
    made = plan(from_tuples(graph), list(graph))
    assert sum(len(encode_entries(part.entries)) for part in made.runs) < 25 * 6400


def test_a_data_frame_is_looked_into_only_if_it_has_rows(monkeypatch):
    pandas = pytest.importorskip("pandas")
    asked = []
    measure = pandas.DataFrame.__sizeof__
    monkeypatch.setattr(pandas.DataFrame, "__sizeof__", lambda self: asked.append(len(self)) or measure(self))
    full = pandas.DataFrame({"key": ["a long text of the first row"] * 100_000})
    assert is_large(full)
    assert not is_large(full.iloc[:0])
    assert not is_large(full.iloc[:2])
    assert asked == [100_000, 2]
