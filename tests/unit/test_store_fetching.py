"""Which chunk is asked of whom, with a scripted time and scripted stores: nothing here opens a socket."""

import random
from collections import Counter, deque

import pytest

from scaler.store import fetching as fetching_module
from scaler.store.fetching import (
    _MOST_ASKED,
    MAX_LISTED,
    MAX_NAMED,
    MOST_LINES,
    NAMED_WINDOW,
    Ask,
    Connect,
    Effect,
    Ended,
    Fetching,
    Hang,
    Tell,
)
from scaler.store.layout import Key
from scaler.store.window import FEWEST, MOST
from scaler.store.wire import CHUNK, LONGEST_WAIT

KEY: Key = (7, 1)
PATIENCE = 5.0
A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


class Desk:
    """A `Fetching`, its time, and what it wants."""

    def __init__(self) -> None:
        self.core = Fetching(PATIENCE, "tcp://me:1")
        self.now = 100.0

    def begin(self, chunks: int, *sources: str, key: Key = KEY, first: int = 0) -> list[Effect]:
        self.core.begin(key, chunks * CHUNK, sources, first, self.now)
        return self.take()

    def take(self) -> list[Effect]:
        return self.core.take(self.now)

    def connect(self, address: str) -> list[Ask]:
        self.core.connected(address, self.now)
        return self.asks()

    def asks(self) -> list[Ask]:
        effects = self.take()
        assert all(isinstance(effect, Ask) for effect in effects), effects
        return [effect for effect in effects if isinstance(effect, Ask)]

    def chunk(self, address: str, index: int, chunks: int, key: Key = KEY, tag: int = 1) -> bool:
        return self.core.arrived(address, key, index, chunks * CHUNK, tag, self.now)

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        self.core.tick(self.now)
        return self.take()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_chunks_are_asked_for_within_a_window_and_from_where_it_was_told_to_begin(desk: Desk) -> None:
    assert desk.begin(20, A, first=15) == [Connect(A)]
    asks = desk.connect(A)
    assert [ask.chunk for ask in asks] == [15, 16, 17, 18, 19, 0, 1, 2]
    assert len(asks) == FEWEST
    assert desk.chunk(A, 16, 20)
    assert [ask.chunk for ask in desk.asks()] == [3]
    done = bytearray(20)
    done[16] = 1
    assert desk.core.progress(KEY) == done
    for index in (15, 17, 18, 19, *range(15)):
        assert desk.chunk(A, index, 20)
        effects = desk.take()
    assert effects == [Tell(A, KEY), Ended(KEY, None)]
    assert desk.core.is_idle
    assert desk.core.progress(KEY) is None


def fetched_in(desk: Desk, chunks: int, key: Key, way: float, each: float = 0.0) -> float:
    """Seconds of a fetch by a way of so many seconds to and fro, by which chunks come one after the other."""
    begun = last = desk.now
    asks = [effect for effect in desk.begin(chunks, A, key=key) if isinstance(effect, Ask)] or desk.connect(A)
    coming: deque[tuple[float, int]] = deque()
    while asks or coming:
        for ask in asks:
            last = max(last, desk.now + way) + each
            coming.append((last, ask.chunk))
        desk.now, chunk = coming.popleft()
        desk.chunk(A, chunk, chunks, key=key)
        asks = [effect for effect in desk.take() if isinstance(effect, Ask)]
    return round(desk.now - begun, 6)


def test_a_long_way_is_kept_full(desk: Desk) -> None:
    seconds = [fetched_in(desk, 20, (7, number), 0.2) for number in range(4)]
    assert seconds == [0.4, 0.2, 0.2, 0.2]
    assert fetched_in(desk, 4 * MOST, (7, 9), 0.2) == 0.8, f"{MOST} chunks are under way at a time"


@pytest.mark.parametrize(("way", "each"), [(0.001, 0.0), (0.001, 0.1), (0.05, 0.1)])
def test_on_a_short_way_and_on_a_narrow_one_few_chunks_are_under_way(desk: Desk, way: float, each: float) -> None:
    fetched_in(desk, 60, KEY, way, each)
    assert len(desk.begin(60, A, key=(7, 2))) <= FEWEST + 2


def test_fetches_take_turns_on_a_connection(desk: Desk) -> None:
    desk.begin(20, A)
    desk.begin(20, A, key=(7, 2))
    assert [ask.key[1] for ask in desk.connect(A)] == [1, 2] * 4


def test_two_sources_are_asked_for_different_chunks_and_one_takes_over_from_the_other(desk: Desk) -> None:
    desk.begin(12, A, B)
    first, second = desk.connect(A), desk.connect(B)
    assert sorted(ask.chunk for ask in first + second) == list(range(12))
    assert {ask.others for ask in first} == {(B,)}, "it is asked anyway, and need not be named"
    desk.core.lost(B, "reset", desk.now, final=True)
    assert desk.asks() == [], "the window of the other is full"
    for ask in first:
        desk.chunk(A, ask.chunk, 12)
    assert {ask.chunk for ask in desk.asks()} == {ask.chunk for ask in second}
    for ask in second:
        desk.chunk(A, ask.chunk, 12)
    assert desk.take()[-1] == Ended(KEY, None)


def test_a_connection_that_breaks_is_made_again_and_only_what_is_missing_asked_for(desk: Desk) -> None:
    desk.begin(4, A)
    desk.connect(A)
    desk.chunk(A, 2, 4)
    desk.core.lost(A, "reset", desk.now)
    assert desk.take() == []
    assert desk.wait(0.1) == []
    assert desk.wait(0.2) == [Connect(A)]
    assert sorted(ask.chunk for ask in desk.connect(A)) == [0, 1, 3]


def test_a_source_that_does_not_come_back_is_given_up_after_patience(desk: Desk) -> None:
    desk.begin(4, A)
    desk.connect(A)
    desk.core.lost(A, "reset", desk.now)
    ended: list[Effect] = []
    began = desk.now
    while not ended:
        for effect in desk.wait(0.1):
            if effect == Connect(A):
                desk.core.lost(A, "refused", desk.now)
            else:
                ended.append(effect)
        ended += desk.take()
    assert ended == [Ended(KEY, f"{A}: refused")]
    assert desk.now - began < PATIENCE + 1


def test_a_source_that_was_never_reached_is_given_up_at_once(desk: Desk) -> None:
    desk.begin(4, A, B)
    desk.core.lost(A, "nothing listens", desk.now)
    assert desk.take() == []
    desk.core.lost(B, "another key", desk.now, final=True)
    assert desk.take() == [Ended(KEY, f"{A}: nothing listens; {B}: another key")]


def test_a_source_that_was_not_reached_a_while_ago_is_tried_for_patience_when_it_is_named_again(desk: Desk) -> None:
    """Nobody else may have it, and who refuses at once would be asked in vain many times within a moment."""
    desk.begin(1, A)
    desk.core.lost(A, "refused", desk.now)
    assert desk.take() == [Ended(KEY, f"{A}: refused")]
    desk.wait(50.0)
    until, effects = desk.now + PATIENCE, desk.begin(1, A)
    while not any(isinstance(effect, Ended) for effect in effects):
        if Connect(A) in effects:
            desk.core.lost(A, "refused", desk.now)
        effects = desk.take() or desk.wait(0.1)
    assert 0 <= desk.now - until < 0.5
    desk.begin(1, A)
    desk.core.lost(A, "refused", desk.now)
    desk.wait(1.0)
    assert [ask.address for ask in desk.connect(A)] == [A]
    assert desk.chunk(A, 0, 1)
    assert desk.take() == [Tell(A, KEY), Ended(KEY, None)]


def test_silence_ends_a_connection_and_a_word_prolongs_it(desk: Desk) -> None:
    desk.begin(4, A)
    desk.connect(A)
    assert desk.wait(PATIENCE - 1) == []
    desk.core.waiting(A, KEY, desk.now)
    assert desk.wait(PATIENCE - 1) == []
    assert desk.wait(1.5) == [Hang(A), Ended(KEY, f"{A}: no answer for 5 s")]


def test_without_sources_it_is_over_at_once(desk: Desk) -> None:
    assert desk.begin(4) == [Ended(KEY, "no other store has it")]
    assert desk.begin(4, "tcp://me:1", "") == [Ended(KEY, "no other store has it")]


def test_a_named_store_is_asked_for_what_it_was_named_for_only(desk: Desk) -> None:
    desk.begin(30, A)
    desk.connect(A)
    for index in range(6):
        desk.core.elsewhere(A, KEY, index, B, desk.now)
    effects = desk.take()
    assert Connect(B) in effects
    assert [effect.chunk for effect in effects if isinstance(effect, Ask)] == list(range(8, 14))
    asks = desk.connect(B)
    assert [ask.chunk for ask in asks] == list(range(NAMED_WINDOW))
    assert all(ask.referred for ask in asks)
    desk.chunk(B, 0, 30)
    assert [(ask.address, ask.chunk) for ask in desk.asks()] == [(B, 4)]


def test_what_a_named_store_does_not_deliver_is_asked_of_the_source_which_is_told(desk: Desk) -> None:
    desk.begin(9, A)
    desk.connect(A)
    desk.core.elsewhere(A, KEY, 0, B, desk.now)
    desk.take()
    for index in range(1, 8):
        desk.chunk(A, index, 9)
    desk.take()
    effects = desk.wait(1.1)
    assert [(ask.address, ask.chunk, ask.others) for ask in effects if isinstance(ask, Ask)] == [(A, 0, (B,))]
    desk.core.elsewhere(A, KEY, 0, C, desk.now)
    desk.take()
    assert [ask.chunk for ask in desk.connect(C)] == [0]
    for _ in range(6):  # it says something now and then, but not this chunk
        for address in (A, C):
            desk.core.waiting(address, (9, 9), desk.now)
        effects += desk.wait(1.0)
    assert Ask(A, KEY, 0, False, (B, C), False) in effects
    assert not desk.chunk(C, 0, 8), "late, and of another size"


def test_named_stores_carry_on_when_the_source_dies(desk: Desk) -> None:
    desk.begin(9, A)
    desk.connect(A)
    desk.core.elsewhere(A, KEY, 0, B, desk.now)
    desk.take()
    desk.connect(B)
    desk.core.lost(A, "reset", desk.now, final=True)
    asked = {0} | {ask.chunk for ask in desk.asks()}
    while desk.core.progress(KEY) is not None:
        for index in sorted(asked):
            desk.chunk(B, index, 9)
        effects = desk.take()
        asked = {effect.chunk for effect in effects if isinstance(effect, Ask)}
    assert effects[-1] == Ended(KEY, None)


def test_not_all_stores_that_are_named_are_connected_to(desk: Desk) -> None:
    desk.begin(100, A)
    waiting = [ask.chunk for ask in desk.connect(A)]
    for number in range(MAX_NAMED + 1):
        desk.core.elsewhere(A, KEY, waiting.pop(0), f"tcp://other:{number}", desk.now)
        effects = desk.take()
        waiting += [effect.chunk for effect in effects if isinstance(effect, Ask)]
    assert not any(isinstance(effect, Connect) for effect in effects)
    assert [effect.referred for effect in effects if isinstance(effect, Ask)] == [True], (
        "there was no room for that one"
    )
    desk.chunk(A, waiting[0], 100)
    (ask,) = desk.asks()
    assert ask.only
    assert len(ask.others) == MAX_NAMED


def test_another_version_is_refused(desk: Desk) -> None:
    desk.begin(4, A, B)
    asked_of_a = desk.connect(A)
    desk.chunk(A, 0, 4, tag=1)
    assert len(asked_of_a) == 4
    desk.core.lost(A, "reset", desk.now)
    asked_of_b = desk.connect(B)
    assert not desk.chunk(B, asked_of_b[0].chunk, 4, tag=2)
    effects = desk.wait(0.3)
    assert effects == [Connect(A)]


def test_answers_that_nobody_asked_for_are_errors(desk: Desk) -> None:
    desk.begin(4, A)
    for call in (
        lambda: desk.chunk(A, 0, 4),
        lambda: desk.core.missing(A, KEY, 0, "", desk.now),
        lambda: desk.core.elsewhere(B, KEY, 0, C, desk.now),
    ):
        with pytest.raises(ValueError, match="nobody asked"):
            call()


def test_a_fetch_that_was_cancelled_may_begin_again_while_answers_are_under_way(desk: Desk) -> None:
    desk.begin(4, A)
    desk.connect(A)
    desk.core.cancel(KEY, "cancelled")
    assert desk.take() == [Ended(KEY, "cancelled")]
    assert desk.begin(4, A) == [], "they have been asked for"
    for index in range(4):
        assert desk.chunk(A, index, 4)
    assert desk.take() == [Tell(A, KEY), Ended(KEY, None)]
    desk.core.cancel(KEY, "cancelled")
    assert desk.take() == []


def test_an_object_that_is_made_ready_does_not_hold_up_others(desk: Desk) -> None:
    desk.begin(20, A)
    assert len(desk.connect(A)) == FEWEST
    assert desk.begin(3, A, key=(7, 2)) == []
    desk.core.waiting(A, KEY, desk.now)
    assert [(ask.key[1], ask.chunk) for ask in desk.asks()] == [(2, 0), (2, 1), (2, 2)]
    desk.chunk(A, 0, 3, key=(7, 2))
    assert desk.asks() == []
    desk.chunk(A, 0, 20)
    assert desk.asks() == []
    desk.chunk(A, 1, 3, key=(7, 2))
    assert [(ask.key[1], ask.chunk) for ask in desk.asks()] == []
    desk.chunk(A, 1, 20)
    desk.chunk(A, 2, 20)
    assert [(ask.key[1], ask.chunk) for ask in desk.asks()] == [(1, 8), (1, 9)]


def test_another_source_sends_what_one_has_to_make_ready_first(desk: Desk) -> None:
    desk.begin(8, A, B)
    assert len(desk.connect(A)) == 8
    desk.core.waiting(A, KEY, desk.now)
    assert [(ask.address, ask.chunk) for ask in desk.connect(B)] == [(B, index) for index in range(8)]
    for index in range(4):
        assert desk.chunk(B, index, 8)
    assert not desk.chunk(A, 3, 8)
    assert desk.chunk(A, 4, 8)
    for index in range(5, 8):
        assert desk.chunk(B, index, 8)
    assert desk.take()[-1] == Ended(KEY, None)


def test_a_store_that_could_not_be_reached_is_not_tried_again_for_the_next_object(desk: Desk) -> None:
    desk.begin(2, A)
    desk.connect(A)
    desk.core.elsewhere(A, KEY, 0, B, desk.now)
    assert desk.take() == [Connect(B)]
    desk.core.lost(B, "refused", desk.now)
    assert [ask.others for ask in desk.asks()] == [(B,)]
    assert [effect.others for effect in desk.begin(1, A, key=(7, 2)) if isinstance(effect, Ask)] == [(B,)]
    desk.wait(61)
    desk.begin(1, A, key=(7, 3))
    assert [ask.others for ask in desk.connect(A)] == [()]


def test_a_named_store_that_is_of_no_use_is_not_to_be_named_again(desk: Desk) -> None:
    desk.begin(10, A)
    desk.connect(A)
    desk.core.elsewhere(A, KEY, 0, "tcp://127.0.0.1:1", desk.now, usable=False)
    desk.core.elsewhere(A, KEY, 1, "tcp://me:1", desk.now)
    asks = desk.asks()
    assert {ask.chunk: ask.referred for ask in asks} == {1: True, 0: True}, "that source is to send them by itself"
    desk.chunk(A, 2, 10)
    assert [ask.others for ask in desk.asks()] == [("tcp://127.0.0.1:1", "tcp://me:1")]


@pytest.mark.parametrize(
    ("name", "usable"), [("tcp://10.0.0.{}:1", True), ("tcp://127.0.0.1:{}", False), ("", True), ("x{:9999}", False)]
)
def test_a_source_that_only_names_others_is_left_after_as_many_answers_as_there_are_chunks(
    desk: Desk, name: str, usable: bool
) -> None:
    """It was asked again and again, each time with a longer list of those not to be named."""
    chunks, answers, text = 100, 0, 0
    desk.begin(chunks, A)
    desk.core.connected(A, desk.now)
    ended: str | None = None
    while ended is None:
        for effect in desk.take():
            if isinstance(effect, Connect):
                desk.core.lost(effect.address, "refused", desk.now)
            elif isinstance(effect, Ended):
                ended = effect.error
            elif isinstance(effect, Ask):
                answers += 1
                text = max(text, len("\n".join(effect.others)))
                try:
                    desk.core.elsewhere(A, KEY, effect.chunk, name.format(answers), desk.now, usable=usable)
                except ValueError as error:  # as the shell does
                    desk.core.lost(A, str(error), desk.now, final=True)
    assert ended == f"{A}: {A} names another store for what it was to send by itself"
    assert answers <= 3 * chunks
    assert text <= (MAX_LISTED + 1) * 256


def test_with_very_many_sources_none_is_told_of_the_others(desk: Desk) -> None:
    """The list of thousands is no message any more."""
    desk.begin(10, *[f"tcp://s:{number}" for number in range(5000)])
    asks = desk.connect("tcp://s:7") if not desk.take() else []
    desk.core.connected("tcp://s:7", desk.now)
    asks += [effect for effect in desk.take() if isinstance(effect, Ask)]
    assert asks
    assert all(ask.referred and not ask.others for ask in asks)


def test_a_source_that_closes_each_connection_is_left(desk: Desk) -> None:
    """Each connection counted as a word of it: it was tried again for ever."""
    effects = desk.begin(2, A)
    while not any(isinstance(effect, Ended) for effect in effects):
        assert desk.now < 100.0 + 2 * PATIENCE
        if Connect(A) in effects:
            desk.core.connected(A, desk.now)
            desk.core.lost(A, "reset", desk.now)
        effects = desk.wait(0.1)


def test_a_source_that_makes_an_object_ready_for_ever_is_left(desk: Desk) -> None:
    desk.begin(2, A)
    desk.connect(A)
    effects: list[Effect] = []
    while not any(isinstance(effect, Ended) for effect in effects):
        assert desk.now < 100.0 + 2 * LONGEST_WAIT
        desk.core.waiting(A, KEY, desk.now)
        effects = desk.wait(1.0)
    assert effects == [Ended(KEY, f"{A}: has not made it ready in {LONGEST_WAIT:g} s")]
    assert desk.now > 100.0 + LONGEST_WAIT


def test_idle_connections_are_closed_in_the_end(desk: Desk) -> None:
    desk.begin(1, A)
    desk.connect(A)
    desk.chunk(A, 0, 1)
    desk.take()
    assert desk.wait(59) == []
    assert desk.wait(2) == [Hang(A)]
    desk.core.connected(A, desk.now)
    assert desk.take() == [Hang(A)]


def busy(desk: Desk, stores: int) -> list[str]:
    """So many stores that are connected to, each for a fetch of its own, the first one heard least lately."""
    addresses = [f"tcp://busy:{number}" for number in range(1, stores + 1)]
    for number, address in enumerate(addresses):
        desk.now += 0.01
        assert desk.begin(2, address, key=(8, number)) == [Connect(address)]
        desk.connect(address)
    return addresses


def test_a_store_that_nobody_asks_any_more_makes_room_for_another(desk: Desk) -> None:
    addresses = busy(desk, MOST_LINES)
    for number in (5, 3, 4):
        desk.core.cancel((8, number), "it was cancelled")
        desk.core.missing(addresses[number], (8, number), 0, "", desk.now)
        desk.core.missing(addresses[number], (8, number), 1, "", desk.now)
        desk.now += 0.01
    desk.take()
    assert desk.begin(1, A) == [Hang(addresses[5]), Connect(A)]
    assert desk.begin(1, B, key=(7, 2)) == [Hang(addresses[3]), Connect(B)]


def test_as_many_stores_are_connected_to_as_there_may_be_and_as_fetches_need_to_go_on(desk: Desk) -> None:
    addresses = busy(desk, MOST_LINES)
    assert desk.begin(1, A, B) == [Connect(A)], "it has no other"
    assert desk.begin(1, A, key=(7, 2)) == []
    assert desk.wait(1) == []
    desk.core.cancel((8, 0), "it was cancelled")
    desk.core.missing(addresses[0], (8, 0), 0, "", desk.now)
    desk.core.missing(addresses[0], (8, 0), 1, "", desk.now)
    assert desk.take() == [Ended((8, 0), "it was cancelled"), Hang(addresses[0])], "that made one too many"
    desk.core.lost(A, "refused", desk.now)
    assert desk.take() == [Ended((7, 2), f"{A}: refused"), Connect(B)]


def test_who_waits_for_a_connection_and_is_cancelled_gets_none(desk: Desk) -> None:
    addresses = busy(desk, MOST_LINES)
    desk.begin(1, A, B)
    desk.core.cancel(KEY, "it was cancelled")
    desk.core.lost(addresses[0], "refused", desk.now, final=True)
    desk.core.lost(addresses[1], "refused", desk.now, final=True)
    assert not [effect for effect in desk.take() if isinstance(effect, Connect)]
    assert desk.begin(1, B) == [Connect(B)]


def test_a_named_store_that_there_is_no_room_for_is_not_waited_for(desk: Desk) -> None:
    addresses = busy(desk, MOST_LINES)
    desk.core.elsewhere(addresses[0], (8, 0), 1, A, desk.now)
    assert desk.take() == [Ask(addresses[0], (8, 0), 1, True, (), False)]
    desk.core.cancel((8, 1), "it was cancelled")
    desk.core.missing(addresses[1], (8, 1), 0, "", desk.now)
    desk.core.missing(addresses[1], (8, 1), 1, "", desk.now)
    desk.core.elsewhere(addresses[0], (8, 0), 0, B, desk.now)
    assert desk.take() == [Ended((8, 1), "it was cancelled"), Hang(addresses[1]), Connect(B)]


def test_a_source_that_waits_for_room_is_not_asked_for_what_it_is_named_for(desk: Desk) -> None:
    busy(desk, MOST_LINES)
    desk.begin(2, A, B)
    assert [ask.chunk for ask in desk.connect(A)] == [0, 1]
    desk.core.elsewhere(A, KEY, 1, B, desk.now)
    assert desk.take() == [Ask(A, KEY, 1, True, (), False)]


def test_a_connection_of_which_nobody_tells_is_given_up(desk: Desk) -> None:
    assert desk.begin(1, A) == [Connect(A)]
    assert desk.wait(2 * PATIENCE - 0.1) == []
    assert desk.wait(0.2) == [Ended(KEY, f"{A}: no connection for 10 s")]
    assert desk.core.is_idle
    desk.core.connected(A, desk.now)
    assert desk.take() == [Hang(A)], "it comes too late"


def test_what_becomes_of_a_connection_that_was_given_up_means_nothing_to_the_next(desk: Desk) -> None:
    busy(desk, MOST_LINES)
    desk.begin(1, A, B)
    desk.core.lost(B, "refused", desk.now)
    desk.core.lost(A, "refused", desk.now)
    assert desk.take() == [Connect(B)]


class Crowd:
    """Stores that behave by chance; the first one always does what it should."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.desk = Desk()
        self.stores = [f"tcp://s:{number}" for number in range(1, 6)]
        self.honest = self.stores[0]
        self.up: set[str] = set()
        self.connecting: list[str] = []
        self.asked: list[Ask] = []
        self.ended: dict[Key, str | None] = {}
        self.arrived: Counter[tuple[Key, int]] = Counter()
        #: connections there were at a time, at most
        self.most = 0

    def react(self) -> None:
        while effects := self.desk.take():
            for effect in effects:
                if isinstance(effect, Connect):
                    self.connecting.append(effect.address)
                elif isinstance(effect, Hang):
                    self.forget(effect.address)
                elif isinstance(effect, Ask):
                    assert effect.address in self.up
                    self.asked.append(effect)
                    assert sum(ask.address == effect.address for ask in self.asked) <= _MOST_ASKED
                elif isinstance(effect, Ended):
                    assert effect.key not in self.ended
                    self.ended[effect.key] = effect.error
        self.most = max(self.most, len(self.up) + len(self.connecting))

    def forget(self, address: str) -> None:
        self.up.discard(address)
        self.asked = [ask for ask in self.asked if ask.address != address]

    def step(self, sizes: dict[Key, int]) -> None:
        desk, core, chance = self.desk, self.desk.core, self.chance
        if self.connecting and chance.random() < 0.5:
            address = self.connecting.pop(chance.randrange(len(self.connecting)))
            if address == self.honest or chance.random() < 0.6:
                self.up.add(address)
                core.connected(address, desk.now)
            elif chance.random() < 0.7:
                core.lost(address, "refused", desk.now, final=chance.random() < 0.5)
            else:
                self.connecting.append(address)
        elif self.asked and chance.random() < 0.95:
            ask = self.asked.pop(chance.randrange(len(self.asked)))
            honest = ask.address == self.honest
            what = chance.random()
            if what < 0.6 or (honest and (ask.referred or what > 0.9)):
                if core.arrived(ask.address, ask.key, ask.chunk, sizes[ask.key], 1, desk.now):
                    self.arrived[ask.key, ask.chunk] += 1
            elif what < 0.8 and not ask.referred:
                other = chance.choice([*self.stores, "tcp://me:1"])
                named = (other in ask.others) == ask.only
                other = other if named else self.honest
                core.elsewhere(ask.address, ask.key, ask.chunk, other, desk.now)
            elif honest:
                self.asked.append(ask)
                core.waiting(ask.address, ask.key, desk.now)
            elif what < 0.85:
                core.missing(ask.address, ask.key, ask.chunk, "", desk.now)
            elif what < 0.9:
                self.forget(ask.address)
                core.lost(ask.address, "reset", desk.now)
            # else it never answers
        else:
            desk.now += chance.choice([0.01, 0.3, 1.5])
            core.tick(desk.now)
        self.react()


@pytest.mark.parametrize(("block", "most"), [*((block, MOST_LINES) for block in range(4)), (4, 1), (5, 2)])
def test_every_fetch_ends_and_well_if_one_source_is_honest(
    block: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching_module, "MOST_LINES", most)
    for seed in range(100 * block, 100 * block + 100):
        crowd = Crowd(seed)
        sizes = {(1, number): crowd.chance.randrange(1, 25 * CHUNK) for number in range(3)}
        for key, size in sizes.items():
            sources = crowd.chance.sample(crowd.stores[1:], 2)
            if key[1]:
                sources.append(crowd.honest)
            crowd.desk.core.begin(key, size, sources, 0, crowd.desk.now)
        crowd.react()
        for _ in range(20_000):
            if len(crowd.ended) == 3:
                break
            crowd.step(sizes)
        assert len(crowd.ended) == 3, f"seed {seed}"
        assert crowd.desk.now < 400, f"seed {seed}"
        assert crowd.desk.core.is_idle
        assert crowd.most <= most + len(sizes)
        assert set(crowd.arrived.values()) <= {1}
        for key, error in crowd.ended.items():
            chunks = {index for of, index in crowd.arrived if of == key}
            assert error is not None or chunks == set(range(-(-sizes[key] // CHUNK))), f"seed {seed}"
            assert error is None or key[1] == 0, f"seed {seed}: {error}"
