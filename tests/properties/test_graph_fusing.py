"""Fused rows compute what the rows by themselves compute."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.graph import from_tuples, fusing, plan
from scaler.graph.fusing import MOST_STEPS, fuse, fusion_limit
from scaler.serialize.call import decode_function, pack_entries


def name(*values: Any) -> str:
    """A value that shows how it was made."""
    return f"({','.join(values)})"


@st.composite
def graphs(draw: Any) -> tuple[dict[str, Any], list[str]]:
    count = draw(st.integers(1, 30))
    graph: dict[str, Any] = {}
    for i in range(count):
        needs = draw(st.lists(st.integers(0, i - 1), max_size=4, unique=True)) if i else []
        if not needs and draw(st.booleans()):
            graph[f"k{i}"] = f"c{i}"
        elif len(needs) == 1 and draw(st.booleans()) and draw(st.booleans()):
            graph[f"k{i}"] = f"k{needs[0]}"
        else:
            args = [f"k{need}" for need in needs]
            graph[f"k{i}"] = (name, str(i), *args) if draw(st.booleans()) else (name, str(i), (name, *args))
    return graph, draw(st.lists(st.sampled_from(sorted(graph)), min_size=1, max_size=4, unique=True))


def computed(graph: dict[str, Any], keys: list[str], workers: int | None) -> tuple[dict[str, Any], int]:
    """Run a plan as workers would; the values and the number of rows."""
    made = plan(from_tuples(graph), keys, workers=workers)
    values: list[Any] = []
    for run in made.runs:
        entries, _ = decode_function(*pack_entries(run.entries))
        for entry, needs in zip(entries, run.dependencies, strict=True):
            assert all(need < len(values) for need in needs)
            values.append(entry.run([values[need] if need >= 0 else made.shared[~need] for need in needs]))
    found = {key: values[row] for key, row in made.rows_of_keys.items()}
    return {**found, **made.constants}, len(values)


@given(graphs(), st.integers(2, 9))
def test_fused_rows_compute_what_rows_compute(case: Any, limit: int) -> None:
    graph, keys = case
    before, fusing.ROWS_PER_WORKER = fusing.ROWS_PER_WORKER, 1
    try:
        joined, fewer = computed(graph, keys, max(1, len(graph) // limit))
    finally:
        fusing.ROWS_PER_WORKER = before
    alone, rows = computed(graph, keys, None)
    assert joined == alone
    assert fewer <= rows


@given(
    st.lists(st.lists(st.integers(0, 200), max_size=4, unique=True), min_size=1, max_size=60),
    st.integers(2, MOST_STEPS),
)
def test_a_fused_row_has_no_more_steps_than_it_may(needs: list[list[int]], limit: int) -> None:
    dependencies = [tuple({need % row for need in mine} if row else ()) for row, mine in enumerate(needs)]
    uses = [sum(row in mine for mine in dependencies) for row in range(len(needs))]
    entries = [(row, name) for row in range(len(needs))]
    left, _, numbers = fuse(entries, dependencies, [count == 1 for count in uses], limit)
    assert sum(len(entry[2]) if entry[1] is None else 1 for entry in left) == len(entries)
    assert max(len(entry[2]) if entry[1] is None else 1 for entry in left) <= limit
    assert all(0 <= number < len(left) for number in numbers)


def test_of_several_rows_the_one_made_last_is_fused_as_what_it_needs_is_kept_for_the_shortest_time() -> None:
    dependencies = [(), (), (0, 1), (), (), (3, 4), (2, 5)]
    entries = [(f"k{row}", name) for row in range(7)]
    _, left, numbers = fuse(entries, dependencies, [row in (2, 5) for row in range(7)], 2)
    assert left == [(), (), (0, 1), (), (), (3, 4, 2)]
    assert numbers == [0, 1, 2, 3, 4, 5, 5]


def test_nothing_is_fused_in_small_graphs_and_for_large_clusters() -> None:
    assert fusion_limit(1_000, 100) == 1
    assert fusion_limit(1_000_000, None) == 1


def test_a_failing_step_of_a_fused_row_is_named() -> None:
    fused = ("top", None, [("low", int, ("x",), (), ()), ("top", abs)], [(), (~0,)])
    (entry,), _ = decode_function(*pack_entries([fused]))
    with pytest.raises(ValueError, match="invalid literal") as raised:
        entry.run([])
    assert raised.value.__notes__ == ["while computing 'low'"]
