import pickle
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from scaler.errors import SerializationError
from scaler.serialize import Serializer, payload
from scaler.serialize.call import decode_function, encode_function, pack_entries, pack_function
from scaler.serialize.outofband import SMALL, Packed, joined, pack, pack_large, unpack


@pytest.mark.parametrize(
    ("value", "buffers"),
    [
        ([1, "two", {3: 4.0}], 0),
        (b"x" * (SMALL - 1), 0),
        (b"x" * SMALL, 1),
        (bytearray(SMALL), 1),
        ("x" * SMALL * 2, 0),
        ({"a": np.arange(SMALL), "b": [np.zeros(SMALL), np.zeros(3)]}, 2),
        (np.zeros((100, 200)).T, 1),
        (np.zeros((300, 200))[::2, ::2], 0),
        (np.array([{"an": "object"}] * SMALL), 0),
        (np.arange(SMALL).astype("datetime64[s]"), 0),  # NumPy lends no buffers of these
    ],
    ids=[
        "plain", "small bytes", "bytes", "bytearray", "text", "dict", "transposed", "strided", "objects", "dates",
    ],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: Any, buffers: int) -> None:
    packed = pack(value)
    assert len(packed.buffers) == buffers
    assert packed.size == len(packed.inband) + sum(buffer.nbytes for buffer in packed.buffers)
    came = unpack(packed.inband, [bytearray(buffer) for buffer in packed.buffers])
    assert type(came) is type(value)
    np.testing.assert_equal(came, value)


def test_buffers_are_the_values_own_memory_and_become_the_new_values() -> None:
    array = np.zeros(SMALL)
    inband, (buffer,) = pack(array)
    array[5] = 1.5
    memory = bytearray(buffer)
    came = unpack(inband, [memory])
    assert came[5] == 1.5
    came[6] = 2.5
    assert np.frombuffer(memory)[6] == 2.5


def test_what_travels_by_value_keeps_its_buffers_apart_too() -> None:
    array = np.arange(SMALL)

    class Local:
        def __init__(self, array: Any) -> None:
            self.array = array

    packed = pack(Local(array))
    assert [buffer.nbytes for buffer in packed.buffers] == [array.nbytes]
    assert np.array_equal(unpack(*packed).array, array)


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(SerializationError, match=r"_thread\.lock"):
        pack([threading.Lock()])


@pytest.mark.parametrize(
    ("value", "is_large"),
    [([1, 2], False), (list(range(100_000)), True), (np.zeros(2000), False), (np.zeros(50_000), True), (b"x", False)],
    ids=["list", "long list", "array", "large array", "bytes"],
)
def test_small_values_are_one_pickle(value: Any, is_large: bool) -> None:
    packed = pack_large(value, 100_000)
    if is_large:
        assert isinstance(packed, Packed)
        assert packed.size >= 100_000
    else:
        assert packed == payload.dumps(value)
        assert joined(pack(value), value) == packed


def test_prefixes_stand_before_the_pickle() -> None:
    array = np.zeros(SMALL)
    for packed in (pack(array, b"P"), pack(lambda: array, b"P")):
        assert packed.inband[:1] == b"P"
        assert len(packed.buffers) == 1
    small = pack_large([1], 1000, b"P")
    assert isinstance(small, bytes)
    assert pickle.loads(small[1:]) == [1]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_of_any_size_come_back_as_what_they_were(kind: type) -> None:
    for size in (SMALL, 10 << 20):
        value = kind(np.random.default_rng(size).bytes(size))
        packed = pack(value)
        again = unpack(packed.inband, packed.buffers)
        assert type(again) is kind
        assert again == value


def total(array: Any, more: float) -> float:
    return float(array.sum() + more)


def test_functions_and_entries_that_hold_data_are_packed() -> None:
    array = np.ones(SMALL)
    packed = pack_function(partial(total, array))
    assert len(packed.buffers) == 1
    function, serializer = decode_function(*packed)
    assert (function(2), serializer) == (SMALL + 2, None)

    packed = pack_entries([("key", total, (array, 5), (), ())])
    assert len(packed.buffers) == 1
    (entry,), _ = decode_function(*packed)
    assert entry.run(()) == SMALL + 5


class Plain(Serializer):
    @staticmethod
    def serialize(obj: Any) -> bytes:
        return payload.dumps(obj)

    @staticmethod
    def deserialize(data: bytes) -> Any:
        return pickle.loads(data)


def test_a_serializer_writes_functions_in_one_piece() -> None:
    packed = pack_function(total, Plain)
    assert packed == Packed(encode_function(total, Plain), [])
