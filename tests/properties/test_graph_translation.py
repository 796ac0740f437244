"""Random graphs of tuples: what they mean under `scaler_get` is what they mean to dask."""

import collections
import functools
import re
from unittest.mock import patch
from zlib import crc32

import dask
import dask.local
from hypothesis import given
from hypothesis import strategies as st

from scaler.graph import plan
from scaler.serialize.call import decode_function, encode_entries
from scaler_dask.translate import translate

Pair = collections.namedtuple("Pair", "left right")


def combine(*values):
    return [shortened(describe(value)) for value in values]


def shortened(text):
    """Values of values are texts in texts, each of which escapes the quotes of those: seven deep they fill memory."""
    return text if len(text) < 500 else f"{text[:100]}... {len(text)} {crc32(text.encode())}"


def describe(value):
    """A value without the order of sets, however deep they are, and the places of functions in memory."""
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(describe, value)))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(describe, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{key!r}: {describe(inner)}' for key, inner in value.items())})"
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


KEYS = ["a", "b", ("x", 0), ("x", 1), 7, 2.5, "end"]
LITERALS = st.sampled_from([0, 1, True, None, "text", b"a", "a", 7, 7.0, ("x", 0), ("x", 2), 1j, len, "end of it"])


@functools.cache  # made anew for each draw, a recursive one is not the same strategy to Hypothesis
def arguments(keys):
    plain = LITERALS | st.sampled_from(keys) if keys else LITERALS
    return st.recursive(
        plain,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.frozensets(plain, max_size=3)
            | st.sets(plain, max_size=3)
            | st.dictionaries(st.sampled_from(["k", "a"]), inner, max_size=2)
            | st.tuples(inner, inner).map(lambda two: Pair(*two))
            | st.lists(inner, max_size=3).map(lambda args: (combine, *args))
        ),
        max_leaves=6,
    )


@st.composite
def graphs(draw):
    """A graph in which each key needs only keys before it, whatever literals say."""
    graph = {}
    for key in draw(st.permutations(KEYS)):
        known = tuple(graph)
        task = draw(st.lists(arguments(known), max_size=3).map(lambda args: (combine, *args)) | arguments(known))
        graph[key] = task
    return graph


def computed(graph):
    made = plan(translate(graph), list(graph))
    values = []
    for run in made.runs:
        entries, _ = decode_function(encode_entries(run.entries))
        for entry, needed in zip(entries, run.dependencies, strict=True):
            values.append(entry.run([values[n] if n >= 0 else made.shared[-1 - n] for n in needed]))
    return [made.constants[key] if key in made.constants else values[made.rows_of_keys[key]] for key in graph]


def computed_by_dask(graph):
    """Raises what dask raises, and `queue.Empty` where it would wait for ever for a task that it never began."""
    with patch.object(dask.local, "queue_get", lambda queue: queue.get_nowait()):  # tasks run in this thread
        return dask.get(graph, list(graph))


@given(graphs())
def test_a_graph_of_tuples_means_what_it_means_to_dask(graph):
    try:
        expected = computed_by_dask(graph)
    except Exception:  # a literal that happens to be a key made a cycle, or something that cannot be in a set
        return
    assert list(map(describe, computed(graph))) == list(map(describe, expected))
