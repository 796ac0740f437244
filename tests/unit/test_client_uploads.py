"""Large values are stored once, recognised, and let go of; with a real directory, and the scheduler played."""

import functools
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import until
from support.fake_driver import FakeDriver

from scaler.client.core import events as ev
from scaler.client.liveness import Liveness
from scaler.client.values import places as places_module
from scaler.client.values import remembered as module
from scaler.client.values import stores as stores_module
from scaler.client.values.questions import StoreQuestions
from scaler.client.values.remembered import RememberedValues
from scaler.client.values.stores import Stores
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.errors import ConnectionFailed, ConnectionTimeout, ObjectLost, StoreFull
from scaler.protocol.messages import ObjectRequest, ObjectResponse, StoreOffers, StoreRequest, u8, u32, u64
from scaler.serialize.outofband import Packed, pack, unpack
from scaler.store import ObjectMissing
from scaler.store import StoreFull as NoRoom
from scaler.store.directory import StoreDirectory
from scaler.store.segments import free, open_object
from scaler.store.segments import write as write_object
from scaler.store.transfer import Transfer
from scaler.transport import Address, Security

AGENT = 7
NUMBER = 3


class Host:
    """A client on the host of an agent."""

    def __init__(self, root):
        self.driver = FakeDriver(NUMBER)
        self.liveness = Liveness()
        self.directory = StoreDirectory(str(root))
        self.now = 0.0
        #: how often room was made in a full store
        self.rooms = 0
        remembered = RememberedValues(clock=lambda: self.now)
        questions = StoreQuestions(self.driver, self.liveness)
        #: where the scheduler is
        self.scheduler = Address.parse("tcp://127.0.0.1:1")
        self.stores = Stores(self.driver, questions, lambda: self.scheduler, Security.none(), self.make_room)
        self.values = Uploads(self.driver, self.stores, remembered, ValueCodec(None), lambda: None)
        self.driver.scheduler = self.answer
        self.driver.react = self.react
        self.token = self.directory.token
        #: what the scheduler knows of objects that are not in the directory: bring them there, or say why not
        self.elsewhere = {}

    def answer(self, message):
        """The scheduler's side."""
        if isinstance(message, StoreRequest):
            offered = not message.standalone
            yield StoreOffers(*(u32([AGENT]), (self.directory.path,), (self.token,), ("",)) if offered else ())
        elif isinstance(message, ObjectRequest):
            (object_id,) = message.ids
            reason = self.elsewhere.pop(object_id, "nobody has it")
            if callable(reason):
                reason()
                reason = ""
            yield ObjectResponse(u32([0]), u64([object_id]), u8([bool(reason)]), AGENT, reason)

    def make_room(self):
        """A store is full."""
        self.rooms += 1
        self.values.tidy()

    def react(self, effect):
        """The provider's part of it."""
        if isinstance(effect, ev.StoreAnswered):
            self.stores.take_answer(effect.message)
        elif isinstance(effect, ev.StoresRenewed):
            self.stores.renew(effect.kept)
        elif isinstance(effect, ev.RestoreObjects):
            self.values.restore(effect.objects)

    def keep(self, value, make=pack):
        return self.values.keep(value, make(value), make, "the value")

    def stored(self, object_id):
        """What is in the directory under this id now."""
        found = open_object(self.directory.path, (self.driver.welcome.number, object_id))
        return unpack(found.inband, found.buffers)


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path)
    yield made
    made.directory.remove()


def test_a_value_is_written_to_the_directory_and_announced(host):
    array = np.arange(100_000)
    kept = host.keep(array)
    assert host.driver.announced == [kept.id]
    assert (host.stored(kept.id) == array).all()
    assert kept.value is array


def test_the_same_value_is_sent_once(host):
    array = np.arange(100_000)
    kept = [host.keep(array) for _ in range(1000)]
    kept += [host.keep(array[:]), host.keep(array.view())]
    assert len(set(kept)) == 1
    assert len(host.driver.announced) == 1
    assert len([message for message in host.driver.sent if isinstance(message, StoreRequest)]) == 1


def test_equal_values_in_other_memory_are_others(host):
    array = np.arange(100_000)
    assert host.keep(array).id != host.keep(array.copy()).id


@given(
    st.lists(
        st.tuples(st.sampled_from(["one", "slice", "same", "shape", "view", "list", "reuse"]), st.integers(0, 49_999)),
        max_size=12,
    )
)
def test_what_is_stored_is_always_what_was_given(tmp_path_factory, changes):
    host = Host(tmp_path_factory.mktemp("host"))
    try:
        array = np.arange(50_000)
        last, calls = None, []
        for change, where in [("same", 0), *changes]:
            if change == "one":
                array[where] = -where
            elif change == "slice":
                array[where : where + 100] += 1
            elif change == "same":
                array[where] = array[where]
            elif change == "shape":
                array = array.reshape(50, -1).reshape(-1)
            elif change == "reuse":  # the memory of the old one may come back
                array = np.arange(50_000) + where
            value = [array] if change == "list" else array[::-1][::-1] if change == "view" else array
            calls.append((host.keep(value), np.array(array)))
            if change == last == "same":
                assert calls[-1][0] is calls[-2][0]
            last = change
        for kept, expected in calls:
            found = host.stored(kept.id)
            assert np.array_equal(found[0] if isinstance(found, list) else found, expected)
    finally:
        host.directory.remove()


def test_a_large_value_without_buffers_is_recognised_by_what_it_is(host):
    first = host.keep(list(range(100_000)))
    second = host.keep(list(range(100_000)))
    assert first is second
    assert host.keep(list(range(100_001))).id != first.id


def test_a_value_is_let_go_of_when_nobody_has_it(host):
    array = np.arange(100_000)
    kept = host.keep(array)
    object_id = kept.id
    host.values.tidy()
    del array
    host.values.tidy()
    assert host.driver.released == []  # a call needs it
    del kept
    host.values.tidy()
    assert host.driver.released == [object_id]


@pytest.mark.parametrize("make", [lambda: bytes(300_000), lambda: list(range(200_000)), lambda: "é" * 200_000])
def test_a_value_that_has_no_weak_references_is_let_go_of_too(host, make):
    value = make()
    object_id = host.keep(value).id
    host.values.tidy()
    assert host.driver.released == []
    del value
    host.values.tidy()
    assert host.driver.released == [object_id]


def test_a_value_in_a_cycle_is_let_go_of_by_the_collector(host):
    class Node:
        def __init__(self):
            self.data = np.ones(100_000)
            self.me = self

    object_id = host.keep(Node()).id
    gc.collect()
    host.values.tidy()
    assert host.driver.released == [object_id]


def test_a_function_wrapped_anew_each_time_is_sent_once(host):
    array = np.arange(100_000)
    ids = set()
    for _ in range(5):
        ids.add(host.keep(functools.partial(np.dot, array)).id)
        host.values.tidy()
        host.now += 1.0
    assert len(ids) == 1
    host.now += module.LINGER
    host.values.tidy()
    assert host.driver.released == list(ids)


def test_values_whose_wrapping_is_gone_are_bounded(host, monkeypatch):
    monkeypatch.setattr(module, "LINGER_BYTES", 2_000_000)
    arrays = [np.arange(100_000) for _ in range(6)]
    ids = []
    for array in arrays:
        ids.append(host.keep([array, 1]).id)
        host.now += 0.1
    host.values.tidy()
    assert sorted(host.driver.released) == ids[:3]


def test_a_changed_value_is_stored_anew_and_the_old_one_released_after_its_calls(host):
    array = np.zeros(100_000)
    old = host.keep(array)
    array[5] = 1
    new = host.keep(array)
    assert new.id != old.id
    assert host.driver.released == []
    assert host.stored(old.id)[5] == 0
    old_id = old.id
    del old
    assert host.driver.released == [old_id]


def test_an_object_that_is_lost_is_packed_again(host):
    array = np.arange(100_000)
    kept = host.keep(array)
    source = host.driver.session.objects.source_of(kept.id)
    assert unpack(*source()) is not array
    array[:] = 0
    with pytest.raises(ObjectLost, match="has changed since"):
        source()
    del array, kept
    host.values.tidy()
    with pytest.raises(ObjectLost, match="so is the value"):
        source()


def test_a_new_scheduler_finds_the_values_again(host):
    array = np.arange(100_000)
    kept = host.keep(array)
    changed = np.arange(100_000)
    old = host.keep(changed)
    changed[:] = 0
    host.driver.welcome.number = 4
    host.driver.tell(ev.Welcomed(False, 1e9, 2))
    assert host.driver.announced[2:] == [kept.id]  # the other one can't be made again
    assert (host.stored(kept.id) == array).all()
    assert host.keep(array) is kept
    assert old.id not in host.driver.announced[2:]


def test_a_value_kept_for_good_is_packed_from_what_was_given(host):
    array = np.arange(100_000)
    object_id = host.values.store(array, pack(array), pack, "the value")
    assert host.values.store(array, pack(array), pack, "the value") != object_id
    assert (unpack(*host.driver.session.objects.source_of(object_id)()) == array).all()


def test_a_full_store_is_said_with_what_is_wanted_and_what_is_free(host, monkeypatch):
    def full(path, key, inband, buffers, fill):
        raise NoRoom(path, 800_000, 1_000)

    monkeypatch.setattr(places_module, "write_object", full)
    monkeypatch.setattr("scaler.store.ROOM_PATIENCE", 0.0)
    with pytest.raises(StoreFull, match=r"the value takes 800,000 bytes: .* 1,000 are free"):
        host.keep(np.arange(100_000))
    assert host.rooms == 1
    assert host.driver.announced == []


def test_room_that_comes_soon_is_waited_for(host, monkeypatch):
    tries = []

    def write(path, key, inband, buffers, fill):
        tries.append(key)
        if len(tries) < 3:
            raise NoRoom(path, 800_000, 1_000)
        return write_object(path, key, inband, buffers, fill)

    monkeypatch.setattr(places_module, "write_object", write)
    assert (host.stored(host.keep(np.arange(100_000)).id) == np.arange(100_000)).all()


def test_a_directory_that_is_gone_is_left_for_another(host, tmp_path):
    first = host.keep(np.arange(100_000))
    host.directory.remove()
    host.directory = StoreDirectory(str(tmp_path))
    host.token = host.directory.token
    second = host.keep(np.arange(200_000))
    assert (host.stored(second.id) == np.arange(200_000)).all()
    with pytest.raises(ObjectMissing):
        host.stored(first.id)


def test_without_any_store_nothing_is_stored(host):
    host.token = "another"
    assert host.keep(np.arange(100_000)) is None
    assert host.driver.announced == []


def test_a_scheduler_that_offers_no_store_is_not_waited_for_without_end(host, monkeypatch):
    monkeypatch.setattr(stores_module, "PATIENCE", 0.05)
    host.driver.scheduler = lambda message: ()
    with pytest.raises(ConnectionTimeout, match="no store for large values"):
        host.keep(np.arange(100_000))
    host.liveness.failure = ConnectionFailed("the scheduler is gone")
    with pytest.raises(ConnectionFailed, match="is gone"):
        host.keep(np.arange(100_000))


def test_a_scheduler_that_is_cut_off_is_waited_for_longer_than_for_an_offer(host, monkeypatch):
    monkeypatch.setattr(stores_module, "PATIENCE", 0.05)
    host.driver.scheduler, host.driver.is_apart = lambda message: (), True
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(host.keep, np.arange(100_000))
        until(lambda: any(isinstance(message, StoreRequest) for message in host.driver.sent), "it to ask")
        with pytest.raises(TimeoutError):
            kept.result(0.3)
        offers = StoreOffers(u32([AGENT]), (host.directory.path,), (host.token,), ("",))

        def beside(message):  # no agent has come back yet
            if isinstance(message, StoreRequest) and not message.standalone:
                yield StoreOffers()

        host.driver.scheduler, host.driver.is_apart = beside, False
        host.driver.tell(ev.Request(StoreRequest(False)))  # as is said again when the session goes on
        until(lambda: any(isinstance(message, StoreRequest) and message.standalone for message in host.driver.sent))
        host.driver.tell(ev.Arrived(offers))
        assert kept.result(20) is not None


def test_what_is_in_the_directory_is_read_without_asking(host):
    object_id = host.values.store([1], Packed(b"inband", []), pack, "the value")
    host.driver.sent.clear()
    assert bytes(host.stores.read(object_id, "it").inband) == b"inband"
    assert host.driver.sent == []


def test_what_is_not_there_is_asked_for(host):
    object_id = host.values.store([1], Packed(b"inband", []), pack, "the value")
    free(host.directory.path, (NUMBER, object_id))
    host.elsewhere[object_id] = lambda: write_object(host.directory.path, (NUMBER, object_id), b"brought")
    assert bytes(host.stores.read(object_id, "it").inband) == b"brought"
    free(host.directory.path, (NUMBER, object_id))
    with pytest.raises(ObjectLost, match="the result of f is lost: nobody has it"):
        host.stores.read(object_id, "the result of f")


def test_what_is_said_to_be_there_and_never_is_ends_as_lost(host):
    object_id = host.values.store([1], Packed(b"inband", []), pack, "the value")
    free(host.directory.path, (NUMBER, object_id))
    host.answer = None
    host.driver.scheduler = lambda message: (
        [ObjectResponse(u32([0]), u64(message.ids), u8([0]), AGENT)] if isinstance(message, ObjectRequest) else []
    )
    with pytest.raises(ObjectLost, match="there is no object"):
        host.stores.read(object_id, "it")


def test_a_value_that_does_not_come_in_time(host):
    host.values.store([1], Packed(b"inband", []), pack, "the value")
    host.driver.scheduler = lambda message: ()
    with pytest.raises(TimeoutError, match="could not be read in time"):
        host.stores.read(99, "it", 0.05)


def test_stores_that_are_gone_are_forgotten_one_after_the_other(host, tmp_path):
    written = []
    for agent in range(10, 15):
        directory = StoreDirectory(str(tmp_path))
        far = Transfer(directory.path, Security.none(), "tcp://127.0.0.1:0", shortcut=False)
        offer = StoreOffers(u32([agent]), ("",), ("",), (far.address.url,))
        host.driver.scheduler = lambda message, offer=offer: [offer]
        written.append(host.stores.write(agent, pack(b"value"), "it", is_repeated=True))
        far.close()
        directory.remove()
        until(lambda: host.stores.tidy() or len(host.stores._readable) <= 1)
    assert [each.agent for each in written] == list(range(10, 15))


def without_offers(host, rounds):
    """A scheduler that knows where objects are, and offers a store only when it was asked so many times before."""
    asked = []

    def answer(message):
        if isinstance(message, ObjectRequest):
            return [ObjectResponse(u32([0]), u64(message.ids), u8([0]), AGENT)]
        asked.append(message)
        return host.answer(message) if len(asked) > rounds else ()

    host.driver.scheduler = answer
    return asked


def test_a_store_whose_address_makes_no_sense_is_left_out(host):
    def answer(message):
        yield StoreOffers(u32([8, AGENT]), ("", ""), ("", ""), ("tcp://worker-7:port", "tcp://127.0.0.1:1"))

    host.driver.scheduler = answer
    place = host.stores._find()
    assert place.agent == AGENT
    with pytest.raises(ObjectMissing, match="the store of agent 8"):
        host.stores._readable_of(8)


def test_the_store_beside_the_scheduler_is_looked_for_where_the_scheduler_is_now(host, monkeypatch):
    found = []
    monkeypatch.setattr(stores_module, "RemoteStore", lambda address, security: found.append(address))
    host.driver.scheduler = lambda message: [StoreOffers(u32([AGENT]), ("",), ("",), ("tcp://127.0.0.1:5",))]
    for place in ("tcp://one:1", "tcp://other:1"):
        host.scheduler = Address.parse(place)
        host.stores._find(anew=True)
    assert found == ["tcp://one:5", "tcp://other:5"]


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_a_value_is_read_though_no_store_is_offered_for_a_while(host, monkeypatch, timeout):
    monkeypatch.setattr(stores_module, "PATIENCE", 0.02)
    without_offers(host, rounds=5)
    write_object(host.directory.path, (NUMBER, 7), b"inband")
    assert bytes(host.stores.read(7, "it", timeout).inband) == b"inband"


@pytest.mark.parametrize("timeout", [None, 0.2])
def test_a_scheduler_that_never_offers_a_store_is_not_asked_without_end(host, monkeypatch, timeout):
    monkeypatch.setattr(stores_module, "PATIENCE", 0.02)
    asked = without_offers(host, rounds=1_000)
    with pytest.raises(ConnectionTimeout, match="no store for large values"):
        host.stores.read(7, "it", timeout)
    assert len(asked) < 100


def test_a_list_that_is_gone_goes_with_its_arrays_at_once(host):
    value = [np.ones(100_000) for _ in range(10)]
    object_id = host.keep(value).id
    first = value[0]
    del value
    host.values.tidy()
    host.values.tidy()
    assert host.driver.released == [object_id]
    assert first.sum() == 100_000


def test_a_value_of_many_buffers_is_looked_at_in_a_moment(host):
    value = [np.ones(1_100) for _ in range(5_000)]
    sent = host.keep(value)
    del sent
    began = time.process_time()
    for _ in range(10):
        host.values.tidy()
    assert time.process_time() - began < 2.0, "it was a minute"
    assert host.driver.released == []
    assert len(value) == 5_000


def test_a_value_may_be_sent_by_the_same_thread_while_it_looks_for_a_store(host):
    answer, kept = host.answer, []

    def answer_and_interrupt(message):
        if isinstance(message, StoreRequest) and not kept:
            kept.append(None)  # the collector runs a finaliser, say, that sends a large value
            kept[0] = host.keep(np.ones(100_000))
        yield from answer(message)

    host.driver.scheduler = answer_and_interrupt
    thread = threading.Thread(target=lambda: kept.append(host.keep(np.zeros(100_000))), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert host.driver.announced == [value.id for value in kept]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_object_whose_pickler_ends_its_thread_keeps_no_other_from_being_restored(host, error):
    def fail():
        raise error

    first, second = host.keep(np.arange(100_000)), host.keep(np.ones(100_000))
    objects = [ev.Announce(first.id, b"", source=fail), ev.Announce(second.id, b"", source=lambda: pack(second.value))]
    told = []
    host.driver.tell = lambda *events: told.extend(events)
    host.values.restore(objects)
    assert [(event.id, event.announce is None) for event in told] == [(first.id, True), (second.id, False)]
