import pickle
import threading
from functools import partial

import pytest

from scaler.errors import SerializationError
from scaler.serialize import Serializer
from scaler.serialize.call import (
    Slot,
    decode_call,
    decode_function,
    encode_call,
    encode_entries,
    encode_function,
    pack_entries,
)
from scaler.serialize.entry import as_list, with_keywords


class Counting(Serializer):
    """Says what it was given."""

    @staticmethod
    def serialize(obj):
        if isinstance(obj, type(threading.Lock())):
            raise ValueError("no locks")
        return b"X" + pickle.dumps(obj)

    @staticmethod
    def deserialize(payload):
        assert payload[:1] == b"X"
        return pickle.loads(payload[1:])


def add(a, b=0):
    return a + b


@pytest.mark.parametrize("serializer", [None, Counting])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, "two", None), {}), (([1, [2]],), {"k": {"x": 1}}), ((b"x" * 100_000, "y" * 100_000), {})],
)
def test_a_call_comes_back_as_it_was(args, kwargs, serializer):
    assert decode_call(encode_call(args, kwargs, serializer), (), serializer) == (args, kwargs)


@pytest.mark.parametrize("serializer", [None, Counting])
def test_slots_are_filled_with_the_values_of_dependencies(serializer):
    encoded = encode_call((Slot(1), "plain", Slot(0)), {"k": Slot(1), "l": 5}, serializer)
    assert decode_call(encoded, ["zero", "one"], serializer) == (("one", "plain", "zero"), {"k": "one", "l": 5})


def test_a_payload_may_be_a_view_of_a_larger_message():
    message = b"..." + encode_call((1, [2]), {})
    assert decode_call(memoryview(message)[3:]) == ((1, [2]), {})


def test_a_slot_inside_another_value_is_left_alone():
    (inside,), _ = decode_call(encode_call(([Slot(0)],), {}), ["value"])
    assert type(inside[0]) is Slot


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((1, threading.Lock()), {}, "argument 1 of m.f: an object of type _thread.lock"),
        ((1,), {"guard": threading.Lock()}, "argument 'guard' of m.f: an object of type _thread.lock"),
    ],
)
def test_the_argument_that_cannot_be_pickled_is_named(args, kwargs, words):
    with pytest.raises(SerializationError, match=words):
        encode_call(args, kwargs, None, "m.f")


def test_the_argument_that_a_serializer_refuses_is_named():
    with pytest.raises(
        SerializationError, match=r"argument 1 of m\.f, a lock, cannot be serialised: ValueError: no locks"
    ):
        encode_call((1, threading.Lock()), {}, Counting, "m.f")


def test_a_function_comes_back_callable():
    function, serializer = decode_function(encode_function(add))
    assert (function(1, 2), serializer) == (3, None)


def test_a_serializer_travels_with_the_function():
    function, serializer = decode_function(encode_function(add, Counting))
    assert function(1, 2) == 3
    assert serializer.deserialize(serializer.serialize(5)) == 5


def test_entries_come_back_ready_to_run():
    entries, serializer = decode_function(
        encode_entries([("k", add), ("l", None, [("a", add), ("l", add, (None, 5), (0, 0), ())])])
    )
    assert serializer is None
    assert [entry.key for entry in entries] == ["k", "l"]
    assert entries[0].run([1, 2]) == 3
    assert entries[1].run([1, 2]) == 8


def test_functions_and_arguments_of_entries_are_written_one_by_one_by_a_serializer():
    data, written = [1, 2], []

    class Noting(Counting):
        @staticmethod
        def serialize(obj):
            written.append(obj)
            return Counting.serialize(obj)

    inner = (as_list, (None, None), (0, 0, 1, 1), ())
    given = [
        ("one", add),
        ("two", None, [("a", add, (None, 5), (0, 0), ()), ("two", add, (None, data), (0, 0), ())]),
        ("three", None, [("c", sum, (data,), (), ()), ("three", divmod)], [(), (-1, 0)]),
        ("four", sum, (None,), (), ((0, inner),)),
        ("five", with_keywords, (add, ("b",), None, 7), (2, 0), ()),
    ]
    entries, serializer = decode_function(encode_entries(given, Noting))
    assert written == [add, 5, data, sum, divmod, 7]  # each once, and none of the engine's own functions
    assert serializer.__name__ == "Noting"
    assert [entry.key for entry in entries] == ["one", "two", "three", "four", "five"]
    assert entries[0].run([1, 2]) == 3
    with pytest.raises(TypeError):  # a number and a list
        entries[1].run([1])
    assert entries[2].run([2]) == (1, 1)
    assert entries[3].run([3, 4]) == 7
    assert entries[4].run([3]) == 10


def test_the_key_is_named_whose_part_a_serializer_refuses():
    class Refusing(Serializer):
        @staticmethod
        def serialize(obj):
            raise RuntimeError("not this")

    with pytest.raises(SerializationError, match=r"a function of the graph's 'k', a \w+, cannot .*: not this"):
        encode_entries([("k", add)], Refusing)
    with pytest.raises(SerializationError, match=r"an argument of the graph's 'l', a int, cannot"):
        encode_entries([("l", as_list, (5,), (), ())], Refusing)


@pytest.mark.parametrize("written", [encode_entries, pack_entries])
def test_the_key_is_named_whose_part_cannot_be_pickled(written):
    inner = (as_list, (threading.Lock(),), (), ())
    fused = ("c", None, [("b", add, (None, threading.Lock()), (0, 0), ()), ("c", add, (None, 1), (0, 0), ())])
    for entry, words in [
        (
            ("a", as_list, (5, threading.Lock()), (), ()),
            "an argument of the graph's 'a': an object of type _thread.lock",
        ),
        (fused, "an argument of the graph's 'c': an object of type _thread.lock"),
        (("d", sum, (None,), (), ((0, inner),)), "an argument of the graph's 'd': an object of type _thread.lock"),
        (("e", threading.Lock().acquire), "a function of the graph's 'e': .*acquire"),
    ]:
        with pytest.raises(SerializationError, match=words) as caught:
            written([("fine", add), entry])
        assert isinstance(caught.value.__cause__, TypeError)


def many_steps(function, rows=64, steps=12):
    """Entries of chains that add their number up, as those of a graph whose subtrees were fused."""
    chain = [(f"step {n}", add, (None, 1), (0, 0), ()) for n in range(steps - 1)]
    return [(f"row {row}", None, [("first", function, (row, 1), (), ()), *chain]) for row in range(rows)]


def test_many_steps_travel_in_portions_of_which_those_are_decoded_that_are_needed(monkeypatch):
    packed = pack_entries(many_steps(divmod, steps=1) + many_steps(add))
    assert packed.inband[:1] == b"L"
    decoded = []
    loads = pickle.loads
    monkeypatch.setattr("pickle.loads", lambda data, **more: decoded.append(len(data)) or loads(data, **more))
    entries, serializer = decode_function(*packed)
    assert serializer is None
    assert not decoded
    assert entries[64 + 9].run([]) == 9 + 12
    assert entries[64 + 9].key == "row 9"
    assert len(decoded) == 1
    assert max(decoded) < len(packed.inband) / 4
    assert [entry.key for entry in entries] == 2 * [f"row {row}" for row in range(64)]
    with pytest.raises(IndexError):
        entries[128]


@pytest.mark.parametrize(
    "entries",
    [
        many_steps(add, rows=2),
        many_steps(add, rows=1, steps=1000),
        many_steps(lambda a, b: a + b),
        many_steps(partial(add)),
        [(key, None, [("model", add, (Counting(), 1), (), ()), *steps]) for key, _, steps in many_steps(add)],
        [(key, None, [("data", add, (bytes(10_000), b""), (), ()), *steps]) for key, _, steps in many_steps(add)],
    ],
    ids=["few steps", "one row", "a function by value", "a callable object", "an object", "much data"],
)
def test_other_entries_travel_as_one(entries):
    packed = pack_entries(entries)
    assert packed.inband[:1] == b"G"
    assert [entry.key for entry in decode_function(*packed)[0]] == [entry[0] for entry in entries]


def test_a_failing_entry_names_its_key():
    (entry,), _ = decode_function(encode_entries([("total", None, [("parts", add), ("total", len)])]))
    with pytest.raises(TypeError) as caught:
        entry.run([1, 2])
    assert caught.value.__notes__ == ["while computing 'total'"]


@pytest.mark.parametrize("payload", [b"Zxx", b"Q"])
def test_an_unknown_form_is_refused(payload):
    with pytest.raises(SerializationError):
        decode_call(payload)
    with pytest.raises(SerializationError):
        decode_function(payload)
