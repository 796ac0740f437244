"""Values are cut out of a list of results as the list has them, and any bytes are such a list or one ProtocolError."""

import math
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scaler.errors import ProtocolError
from scaler.protocol.messages import STORED, VALUES_EACH, VALUES_LIST, u32
from scaler.protocol.results import SpanResult, cut, each_of, rows_of, values_of
from scaler.protocol.value_list import OPCODES, cut_list, each_value
from scaler.serialize.payload import PROTOCOL, SCALARS

CAREFULLY = settings(max_examples=3 * settings().max_examples)

EDGES = [
    None, True, False, 0, 255, 256, 65_535, 65_536, -1, 2**31 - 1, 2**31, -(2**31), 2**2039, -(2**2040), 10**400,
    0.0, -0.0, math.nan, math.inf, 1e-310, 1j, complex(math.nan, -0.0), complex(-1.5, math.inf),
    "", "é", "\ud800", "\x00", "x" * 255, "x" * 256, b"", b"a" * 255, b"a" * 256,
    "builtins", "complex", complex.__name__, complex.__module__,
]  # fmt: skip
TEXTS = st.text(st.characters(), max_size=300)
#: longer than a frame of a pickle
LONG = ["y" * 70_000, b"b" * 70_000, 2**600_000]
VALUES = st.one_of(
    st.sampled_from(EDGES), st.integers(), st.floats(), st.complex_numbers(), TEXTS, st.binary(max_size=300)
)
LISTS = st.one_of(
    st.lists(VALUES, min_size=1, max_size=50),
    st.lists(st.one_of(st.sampled_from(LONG), VALUES), min_size=1, max_size=10),
    # repeated, so that the pickle refers back, and over the thousand values that it has in one run
    st.builds(
        lambda some, times: (some * times)[:2_500], st.lists(VALUES, min_size=1, max_size=20), st.integers(20, 300)
    ),
)


def same(one: Any, other: Any) -> bool:
    """Equal and of one type, with signs and NaNs."""
    return type(one) is type(other) and (one == other if isinstance(one, int) else repr(one) == repr(other))


def all_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def span_of(values: list[Any], lo: int = 7, protocol: int = PROTOCOL) -> SpanResult:
    body = pickle.dumps(values, protocol)
    return SpanResult(10, lo, lo + len(values), VALUES_LIST, 5, 6, u32([len(body)]), body)


@CAREFULLY
@given(values=LISTS, data=st.data(), protocol=st.sampled_from([4, 5]))
def test_a_part_of_a_list_is_the_slice_of_its_values(values: list[Any], data: st.DataObject, protocol: int) -> None:
    bounds = sorted(data.draw(st.lists(st.integers(0, len(values)), min_size=2, max_size=6, unique=True)))
    runs = [(7 + lo, 7 + hi) for lo, hi in zip(bounds[::2], bounds[1::2], strict=False)]
    parts = cut(span_of(values, protocol=protocol), runs)
    assert [(part.lo, part.hi) for part in parts] == runs
    for part in parts:
        assert part.sizes.tolist() == [len(part.body)]
        assert all_same(pickle.loads(part.body), values[part.lo - 7 : part.hi - 7])


@CAREFULLY
@given(values=LISTS)
def test_each_value_of_a_list_stands_by_itself(values: list[Any]) -> None:
    each = each_of(span_of(values))
    assert (each.lo, each.hi, each.outcome, each.duration, each.peak) == (7, 7 + len(values), VALUES_EACH, 5, 6)
    assert all_same([pickle.loads(value) for value in values_of(each)], values)
    rows = list(rows_of(span_of(values)))
    assert [(row.lo, row.hi) for row in rows] == [(i, i + 1) for i in range(7, 7 + len(values))]
    assert all_same([pickle.loads(row.body) for row in rows], values)


@CAREFULLY
@given(values=LISTS)
def test_a_part_of_a_part_is_a_part(values: list[Any]) -> None:
    (part,) = cut_list(pickle.dumps(values, PROTOCOL), len(values), [(0, len(values))])
    assert all_same([pickle.loads(value) for value in each_value(part, len(values))], values)


def attempt(data: bytes, rows: int) -> None:
    """Cut; what is cut has to be a list of as many plain values, anything but that and a ProtocolError fails."""
    try:
        (part,) = cut_list(data, rows, [(0, rows)])
    except ProtocolError as error:
        said = str(error)
        assert "\n" not in said
    else:
        values = pickle.loads(part)
        assert len(values) == rows
        assert {type(value) for value in values} <= SCALARS


@CAREFULLY
@given(data=st.binary(max_size=200), rows=st.integers(0, 5))
def test_any_bytes_are_a_list_or_refused_in_one_line(data: bytes, rows: int) -> None:
    attempt(data, rows)
    attempt(b"\x80\x05]" + data, rows)


@CAREFULLY
@given(codes=st.lists(st.tuples(st.sampled_from(OPCODES), st.binary(max_size=3)), max_size=40), rows=st.integers(0, 5))
def test_any_opcodes_are_a_list_or_refused(codes: list[tuple[Any, bytes]], rows: int) -> None:
    attempt(b"\x80\x05]" + b"".join(bytes([opcode.code]) + operand for opcode, operand in codes) + b"e.", rows)


@CAREFULLY
@given(values=st.lists(VALUES, min_size=1, max_size=20), data=st.data())
def test_a_damaged_list_is_a_list_or_refused(values: list[Any], data: st.DataObject) -> None:
    body = bytearray(pickle.dumps(values, PROTOCOL))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        assume(body)
    attempt(bytes(body), len(values))


class Evil:
    def __reduce__(self) -> Any:
        return print, ("never called",)


@pytest.mark.parametrize(
    "value", [[1], (1, 2), {}, {1}, bytearray(b"x"), Evil(), Evil, print, slice(1), range(3), (1.5, 2.5), complex]
)
def test_what_is_no_plain_value_has_no_place_in_a_list(value: Any) -> None:
    with pytest.raises(ProtocolError, match="a list of results"):
        each_value(pickle.dumps([1, value], PROTOCOL), 2)


@pytest.mark.parametrize("values", [1, "text", (1, 2), {1: 2}, None])
def test_what_is_no_list_is_refused(values: Any) -> None:
    with pytest.raises(ProtocolError, match="is no list"):
        each_value(pickle.dumps(values, PROTOCOL), 2)


def test_a_list_of_another_length_than_its_rows_is_refused() -> None:
    with pytest.raises(ProtocolError, match="has 3 values for 2 rows"):
        each_value(pickle.dumps([1, 2, 3], PROTOCOL), 2)


def test_a_short_list_does_not_stand_for_more_memory_than_lists_of_results_have() -> None:
    text = "x" * (1 << 20)
    with pytest.raises(ProtocolError, match="repeats more than"):
        each_value(pickle.dumps([text] * 1_000, PROTOCOL), 1_000)


def test_what_is_behind_a_list_is_refused() -> None:
    with pytest.raises(ProtocolError):
        each_value(pickle.dumps([1, 2], PROTOCOL) + b"x", 2)


@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=30), data=st.data())
def test_parts_of_other_spans_have_the_payloads_of_their_rows(sizes: list[int], data: st.DataObject) -> None:
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]
    outcome = data.draw(st.sampled_from([VALUES_EACH, STORED]))
    span = SpanResult(10, 0, len(sizes), outcome, 1, 2, u32(sizes), b"".join(payloads))
    bounds = sorted(data.draw(st.lists(st.integers(0, len(sizes)), max_size=8, unique=True)))
    for part in cut(span, list(zip(bounds[::2], bounds[1::2], strict=False))):
        assert [bytes(value) for value in values_of(part)] == payloads[part.lo : part.hi]
    assert [bytes(row.body) for row in rows_of(span)] == payloads
