"""Arrays pass between client and tasks through memory that they share, and everybody may change what he got."""

import os

import numpy as np
import pytest

from scaler import Client

#: of an array of 8 MB
NUMBERS = 1_000_000


def mapping_of(array):
    """The name of the file that the memory of an array is mapped from, as the kernel says; "" for none."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, rest = line.partition(" ")
            start, _, end = span.partition("-")
            if int(start, 16) <= address < int(end, 16):
                fields = rest.split(maxsplit=4)
                return fields[4].strip() if len(fields) > 4 else ""
    return ""


def is_stored(name):
    return name.startswith(f"/dev/shm/scaler-{os.getuid()}-")


def test_an_argument_is_mapped_from_the_store_and_not_copied(client):
    def look(array):
        return mapping_of(array), array.flags.writeable, array.flags.aligned, float(array.sum())

    array = np.arange(NUMBERS, dtype=float)
    name, writeable, aligned, total = client.submit(look, array).result(20)
    assert is_stored(name)
    assert writeable
    assert aligned
    assert total == array.sum()
    again, *_ = client.submit(look, array).result(20)
    assert again == name


def test_a_sent_object_is_one_file_for_all_tasks(client):
    def look(array, _):
        return mapping_of(array)

    reference = client.send_object(np.ones(NUMBERS))
    (name,) = {client.submit(look, reference, x).result(20) for x in range(10)}
    assert is_stored(name)


def test_a_result_is_mapped_where_it_is_read(client):
    result = client.submit(np.arange, NUMBERS).result(20)
    assert is_stored(mapping_of(result))
    assert (result == np.arange(NUMBERS)).all()
    result += 1  # as with any other array
    assert result[0] == 1


def test_a_task_that_changes_its_argument_changes_a_copy(client):
    def spoil(array):
        before = float(array.sum())
        array[:] = -1
        return before, float(array.sum())

    def total(array):
        return float(array.sum())

    array = np.ones(NUMBERS)
    sent = client.send_object(np.ones(NUMBERS))
    made = client.submit(np.ones, NUMBERS)
    for argument in (array, sent, made):
        for _ in range(4):
            assert client.submit(spoil, argument).result(20) == (NUMBERS, -NUMBERS)
        assert client.submit(total, argument).result(20) == NUMBERS
    assert (array == 1).all()
    assert (made.result(20) == 1).all()


def test_a_result_that_the_client_changes_stays_what_it_was_for_tasks(client):
    made = client.submit(np.ones, NUMBERS)
    made.result(20)[:] = 5
    assert client.submit(np.sum, made).result(20) == NUMBERS


def test_an_array_that_was_changed_since_is_sent_anew(client):
    array = np.zeros(NUMBERS)
    for value in (1, 2, 3):
        array[NUMBERS // 2] = value
        assert client.submit(np.sum, array).result(20) == value
    assert client.submit(np.sum, array).result(20) == 3


@pytest.mark.parametrize(
    "value",
    [
        np.arange(NUMBERS).reshape(1000, 1000).T,
        np.arange(NUMBERS).reshape(1000, 1000)[::2, ::3],
        np.zeros(100_000, dtype=[("a", "i4"), ("b", "f8")]),
        np.array([str(x) for x in range(20_000)], dtype=object),
        {"a": np.arange(100_000), "b": [np.ones(100_000), "text"]},
        np.arange(NUMBERS).astype(">i8"),
        bytes(1_000_000),
        bytearray(b"x" * 1_000_000),
        np.ma.masked_less(np.arange(100_000), 50_000),
    ],
    ids=["transposed", "strided", "structured", "objects", "nested", "big endian", "bytes", "bytearray", "masked"],
)
def test_values_of_all_kinds_come_back_as_they_went(client, value):
    def back(value):
        return value

    result = client.submit(back, client.submit(back, value)).result(20)
    assert type(result) is type(value)
    if isinstance(value, dict):
        assert (result["a"] == value["a"]).all()
        assert (result["b"][0] == value["b"][0]).all()
        assert result["b"][1] == "text"
    elif isinstance(value, np.ndarray):
        assert result.dtype == value.dtype
        assert result.shape == value.shape
        assert (result == value).all()
    else:
        assert result == value


def test_an_array_outlives_its_client_and_its_store(start_cluster):
    cluster = start_cluster(1)
    with Client(cluster.address) as client:
        result = client.submit(np.arange, NUMBERS).result(20)
        assert is_stored(mapping_of(result))
    cluster.shutdown()
    assert (result == np.arange(NUMBERS)).all()
