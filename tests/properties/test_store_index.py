"""Whatever happens to objects, the index's totals are the sums over its entries, and the order is that of use."""

from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scaler.store.index import Place, StoreIndex
from scaler.store.layout import Key

PLACES = get_args(Place)
places = st.sampled_from(PLACES)
keys = st.tuples(st.integers(1, 3), st.integers(0, 7))
sizes = st.integers(0, 50)
slots = st.integers(0, 2)


class Model:
    """One object as a reader of the plan would write it down."""

    def __init__(self, size: int, place: Place, slot: int | None) -> None:
        self.size, self.place, self.slot = size, place, slot
        self.pins = 0
        self.leaving = False


class Accounts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = StoreIndex(100, 200)
        self.model: dict[Key, Model] = {}
        #: unpinned keys in shm, the least recently used first
        self.order: list[Key] = []

    def known(self, data: st.DataObject) -> Key:
        return data.draw(st.sampled_from(sorted(self.model)))

    def settle(self, key: Key) -> None:
        """It goes to the end of the order if it belongs there."""
        if key in self.order:
            self.order.remove(key)
        one = self.model.get(key)
        if one is not None and one.place == "shm" and not one.pins:
            self.order.append(key)

    @rule(key=keys, size=sizes, place=places, slot=slots)
    def add(self, key: Key, size: int, place: Place, slot: int) -> None:
        at = slot if place == "live" else None
        if key in self.model:
            with pytest.raises(ValueError, match="already"):
                self.index.add(key, size, place, at)
            return
        self.index.add(key, size, place, at)
        self.model[key] = Model(size, place, at)
        self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = self.known(data)
        assert self.index.remove(key).size == self.model.pop(key).size
        self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), place=places, slot=slots, size=st.none() | sizes)
    def move(self, data: st.DataObject, place: Place, slot: int, size: int | None) -> None:
        key = self.known(data)
        one = self.model[key]
        at = slot if place == "live" else None
        self.index.move(key, place, at, size)
        one.leaving = place == "moving" and one.place in ("shm", "live")
        one.place, one.slot = place, at
        one.size = one.size if size is None else size
        self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        key = self.known(data)
        self.index.touch(key)
        self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        key = self.known(data)
        self.index.pin(key)
        self.model[key].pins += 1
        self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        key = self.known(data)
        if not self.model[key].pins:
            with pytest.raises(ValueError, match="not pinned"):
                self.index.unpin(key)
            return
        self.index.unpin(key)
        self.model[key].pins -= 1
        if not self.model[key].pins:
            self.settle(key)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def refuse_a_slot_that_does_not_fit(self, data: st.DataObject) -> None:
        key = self.known(data)
        with pytest.raises(ValueError, match="if it is live"):
            self.index.move(key, "live")
        with pytest.raises(ValueError, match="if it is live"):
            self.index.move(key, "shm", 1)

    @rule(wanted=st.integers(-5, 300))
    def choose_victims(self, wanted: int) -> None:
        expected: list[Key] = []
        covered = 0
        for key in self.order:
            if covered >= wanted:
                break
            expected.append(key)
            covered += self.model[key].size
        assert self.index.victims(wanted) == expected

    @invariant()
    def totals_are_sums(self) -> None:
        index, model = self.index, self.model
        assert len(index) == len(model)
        by_place: dict[str, int] = dict.fromkeys(PLACES, 0)
        for key, one in model.items():
            entry = index[key]
            assert (entry.size, entry.place, entry.slot, entry.pins) == (one.size, one.place, one.slot, one.pins)
            by_place[one.place] += one.size
        assert {place: index.bytes_in(place) for place in PLACES} == by_place
        assert index.total == sum(by_place.values())
        assert index.on_disk == by_place["disk"] + by_place["open"]
        assert index.in_memory == index.total - index.on_disk
        for slot in range(3):
            live = {key for key, one in model.items() if one.slot == slot}
            assert set(index.live_in(slot)) == live
            assert index.live_bytes(slot) == sum(model[key].size for key in live)
        for client in range(1, 4):
            assert index.of_client(client) == [key for key in model if key[0] == client]
        leaving = sum(one.size for one in model.values() if one.leaving)
        assert index.over == max(0, index.in_memory - leaving - 100)
        assert index.is_full == (index.in_memory > 200)

    def teardown(self) -> None:
        for key in list(self.model):
            self.index.remove(key)
        empty: Any = StoreIndex(100, 200)
        for name in StoreIndex.__slots__:
            assert getattr(self.index, name) == getattr(empty, name), name


Accounts.TestCase.settings = settings(stateful_step_count=40)
test_the_index = Accounts.TestCase
