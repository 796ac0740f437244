"""Whatever other stores and clients say between stores: what is fetched ends, and what is served stays as it was.

Both halves are pure: `Fetching` decides whom to ask for what, `Serving` what others get.
"""

import os
import tempfile
from collections.abc import Iterator
from random import Random

import pytest
from support import no_descriptor_stays
from support.seeds import run

from scaler.errors import ProtocolError
from scaler.store.directory import StoreDirectory
from scaler.store.fetching import Ask, Connect, Effect, Ended, Fetching, Hang
from scaler.store.layout import HEADER_BYTES, Key
from scaler.store.segments import open_file, write
from scaler.store.serving import Partial, Serving
from scaler.store.wire import CHUNK, VERSION, Kind, Note, pack

SOME, MANY = 1_000, 100_000
KEYS: tuple[Key, ...] = ((1, 10), (1, 11), (2, 10), (2**64 - 1, 2**64 - 1))
STORES = ("tcp://a:1", "tcp://b:1", "tcp://c:1")
OWN = "tcp://own:1"
PATIENCE = 5.0


class Asking:
    """One that fetches; what it is answered is drawn by lot."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.fetching = Fetching(PATIENCE, OWN)
        self.now = 0.0
        #: connections that are there, and those that are being made
        self.links: set[str] = set()
        self.dialled: set[str] = set()
        #: fetches that have not ended, and their bytes
        self.sizes: dict[Key, int] = {}

    def step(self) -> None:
        """Something happens."""
        random, fetching = self._random, self.fetching
        self.now += random.choice([0, 0.01, 1, 6])
        key, address, what = random.choice(KEYS), random.choice(STORES), random.randrange(12)
        if what == 0 and key not in self.sizes:
            self.sizes[key] = random.choice([100, CHUNK + 5, 9 * CHUNK])
            fetching.begin(key, self.sizes[key], random.sample(STORES, random.choice([1, 2, 3])), 0, self.now)
        elif what == 1 and self.dialled:
            self._connect(random.choice(sorted(self.dialled)), random.random() < 0.7)
        elif what == 2 and address in self.links:
            self._lose(address, is_final=random.random() < 0.2)
        elif what == 3:
            fetching.tick(self.now)
        elif what == 4 and key in self.sizes:
            fetching.cancel(key, "it was cancelled")
        elif what > 4 and address in self.links:
            try:
                self._answer(key, address)
            except ValueError:  # as the shell does
                self._lose(address, is_final=True)
        self._carry_out(fetching.take(self.now))

    def _answer(self, key: Key, address: str) -> None:
        random, fetching, now = self._random, self.fetching, self.now
        index = random.choice([0, 1, 2, 8, 2**42])
        kind = random.choice([Kind.CHUNK, Kind.CHUNK, Kind.ELSEWHERE, Kind.MISSING, Kind.WAIT])
        if kind == Kind.CHUNK:
            fetching.arrived(address, key, index, random.choice([self.sizes.get(key, 1), 0, 5]), 7, now)
        elif kind == Kind.ELSEWHERE:
            other = random.choice([*STORES, OWN, "", "junk"])
            fetching.elsewhere(address, key, index, other, now, usable=random.random() < 0.8)
        elif kind == Kind.MISSING:
            fetching.missing(address, key, index, "why", now)
        else:
            fetching.waiting(address, key, now)

    def _connect(self, address: str, is_made: bool) -> None:
        self.dialled.discard(address)
        if is_made:
            self.links.add(address)
            self.fetching.connected(address, self.now)
        else:
            self.fetching.lost(address, "it does not answer", self.now)

    def _lose(self, address: str, is_final: bool = False) -> None:
        self.links.discard(address)
        self.fetching.lost(address, "it is gone", self.now, final=is_final)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                self.dialled.add(effect.address)
            elif isinstance(effect, Hang):
                self.links.discard(effect.address)
            elif isinstance(effect, Ended):
                del self.sizes[effect.key]
            elif isinstance(effect, Ask):
                assert effect.address in self.links

    def end(self) -> None:
        """Nobody answers any more: all of it ends."""
        for _ in range(40):
            self.now += PATIENCE + 1
            self.fetching.tick(self.now)
            self._carry_out(self.fetching.take(self.now))
            for address in sorted(self.dialled):
                self._connect(address, is_made=False)
            self._carry_out(self.fetching.take(self.now))
        assert not self.sizes
        assert self.fetching.is_idle


def fetch(seed: int) -> None:
    random = Random(seed)
    asking = Asking(random)
    for _ in range(random.choice([10, 50, 200])):
        asking.step()
    asking.end()


# ---- serving ---------------------------------------------------------------------------------------------------------
def note_by_lot(random: Random, reads: int) -> Note:
    """What a store or client may say once it has introduced itself, and said so many READs."""
    kind = random.choice([Kind.READ, Kind.READ, Kind.DONE, Kind.BEGIN, Kind.PIECE, Kind.PIECE, *Kind])
    size = random.choice([0, 24, HEADER_BYTES, HEADER_BYTES + 100, CHUNK, CHUNK + 5, 9 * CHUNK, 1 << 40, 1 << 61])
    offset = random.choice([0, 0, CHUNK, 8 * CHUNK, 5, size, max(0, size - 1), 1 << 60])
    data = [b"x" * random.choice([0, 1, HEADER_BYTES, 100])] * random.choice([1, 1, 2])
    number = random.choice([0, reads, 2**64 - 1])
    text = random.choice(["", "tcp://h:1", "a\nb"])
    return Note(kind, random.choice(KEYS), offset, size, number, random.choice([0, 1, 2, 3, 255]), text, data)


def serve(seed: int, store: str) -> None:
    random = Random(seed)
    there = KEYS[0]
    size = write(store, there, b"x" * random.choice([100, CHUNK]))
    with tempfile.TemporaryFile() as file:
        file.truncate(3 * CHUNK)
        arriving = {KEYS[2]: Partial(file.fileno(), 3 * CHUNK, 7, bytearray([1, 0, 0]))}
        serving = Serving(store, random.random() < 0.5, lambda *_: None, lambda _: None, arriving.get)
        say_anything(serving, random)
        serving.close()
    fd, found = open_file(store, there)
    os.close(fd)
    assert found == size


def say_anything(serving: Serving, random: Random) -> None:
    """Three peers do, come and go; in the end nothing is waited for."""
    reads: dict[int, int] = {}
    now = 0.0
    for _ in range(random.choice([5, 30, 100])):
        now += random.choice([0, 0.01, 1, 40])
        peer, what = random.choice([1, 2, 3]), random.randrange(20)
        if what == 0:
            serving.gone(peer)
            reads.pop(peer, None)
        elif what == 1:
            serving.tick(now)
        elif what == 2:
            serving.fetched(random.choice(KEYS), random.choice([None, "why"]))
        elif what == 3:
            serving.unavailable(random.choice(KEYS), "why")
        else:
            is_new = peer not in reads
            greeting = Note(Kind.HELLO, offset=VERSION, text=random.choice(["", "tcp://h:1", "x\n"]))
            note = greeting if is_new else note_by_lot(random, reads[peer])
            try:
                serving.said(peer, [bytes(frame) for frame in pack(note)], now)
                reads[peer] = reads.get(peer, 0) + (note.kind == Kind.READ)
            except ProtocolError:  # as the shell does
                serving.gone(peer)
                reads.pop(peer, None)
    for peer in (1, 2, 3):
        serving.gone(peer)
    for _ in range(50):
        now += 10
        serving.tick(now)
    assert serving.is_idle


#: seeds that found something
FOUND = [
    151,  # an object was fetched again that had been larger: an answer to the first time was of a chunk that it lacks
]


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_something_find_nothing_any_more(seed: int) -> None:
    fetch(seed)


def test_fetches_end_whatever_stores_answer() -> None:
    run(range(SOME), fetch)


@pytest.fixture
def descriptors() -> Iterator[None]:
    """None is left open."""
    with no_descriptor_stays():
        yield


@pytest.mark.usefixtures("descriptors")
def test_stores_serve_whatever_is_asked() -> None:
    for seed in range(SOME // 4):
        directory = StoreDirectory()
        try:
            serve(seed, directory.path)
        finally:
            directory.remove()


@pytest.mark.heavy
def test_fetches_end_whatever_stores_answer_in_many_runs() -> None:
    run(range(1_000_000, 1_000_000 + MANY), fetch)
