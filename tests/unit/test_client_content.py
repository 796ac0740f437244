"""What is remembered of a value that was sent."""

import functools
import pickle

import numpy as np
import pytest

from scaler.client.values import content as module
from scaler.client.values.content import Content, address_of, key_of, reference_to
from scaler.serialize.outofband import pack


def sent(value):
    """The content of a value, and its buffers as they were."""
    packed = pack(value)
    copies = [memoryview(bytes(buffer)) for buffer in packed.buffers]
    return Content(packed), lambda: copies


def never():
    raise AssertionError("nothing had to be compared")


def test_an_array_is_found_by_its_place_in_memory():
    array = np.arange(100_000)
    assert key_of(pack(array)) == key_of(pack(array))
    assert key_of(pack(array)) != key_of(pack(array.copy()))
    assert key_of(pack(array)) != key_of(pack(array[:-1]))
    assert key_of(pack(array)) != key_of(pack(array.view(np.uint64)))
    assert key_of(pack(array))[1] == ((array.ctypes.data, array.nbytes),)


def test_the_address_of_memory_that_cannot_be_written_is_known_too():
    array = np.frombuffer(bytes(10_000), np.uint8)
    assert address_of(memoryview(array)) == array.ctypes.data


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, lambda array: [array, {"again": array}]])
def test_a_change_of_one_byte_is_seen(make):
    array = np.zeros((300, 300))
    value = make(array)
    before, copies = sent(value)
    assert before.is_same(pack(value), copies)
    (array if isinstance(value, list) else value)[150, 150] = 1
    assert not before.is_same(pack(value), copies)


def test_a_change_is_seen_by_the_digest_where_the_bytes_are_out_of_reach():
    array = np.zeros(100_000)
    packed = pack(array)
    before = Content(packed)
    before.take_digests(packed)
    assert before.is_same(pack(array), never)
    array[99_999] = 1
    assert not before.is_same(pack(array), never)


def test_bytes_need_not_be_compared():
    value = bytes(100_000)
    before, _ = sent(value)
    assert before.is_same(pack(value), never)


def test_what_cannot_be_compared_is_not_the_same():
    array = np.zeros(100_000)
    before, _ = sent(array)
    assert not before.is_same(pack(array), lambda: None)


@pytest.mark.parametrize(
    ("change", "may_be"),
    [
        (lambda array: None, True),
        (lambda array: array.fill(7), False),
        (lambda array: array.__setitem__(77_777, 1), False),
        (lambda array: setattr(array, "shape", (100, array.size // 100)), False),
    ],
)
@pytest.mark.parametrize("numbers", [100_000, 300_000, 3_000_000])
@pytest.mark.parametrize("watching", [True, False])
def test_values_overwritten_since_are_not_sent_in_the_place_of_others(monkeypatch, change, may_be, numbers, watching):
    if not watching:
        monkeypatch.setattr(module, "available", lambda: False)
    array = np.arange(numbers)
    before, _ = sent(array)
    change(array)
    assert before.may_be(pack(array)) is may_be


@pytest.mark.parametrize("make", [bytes, bytearray])
def test_bytes_that_are_made_anew_are_compared(make):
    class Wrapped:
        def __init__(self, text):
            self.text = text

        def __reduce__(self):
            return make, (pickle.PickleBuffer(bytes(self.text)),)

    value = Wrapped(bytearray(200_000))
    before, _ = sent(value)
    assert before.may_be(pack(value))
    value.text[100_000] = 1
    assert not before.may_be(pack(value))


def test_values_that_were_seen_to_have_changed_are_not_sent_in_the_place_of_others():
    array = np.arange(100_000)
    before, _ = sent(array)
    before.outdated = True
    assert not before.may_be(pack(array))


class Weak:
    """An object with a large buffer in it."""

    def __init__(self):
        self.data = np.ones(100_000)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones(100_000),
        lambda: np.asfortranarray(np.ones((300, 300))),
        lambda: [np.ones(100_000)],
        lambda: list(range(100_000)),
        lambda: "x" * 200_000 + str(np.pi),
        lambda: bytes(200_000) + str(np.pi).encode(),
        Weak,
    ],
)
def test_a_value_is_held_for_as_long_as_anybody_else_has_it(make):
    value = make()
    before = Content(pack(value))
    reference = reference_to(value)
    assert before.is_referenced(reference)
    other = [value]
    del value
    assert before.is_referenced(reference)
    other.clear()
    assert not before.is_referenced(reference)


def test_memory_outlives_what_it_was_wrapped_in():
    array = np.ones(100_000)
    wrapped = functools.partial(np.dot, array[:])
    before = Content(pack(wrapped))
    reference = reference_to(wrapped)
    del wrapped
    assert not before.is_referenced(reference)
    assert before.has_owners
    del array
    assert not before.has_owners


def test_without_buffers_there_is_no_memory_to_look_at():
    assert not Content(pack(list(range(1000)))).has_owners


class FakeWatch:
    """A `Watch` that knows of what it is told."""

    def __init__(self, buffer):
        self._buffer = buffer
        self.written = False

    def unchanged(self):
        return not self.written


@pytest.fixture
def watches(monkeypatch):
    """Those that are made, none of them the kernel's."""
    made = []
    monkeypatch.setattr(module, "Watch", lambda buffer: made.append(FakeWatch(buffer)) or made[-1])
    monkeypatch.setattr(module, "available", lambda: True)
    return made


def test_a_watched_buffer_is_compared_only_after_it_was_written_to(watches):
    array = np.zeros(200_000)
    before, copies = sent(array)
    assert before.is_same(pack(array), never)
    assert before.may_be(pack(array))
    watches[-1].written = True
    assert not before.may_be(pack(array))
    assert before.is_same(pack(array), copies)  # it was written to, with what was there
    assert before.is_same(pack(array), never)
    reference = reference_to(array)
    assert before.is_referenced(reference)
    other, _ = sent([array])
    assert other.is_same(pack([array]), copies)
    assert len(watches) == 2, "values that share memory share what watches it"
    watches.clear()
    del array
    assert not before.is_referenced(reference)
    assert not before.has_owners


def test_a_value_that_has_changed_is_watched_once_more_and_not_twice(watches):
    array = np.zeros(200_000)
    before, copies = sent(array)
    array[7], watches[-1].written = 1, True
    assert not before.is_same(pack(array), copies)
    after, copies = sent(array)
    assert len(watches) == 2
    assert after.is_same(pack(array), never)
    # what could not be sent after all, as a store was full, is neither taken for the old value nor for the new one
    assert before.outdated
    assert not before.is_same(pack(array), never)
    assert not before.may_be(pack(array))


def test_what_changes_while_it_is_looked_at_is_not_taken_for_what_was_sent(monkeypatch):
    array = np.zeros(20_000)
    before, copies = sent(array)

    def seen_by_another_thread(memory, buffer, is_same_place):
        array[7] = 1
        assert not before.is_same(pack(array), copies)
        return True  # as a buffer that is watched anew since then

    monkeypatch.setattr(module._Memory, "has_stayed", seen_by_another_thread)
    assert not before.may_be(pack(array))


def test_few_buffers_are_watched(monkeypatch):
    monkeypatch.setattr(module, "Watch", FakeWatch)
    monkeypatch.setattr(module, "available", lambda: True)
    monkeypatch.setattr(module, "MAX_WATCHES", len(module._watches) + 3)
    for numbers, watched in ((200_000, 3), (20_000, 0)):
        kept = []
        for _ in range(5):
            array = np.zeros(numbers)
            before, copies = sent(array)
            assert before.is_same(pack(array), copies)
            kept.append((array, before))
        assert sum(memory._watch is not None for _, content in kept for memory in content._memories) == watched
        kept.clear()
        del array, before


def test_a_bytearray_can_grow_after_it_was_given():
    value = bytearray(2_000_000)
    before, copies = sent(value)
    assert before.is_same(pack(value), copies)
    value.append(1)
    assert key_of(pack(value)) != before.key


def test_what_cannot_be_watched_is_not_taken_for_changed(monkeypatch):
    class Blind(FakeWatch):
        def unchanged(self):
            return False

    monkeypatch.setattr(module, "Watch", Blind)
    monkeypatch.setattr(module, "available", lambda: True)
    array = np.zeros(200_000)
    before, copies = sent(array)
    assert before.is_same(pack(array), copies)
    assert before.is_same(pack(array), copies)
    assert before.may_be(pack(array))


@pytest.mark.skipif(not module.available(), reason="this kernel doesn't tell what is written to")
def test_the_kernel_tells_what_was_written_to():
    array = np.zeros(300_000)
    before, copies = sent(array)
    assert before.is_same(pack(array), never)
    array[150_000] = 1
    assert not before.is_same(pack(array), copies)
    reference = reference_to(array)
    del array
    assert not before.is_referenced(reference)
