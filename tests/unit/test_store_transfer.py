"""Objects travel between stores: whole, from several at once, past losses, and without asking too much of anybody."""

import os
import random
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import patience, until
from support.proxy import Proxy

from scaler.agent.store_cleaning import remove_older
from scaler.errors import ProtocolError
from scaler.store import ObjectMissing, StoreFull, TransferFailed
from scaler.store import puts as puts_module
from scaler.store import serving as serving_module
from scaler.store import transfer as transfer_module
from scaler.store import window as window_module
from scaler.store.directory import StoreDirectory
from scaler.store.layout import MAGIC, Key, file_name, tag_of
from scaler.store.remote import RemoteStore
from scaler.store.segments import DISK, Draft, free, open_object, parts_of, remove_client, write
from scaler.store.serving import LONGEST_UNREAD, MAX_UNDER_WAY, MOST_UNREAD, Result, Serving
from scaler.store.transfer import Transfer
from scaler.store.window import FEWEST, MOST
from scaler.store.wire import CHUNK, REFERRED, VERSION, Kind, Note, pack, unpack
from scaler.transport import Security, connect
from scaler.transport.listener_state import ListenerState

KEY: Key = (7, 1)
SECURITY = Security.ephemeral()
#: seconds for which stores and clients wait for a silent one; more on a busy machine
PATIENCE = 0.5


class Host:
    """A store and its transfer."""

    def __init__(self, **options: Any) -> None:
        self._directory = StoreDirectory()
        self.store = self._directory.path
        options = {"patience": patience(PATIENCE), **options}
        self.transfer = Transfer(self.store, SECURITY, "tcp://127.0.0.1:0", **options)
        self.url = self.transfer.address.url
        self.transfer.advertise(self.url)

    def results(self, count: int = 1) -> list[Result]:
        """Wait for so many results."""
        found: list[Result] = []
        while len(found) < count:
            ready, _, _ = select.select([self.transfer], [], [], 20)
            assert ready, f"waited in vain after {found}"
            found += self.transfer.take()
        return found

    def fetch(self, key: Key, size: int, *sources: "Host | str") -> str | None:
        """Fetch an object, and return why that failed."""
        self.transfer.fetch(key, size, [source if isinstance(source, str) else source.url for source in sources])
        ((what, of, _, error),) = self.results()
        assert (what, of) == ("fetch", key)
        return error

    def files(self) -> list[str]:
        return sorted(set(os.listdir(self.store)) - {"free", "owner", "token"})

    def close(self) -> None:
        self.transfer.close()
        half = [name for name in self.files() if name.startswith(".")]
        self._directory.remove()
        assert not half

    def content(self, key: Key = KEY) -> bytes:
        return bytes(open_object(self.store, key).buffers[0])


@pytest.fixture
def host() -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(**options: Any) -> Host:
        made.append(Host(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as free_port:
        free_port.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free_port.getsockname()[1]}"


def put(host: Host, size: int, key: Key = KEY) -> tuple[bytes, int]:
    content = os.urandom(size)
    return content, write(host.store, key, b"pickle", [memoryview(content)])


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("size", [0, 1, CHUNK - 200, CHUNK, 5 * CHUNK + 17])
def test_an_object_is_fetched_whole(host: Callable[..., Host], size: int, shortcut: bool) -> None:
    there, here = host(shortcut=shortcut), host(shortcut=shortcut)
    content, total = put(there, size)
    assert here.fetch(KEY, total, there) is None
    found = open_object(here.store, KEY)
    assert bytes(found.inband) == b"pickle"
    assert bytes(found.buffers[0]) == content
    assert there.transfer.served_bytes == total
    assert here.fetch(KEY, total) is None, "it is there already"


def test_several_sources_share_the_work(host: Callable[..., Host]) -> None:
    sources = [host() for _ in range(3)]
    content, total = put(sources[0], 48 * CHUNK)
    for other in sources[1:]:
        assert other.fetch(KEY, total, sources[0]) is None
    served = sources[0].transfer.served_bytes
    here = host()
    assert here.fetch(KEY, total, *sources) is None
    assert here.content() == content
    shares = [source.transfer.served_bytes for source in sources]
    shares[0] -= served
    assert all(share > 2 * CHUNK for share in shares[1:]), shares


def test_many_objects_at_once(host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_module, "_MOST_FETCHES", 10)
    monkeypatch.setattr(serving_module, "_MOST_OPEN", 5)
    there, here = host(), host()
    totals = {}
    for number in range(60):
        content = b"%d" % number * (CHUNK // 4)
        totals[(1, number)] = write(there.store, (1, number), b"", [memoryview(content)])
    for key, total in totals.items():
        here.transfer.fetch(key, total, [there.url])
    assert {(key, size) for _, key, size, error in here.results(60) if error is None} == set(totals.items())
    for number in range(60):
        assert here.content((1, number)) == b"%d" % number * (CHUNK // 4)


def test_asking_again_for_what_is_being_fetched_adds_sources_and_gives_one_result(host: Callable[..., Host]) -> None:
    there, here = host(on_demand=True), host()
    _, total = put(host(), 4 * CHUNK)
    silent = host(on_demand=True)
    here.transfer.fetch(KEY, total, [silent.url])
    assert silent.results() == [("wanted", KEY, 0, None)]
    here.transfer.fetch(KEY, total, [silent.url])
    here.transfer.fetch(KEY, total, [there.url])
    assert there.results() == [("wanted", KEY, 0, None)]
    silent.transfer.unavailable(KEY)
    content, _ = put(there, 4 * CHUNK)
    there.transfer.available(KEY)
    assert here.results() == [("fetch", KEY, total, None)]
    assert here.content() == content
    here.transfer.cancel((9, 9))
    assert here.fetch((9, 9), 100) is not None
    assert here.transfer.take() == []


def test_what_no_source_has_ends_with_the_reasons(host: Callable[..., Host]) -> None:
    there, here = host(), host()
    assert here.fetch(KEY, 100) == "no other store has it"
    assert here.fetch(KEY, 100, here) == "no other store has it"
    lonely = nobody()
    error = here.fetch(KEY, 10 * CHUNK, there, lonely)
    assert error is not None
    assert f"{there.url}: does not have it" in error
    assert f"{lonely}: nothing listens" in error
    assert here.fetch(KEY, 100, "nonsense") is not None
    assert here.fetch(KEY, 0, there) == "no object has 0 bytes"
    assert here.files() == []


def test_a_source_with_another_size_or_version_is_dropped(host: Callable[..., Host]) -> None:
    one, other, here = host(), host(), host()
    _, total = put(one, 20 * CHUNK)
    error = here.fetch(KEY, total + 1, one)
    assert error is not None
    assert "another version" in error
    put(other, 20 * CHUNK)  # the same bytes, but made a second time
    assert here.fetch(KEY, total, one, other) is None
    found = Path(here.store, file_name(KEY)).read_bytes()
    assert found in [Path(source.store, file_name(KEY)).read_bytes() for source in (one, other)]


def test_another_source_takes_over_from_one_that_ends(host: Callable[..., Host]) -> None:
    first, second, here = host(), host(), host()
    content, total = put(first, 64 * CHUNK)
    assert second.fetch(KEY, total, first) is None
    here.transfer.fetch(KEY, total, [first.url, second.url])
    until(lambda: second.transfer.served_bytes > 0)
    second.transfer.close()
    assert here.results() == [("fetch", KEY, total, None)]
    assert here.content() == content


def test_fetches_that_have_not_begun_can_be_cancelled_and_get_more_sources(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_module, "_MOST_FETCHES", 1)
    slow, there, here = host(on_demand=True), host(), host()
    _, total = put(there, 1000, (1, 2))
    here.transfer.fetch((1, 1), total, [slow.url])
    assert slow.results() == [("wanted", (1, 1), 0, None)]
    here.transfer.fetch((1, 2), total, [])
    here.transfer.fetch((1, 3), total, [there.url])
    here.transfer.fetch((1, 2), total, [there.url])
    here.transfer.cancel((1, 3))
    assert here.results() == [("fetch", (1, 3), 0, "it was cancelled")]
    here.transfer.cancel((1, 1))
    assert here.results(2) == [("fetch", (1, 1), 0, "it was cancelled"), ("fetch", (1, 2), total, None)]


@pytest.fixture(autouse=True)
def _short_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is under way than on a short way, however slow this machine is."""
    monkeypatch.setattr(window_module, "MOST", FEWEST)


@pytest.fixture
def proxy() -> Iterator[Callable[[str, int], Proxy]]:
    made: list[Proxy] = []

    def make(target: str, limit: int) -> Proxy:
        made.append(Proxy(target, limit))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_lost_connection_is_made_again_and_only_what_is_missing_is_sent(
    host: Callable[..., Host], proxy: Callable[[str, int], Proxy]
) -> None:
    there, here = host(shortcut=False), host(shortcut=False)
    content, total = put(there, 30 * CHUNK)
    between = proxy(there.url, 0)
    between.limits = [None, 12 * CHUNK, None, 12 * CHUNK, None]  # a look whether anybody listens, then a connection
    assert here.fetch(KEY, total, between.url) is None
    assert here.content() == content
    assert between.connections >= 4
    assert there.transfer.served_bytes <= total + 2 * 9 * CHUNK


def test_a_source_that_falls_silent_is_dropped_in_time(
    host: Callable[..., Host], proxy: Callable[[str, int], Proxy]
) -> None:
    there, here = host(shortcut=False), host(shortcut=False)
    content, total = put(there, 30 * CHUNK)
    between = proxy(there.url, 0)
    between.limits = [None, 5 * CHUNK + 1]
    error = here.fetch(KEY, total, between.url)
    assert error is not None
    assert "no answer for " in error
    assert between.stalled
    again = proxy(there.url, 0)
    again.limits = [None, 5 * CHUNK + 1]
    assert here.fetch(KEY, total, again.url, there) is None, "the other source has sent what this one did not"
    assert here.content() == content


def test_a_source_leaves_the_spreading_to_those_who_receive(host: Callable[..., Host]) -> None:
    there, *others = [host(patience=5.0) for _ in range(5)]
    content, total = put(there, 64 * CHUNK)
    for other in others:
        other.transfer.fetch(KEY, total, [there.url])
    for other in others:
        assert other.results() == [("fetch", KEY, total, None)]
        assert other.content() == content
    # 1.0 to 1.3 mostly; where receivers wait for a processor, they ask the source again
    assert there.transfer.served_bytes < 2 * total, there.transfer.served_bytes / total
    assert sum(each.transfer.served_bytes for each in (there, *others)) <= 4.5 * total


def test_receivers_that_cannot_reach_each_other_get_all_from_the_source(host: Callable[..., Host]) -> None:
    there, *others = [host() for _ in range(4)]
    content, total = put(there, 32 * CHUNK)
    for other in others:
        other.transfer.advertise(nobody())
        other.transfer.fetch(KEY, total, [there.url])
    for other in others:
        assert other.results() == [("fetch", KEY, total, None)]
        assert other.content() == content


def test_a_receiver_that_dies_does_not_hold_up_the_others(host: Callable[..., Host]) -> None:
    there, *others = [host() for _ in range(4)]
    content, total = put(there, 64 * CHUNK)
    for other in others:
        other.transfer.fetch(KEY, total, [there.url])
    dying = until(lambda: next((other for other in others if other.transfer.served_bytes), None))
    dying.transfer.close()
    for other in set(others) - {dying}:
        assert other.results() == [("fetch", KEY, total, None)]
        assert other.content() == content


def test_an_object_that_is_wanted_is_made_ready_by_its_owner(host: Callable[..., Host]) -> None:
    there, here = host(on_demand=True), host()
    here.transfer.fetch(KEY, CHUNK, [there.url])
    assert there.results() == [("wanted", KEY, 0, None)]
    there.transfer.unavailable(KEY, "was lost")
    assert here.results() == [("fetch", KEY, 0, f"{there.url}: was lost")]
    draft = Draft(there.store, KEY, 5000)
    draft.discard()
    here.transfer.fetch(KEY, 200, [there.url])
    assert there.results() == [("wanted", KEY, 0, None)]
    put(there, 64)
    there.transfer.available(KEY)
    ((_, _, _, error),) = here.results()
    assert error is not None
    assert "another version" in error, "it had another size after all"
    there.transfer.available((1, 1))
    there.transfer.unavailable((1, 1))


def test_a_wait_for_an_object_that_is_made_ready_is_longer_than_patience(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_CONSOLE", 0.1)
    monkeypatch.setattr(serving_module, "_HOLD", 0.9)
    there, here = host(on_demand=True), host()
    here.transfer.fetch(KEY, CHUNK, [there.url])
    assert there.results() == [("wanted", KEY, 0, None)]
    assert here.results() == [("fetch", KEY, 0, f"{there.url}: was not made ready in time")]


def test_objects_on_disk_are_served_too(host: Callable[..., Host], tmp_path: Path) -> None:
    there, here = host(), host()
    os.symlink(tmp_path, os.path.join(there.store, DISK))
    total = write(str(tmp_path), KEY, b"", [memoryview(b"spilt")])
    assert here.fetch(KEY, total, there) is None
    assert here.content() == b"spilt"


def test_a_freed_object_is_not_served_for_long_and_its_memory_not_used_meanwhile(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_module, "_KEEP_OPEN", 0.3)
    there, here = host(), host()
    _, total = put(there, 3 * CHUNK)
    assert here.fetch(KEY, total, there) is None
    free(there.store, KEY)
    assert os.listdir(f"{there.store}/free") == [], "it is open"
    free(here.store, KEY)
    until(lambda: there.transfer._serving.is_idle)
    assert here.fetch(KEY, total, there) == f"{there.url}: does not have it"


def test_a_full_store_fails_the_fetch(host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = host(), host()
    _, total = put(there, 3 * CHUNK)

    def full(path: str, key: Key, size: int) -> None:
        raise StoreFull(path, size, 5)

    monkeypatch.setattr(transfer_module, "Draft", full)
    here.transfer.fetch(KEY, total, [there.url])
    ((what, _, _, error),) = here.results()
    assert what == "full"
    assert error is not None
    assert error.startswith(f"{here.store} has no room for {total:,} bytes: 5 are free")


def test_a_defect_ends_what_is_under_way_and_nothing_else(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there, here = host(), host()
    content, total = put(there, 3 * CHUNK)

    def broken(*_: object) -> bool:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(here.transfer, "_take_chunk", broken)
        assert here.fetch(KEY, total, there) == "RuntimeError: broken"
    assert "broken" in caplog.text
    assert here.fetch(KEY, total, there) is None
    assert here.content() == content


def fetch_together(here: Host, totals: dict[Key, int], source: str) -> None:
    """Have its thread find at once that all these objects are to be fetched."""
    transfer = here.transfer
    with transfer._lock:
        for key, total in totals.items():
            transfer._commands.append(partial(transfer._fetch, key, total, [source]))
    transfer.cancel((1, 1))


def several(there: Host) -> dict[Key, int]:
    """Objects that it has got, and their sizes."""
    return {key: put(there, 1000, key)[1] for key in [(7, number) for number in range(1, 4)]}


def test_what_can_not_be_done_does_not_keep_the_rest_from_being_done(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = host(), host()
    totals = several(there)
    keys = list(totals)
    start = here.transfer._start

    def broken(key: Key, size: int, sources: Sequence[str]) -> None:
        if key == keys[0]:
            raise RuntimeError("broken")
        start(key, size, sources)

    monkeypatch.setattr(here.transfer, "_start", broken)
    fetch_together(here, totals, there.url)
    assert sorted((key, error) for _, key, _, error in here.results(2)) == [(key, None) for key in keys[1:]]


def test_without_a_thread_for_a_connection_its_store_can_not_be_reached_for_now(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = host(), host()
    totals = several(there)
    keys = list(totals)
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "scaler-transfer-connect" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    fetch_together(here, totals, there.url)
    errors = {key: error or "" for _, key, _, error in here.results(3)}
    assert errors.pop(keys[0]).startswith(f"{there.url}: can't start new thread: no more processes or threads")
    assert errors == {keys[1]: "", keys[2]: ""}


def test_a_fetch_ends_whatever_keeps_a_connection_from_being_made(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there, here = host(), host()
    _, total = put(there, 1000)

    def broken(*_: object, **__: object) -> None:
        raise MemoryError("no more of it")

    with monkeypatch.context() as patch:
        patch.setattr(transfer_module, "connect", broken)
        assert here.fetch(KEY, total, there) == f"{there.url}: MemoryError: no more of it"
    assert "MemoryError" in caplog.text
    assert here.fetch(KEY, total, there) is None


def test_another_key_gets_nothing(host: Callable[..., Host], tmp_path: Path) -> None:
    there = host(shortcut=False)
    _, total = put(there, 1000)
    stranger = Transfer(
        str(tmp_path), Security.ephemeral(), "tcp://127.0.0.1:0", patience=patience(PATIENCE), shortcut=False
    )
    try:
        stranger.fetch(KEY, total, [there.url])
        assert select.select([stranger], [], [], 20)[0]
        ((_, _, _, error),) = stranger.take()
        assert error is not None
        assert "does not accept" in error
    finally:
        stranger.close()
    assert there.transfer.served_bytes == 0


def test_nonsense_ends_a_connection_and_nothing_else(
    host: Callable[..., Host], caplog: pytest.LogCaptureFixture
) -> None:
    there, here = host(), host()
    content, total = put(there, 2 * CHUNK)
    greeting = pack(Note(Kind.HELLO, offset=VERSION))
    read = pack(Note(Kind.READ, KEY, 0))
    odd: list[list[list[bytes | memoryview]]] = [
        [[b""]], [[b"x" * 48]], [read], [greeting, greeting], [pack(Note(Kind.HELLO, offset=99))],
        [greeting, pack(Note(Kind.READ, KEY, 5))], [greeting, pack(Note(Kind.READ, KEY, 0, number=7))],
        [greeting, pack(Note(Kind.CHUNK, KEY, 0, 5, data=(b"12345",)))],
        [greeting, [*pack(Note(Kind.PIECE, KEY, 3, 5, data=(b"12345",)))]],
        [greeting, [read[0], b"\xff\xfe"]], [greeting, [read[0], b"a", b"b"]],
        [greeting, *[read] * (serving_module.MAX_UNDER_WAY + 1)],
        [greeting, pack(Note(Kind.BEGIN, (9, 9), 0, 10))],
        [greeting, pack(Note(Kind.BEGIN, (9, 8), 0, 100)), pack(Note(Kind.PIECE, (9, 8), 3, 100, data=(b"1",)))],
    ]  # fmt: skip
    for messages in odd:
        connection = connect(there.url, SECURITY)
        for message in messages:
            connection.send(message)

        def closed(connection: Any = connection) -> bool:
            connection.receive()
            return bool(connection.is_closed)

        until(closed, f"the end after {messages[-1]!r:.100}")
        connection.close(0)
    (line,) = (text for text in caplog.messages if "is closed" in text)  # the others are counted
    assert line.startswith("a connection of a store at this machine is closed: ")
    assert here.fetch(KEY, total, there) is None
    assert here.content() == content


@pytest.mark.parametrize("shortcut", [True, False])
def test_who_holds_all_connections_and_asks_nothing_makes_room(
    host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, shortcut: bool
) -> None:
    monkeypatch.setattr(serving_module, "_IDLE", 0.05)
    monkeypatch.setattr(ListenerState, "has_room", lambda self, now, more=1: self.connections + more <= 12)
    there = host(shortcut=shortcut)
    content, _ = put(there, 5000)
    friend = RemoteStore(there.url, SECURITY, patience=patience(2.0), shortcut=shortcut)
    idle = []
    try:
        for _ in range(16):
            connection = connect(there.url, SECURITY, patience(2.0), shortcut=shortcut, max_message_bytes=CHUNK)
            idle.append(connection)
            connection.send(pack(Note(Kind.HELLO, offset=VERSION)))
            until(lambda: there.transfer._listener.state.connections <= 8)
            assert bytes(friend.get(KEY).buffers[0]) == content
        until(lambda: [connection.receive() for connection in idle] and idle[0].is_closed)
        assert not idle[-1].is_closed
    finally:
        friend.close()
        for connection in idle:
            connection.close(0)


def test_messages_are_checked_for_who_says_them() -> None:
    chance = random.Random(3)
    valid = [pack(Note(kind, KEY, 0, 100, data=(b"x",))) for kind in Kind]
    understood = 0
    for _ in range(3000):
        frames = [bytearray(frame) for frame in chance.choice(valid)]
        for _ in range(chance.randrange(3)):
            frame = chance.choice(frames)
            if frame:
                frame[chance.randrange(len(frame))] = chance.randrange(256)
        for asking in (True, False):
            try:
                unpack([bytes(frame) for frame in frames], asking=asking)
                understood += 1
            except ProtocolError:
                pass
    assert understood > 100


class Peers:
    """Scripted peers of a `Serving`."""

    def __init__(self, directory: str, **options: Any) -> None:
        self.sent: list[tuple[int, Note]] = []
        self.reports: list[Result] = []
        self.serving = Serving(
            directory, options.get("on_demand", False), self._send, self.reports.append, lambda key: None
        )
        self.reads: dict[int, int] = {}

    def _send(self, number: int, frames: list[bytes | memoryview]) -> None:
        self.sent.append((number, unpack(frames, asking=False)))

    def join(self, *numbers: int) -> None:
        for number in numbers:
            self.serving.said(number, pack(Note(Kind.HELLO, offset=VERSION, text=f"tcp://h:{number}")), 0.0)

    def read(self, number: int, chunk: int, **more: Any) -> str:
        """Ask for a chunk; "chunk", or where it is."""
        answered = self.reads.get(number, 0)
        self.reads[number] = answered + 1
        note = Note(Kind.READ, KEY, chunk * CHUNK, number=answered, **more)
        self.serving.begin_turn()
        self.serving.said(number, pack(note), 0.0)
        to, answer = self.sent.pop()
        assert to == number
        return answer.text if answer.kind is Kind.ELSEWHERE else answer.kind.name.lower()


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    (tmp_path / "free").mkdir()
    made = Peers(str(tmp_path))
    write(str(tmp_path), KEY, b"x" * 20 * CHUNK)
    yield made
    made.serving.close()


def test_who_says_that_answers_have_come_which_were_not_sent_is_not_believed(peers: Peers) -> None:
    """It would have thousands of chunks made at once, all of which wait here for it to read them."""
    peers.join(1)
    assert peers.read(1, 0) == "chunk"
    peers.serving.begin_turn()
    for number in (0, 1):
        peers.serving.said(1, pack(Note(Kind.READ, KEY, CHUNK, number=number)), 0.0)
    with pytest.raises(ProtocolError, match="has 2 answers of 1"):
        peers.serving.said(1, pack(Note(Kind.READ, KEY, CHUNK, number=2)), 0.0)


class Unread(Peers):
    """Peers that read nothing but what they are told to."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.unsent: Counter[int] = Counter()
        self.serving = Serving(
            directory, False, self._send, self.reports.append, lambda key: None, self.unsent.__getitem__
        )

    def _send(self, number: int, frames: list[bytes | memoryview]) -> None:
        super()._send(number, frames)
        self.unsent[number] += sum(map(len, frames[1:]))

    def ask(self, number: int, now: float = 0.0, times: int = MAX_UNDER_WAY) -> None:
        for _ in range(times):
            self.serving.said(number, pack(Note(Kind.READ, KEY, 0, flags=REFERRED)), now)

    def chunks(self, number: int) -> int:
        return sum(to == number and note.kind is Kind.CHUNK for to, note in self.sent)


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Unread]:
    (tmp_path / "free").mkdir()
    made = Unread(str(tmp_path))
    write(str(tmp_path), KEY, b"x" * CHUNK)
    yield made
    made.serving.close()


def test_all_who_read_nothing_have_few_chunks_together(unread: Unread) -> None:
    """Each connection took 64 MB for 3.6 kB."""
    crowd = range(1, 101)
    unread.join(*crowd)
    for number in crowd:
        unread.ask(number)
    assert sum(unread.unsent.values()) <= 2 * MOST_UNREAD
    unread.join(101)
    unread.ask(101)
    assert unread.chunks(101) == 1, "who has nothing unread is served all the same"
    unread.unsent[101] = 0
    unread.serving.tick(0.2)
    assert unread.chunks(101) == 2
    assert unread.serving.tick(LONGEST_UNREAD - 1) == []
    assert Note(Kind.WAIT, KEY) in [note for to, note in unread.sent if to == 101], "it is to be patient"
    unread.unsent[101] = 0
    overdue = dict(unread.serving.tick(LONGEST_UNREAD + 0.1))
    assert overdue.keys() == set(crowd)
    assert overdue[1] == "it has read nothing for 10 s, while 67 MB wait for it"
    for number in crowd:
        unread.serving.gone(number)
    unread.serving.tick(LONGEST_UNREAD + 0.3)
    assert unread.chunks(101) == MAX_UNDER_WAY
    unread.unsent[101] = 0
    unread.serving.tick(LONGEST_UNREAD + 10)
    assert unread.serving.is_idle


def test_a_peer_has_one_object_half_put(peers: Peers, tmp_path: Path) -> None:
    """Each took a descriptor for five minutes."""
    peers.join(1)
    for number in range(100):
        peers.serving.said(1, pack(Note(Kind.BEGIN, (8, number), 0, 5000)), 0.0)
    assert [name.split(".")[1] for name in os.listdir(tmp_path) if name.startswith(".")] == [file_name((8, 99))]
    peers.serving.said(1, pack(Note(Kind.PIECE, (8, 98), 0, 5000, data=[b"x"])), 0.0)
    assert peers.sent[-1][1].kind is Kind.REFUSED


def test_few_half_puts_are_kept_for_peers_that_are_gone_and_not_for_long(peers: Peers, tmp_path: Path) -> None:
    def half() -> int:
        return sum(name.startswith(".") for name in os.listdir(tmp_path))

    numbers = range(1, 101)
    peers.join(*numbers)
    for number in numbers:
        peers.serving.said(number, pack(Note(Kind.BEGIN, (8, number), 0, 5000)), 0.0)
        peers.serving.said(number, pack(Note(Kind.PIECE, (8, number), 0, 5000, data=[b"x" * 10])), 0.0)
    assert half() == 100
    for number in numbers:
        peers.serving.gone(number)
    assert 0 < half() < 50
    peers.join(200)
    for number, taken in ((100, 10), (1, 0)):
        peers.serving.said(200, pack(Note(Kind.BEGIN, (8, number), 0, 5000)), 1.0)
        assert peers.sent[-1][1].offset == taken, "the last ones are kept"
    peers.serving.tick(40.0)
    assert half() == 1, "that of who is there"


def test_who_may_go_is_idle_and_of_the_host_that_most_peers_are_of(peers: Peers) -> None:
    serving = peers.serving
    serving._host_of = lambda number: "one" if number == 14 else "many"
    for at, number in enumerate((10, 14, 11, 12, 13)):
        serving.said(number, pack(Note(Kind.HELLO, offset=VERSION)), float(at))
    serving.said(10, pack(Note(Kind.READ, KEY)), 9.0)
    assert serving.most_idle(9.0) == 11
    for number in (10, 11, 12, 13):
        serving.gone(number)
    assert serving.most_idle(9.0) == 14
    assert serving.most_idle(1.5) is None, "it has just said something"
    for number in range(15, 32):
        serving.said(number, pack(Note(Kind.HELLO, offset=VERSION)), 9.0)
    assert serving.most_idle(9.0) == 15, "that host has many"


def test_an_address_is_short(peers: Peers) -> None:
    with pytest.raises(ProtocolError, match="an address of 300 characters"):
        peers.serving.said(1, pack(Note(Kind.HELLO, offset=VERSION, text="x" * 300)), 0.0)


def test_who_reads_one_chunk_often_is_one_holder_of_it(peers: Peers) -> None:
    """All that it had read were gone through for each READ."""
    peers.join(1, 2)
    for _ in range(100):
        assert peers.read(1, 19) == "chunk"
    (spread,) = peers.serving._spreading._spreads.values()
    assert spread.holders == {19: {1: None}}


def test_a_chunk_is_sent_once_and_then_a_holder_named(peers: Peers) -> None:
    peers.join(1, 2, 3)
    assert peers.read(1, 0) == "chunk"
    assert peers.read(2, 0) == "tcp://h:1"
    assert peers.read(2, 1) == "chunk"
    assert peers.read(1, 1) == "tcp://h:2"
    assert peers.read(3, 1) == "tcp://h:2"
    assert peers.read(1, 0) == "chunk", "its own connection broke, perhaps"
    assert peers.read(3, 0, text="tcp://h:1") == "chunk", "that one is not to be named"
    assert peers.read(2, 0, text="tcp://h:3", flags=2) == "tcp://h:3", "no other is to be named"
    assert peers.read(2, 0, flags=1) == "chunk", "somebody named this store"
    peers.serving.gone(2)
    assert peers.read(3, 1) == "chunk"


def test_who_has_all_is_named_until_it_was_asked_for_more_than_the_source(peers: Peers) -> None:
    peers.join(1, 2, 3)
    for chunk in range(20):
        assert peers.read(1, chunk) == "chunk"
    peers.serving.said(1, pack(Note(Kind.DONE, KEY)), 0.0)
    assert [peers.read(2, chunk) for chunk in range(20)] == ["tcp://h:1"] * 20
    peers.serving.said(2, pack(Note(Kind.DONE, KEY)), 0.0)
    third = [peers.read(3, chunk) for chunk in range(20)]
    assert third.count("tcp://h:2") >= 19, "nobody has asked it so far"
    peers.join(4)
    fourth = [peers.read(4, chunk) for chunk in range(20)]
    assert fourth.count("chunk") >= 5, "the source does its share"


def test_a_small_object_is_not_spread(peers: Peers, tmp_path: Path) -> None:
    free(str(tmp_path), KEY)
    write(str(tmp_path), KEY, b"x" * 4 * CHUNK)
    peers.join(1, 2)
    assert [peers.read(number, 0) for number in (1, 2)] == ["chunk", "chunk"]


@pytest.mark.parametrize("remove", [lambda path: remove_client(path, 8), lambda path: remove_older(path, 1 << 62)])
def test_half_a_put_keeps_no_memory_when_its_file_was_removed_with_its_client(
    peers: Peers, tmp_path: Path, remove: Callable[[str], Any]
) -> None:
    peers.join(1)
    peers.serving.said(1, pack(Note(Kind.BEGIN, (8, 1), 0, 5000)), 0.0)
    peers.serving.tick(10.0)
    assert not peers.serving.is_idle, "who put it may come back"
    remove(str(tmp_path))
    peers.serving.tick(10.0)
    assert peers.serving.is_idle


# ---- a client without a store of its own -----------------------------------------------------------------------------
@pytest.fixture
def remote(host: Callable[..., Host]) -> Iterator[tuple[RemoteStore, Host]]:
    there = host()
    made = RemoteStore(there.url, SECURITY, patience=patience(PATIENCE))
    yield made, there
    made.close()


def test_a_store_that_is_not_there_is_not_told_of_as_a_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    store = RemoteStore(address, SECURITY, patience=0.2)
    with pytest.raises(TransferFailed, match=f"nothing listens at {address}; its agent has ended, or a firewall"):
        store.get(KEY)


@pytest.mark.parametrize("sizes", [[], [0], [5], [CHUNK, 3, 2 * CHUNK + 5], [7] * 2000])
def test_a_client_puts_and_gets(remote: tuple[RemoteStore, Host], sizes: list[int]) -> None:
    store, there = remote
    parts = [os.urandom(size) for size in sizes]
    total = store.put(KEY, b"pickle", [memoryview(part) for part in parts])
    assert there.results() == [("put", KEY, total, None)]
    for found in (open_object(there.store, KEY), store.get(KEY)):
        assert (found.size, bytes(found.inband)) == (total, b"pickle")
        assert [bytes(buffer) for buffer in found.buffers] == parts
    if sizes and sizes[0]:
        found.buffers[0][:1] = b"!"
        assert bytes(open_object(there.store, KEY).buffers[0]) == parts[0]


def test_a_client_has_a_long_way_kept_full(remote: tuple[RemoteStore, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 MB all goes before an answer is waited for, and all but what says how much it is comes at one's asking."""
    store, _ = remote
    store.put((7, 99), b"there is a connection")
    monkeypatch.setattr(window_module, "MOST", MOST)
    store._window.size = MOST  # a long way has brought that about
    sent: list[int] = []
    taken = store._taken
    monkeypatch.setattr(store, "_taken", lambda key, most: sent.append(most) or taken(key, most))  # type: ignore[func-returns-value]
    size = store.put(KEY, b"pickle", [memoryview(bytes(20 * CHUNK))])
    assert sent[:2] == [size, size]
    said: list[Kind] = []
    say, following = store._say, store._next
    monkeypatch.setattr(store, "_say", lambda note: said.append(note.kind) or say(note))  # type: ignore[func-returns-value]
    monkeypatch.setattr(store, "_next", lambda key: said.append(Kind.WAIT) or following(key))  # type: ignore[func-returns-value]
    assert store.get(KEY).size == size
    assert said[:22] == [Kind.READ, Kind.WAIT, *[Kind.READ] * 20]


def test_a_client_learns_what_is_missing_or_full_or_taken(
    remote: tuple[RemoteStore, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, there = remote
    with pytest.raises(ObjectMissing, match="has no 7-1"):
        store.get(KEY)
    store.put(KEY, b"one")
    with pytest.raises(TransferFailed, match="another object"):
        store.put(KEY, b"two")

    def full(path: str, key: Key, size: int) -> None:
        raise StoreFull(path, size, 5, total=1000)

    monkeypatch.setattr(puts_module, "Draft", full)
    with pytest.raises(StoreFull) as caught:
        store.put((7, 2), b"x" * 1000)
    assert (caught.value.wanted, caught.value.free, caught.value.total) == (1064, 5, 1000)
    assert caught.value.is_for_good
    assert there.store in caught.value.path


def test_a_client_that_asks_again_whether_there_is_room_need_not_connect_again(
    remote: tuple[RemoteStore, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, there = remote

    def full(path: str, key: Key, size: int) -> None:
        raise StoreFull(path, size, 5)

    store.put((7, 1), b"there is a connection")
    before = store._connection
    with monkeypatch.context() as patched:
        patched.setattr(puts_module, "Draft", full)
        for _ in range(3):
            with pytest.raises(StoreFull):
                store.put((7, 2), b"x" * 1000)
    store.put((7, 2), b"x" * 1000)
    assert store._connection is before
    assert bytes(open_object(there.store, (7, 2)).inband) == b"x" * 1000


@pytest.mark.parametrize("most", [0, 1000])
def test_a_client_learns_what_a_store_may_write_to_a_file(
    remote: tuple[RemoteStore, Host], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    store, _ = remote

    def limited(path: str, key: Key, size: int) -> None:
        raise StoreFull(path, size, 5, largest=most, total=1 << 30)

    monkeypatch.setattr(puts_module, "Draft", limited)
    with pytest.raises(StoreFull, match=rf"may write no file of more than {most:,} \(`ulimit -f`\)") as caught:
        store.put(KEY, b"x" * 1000)
    assert caught.value.largest == most
    assert caught.value.is_for_good


def test_a_client_waits_for_what_is_made_ready(host: Callable[..., Host]) -> None:
    there = host(on_demand=True)
    store = RemoteStore(there.url, SECURITY, patience=patience(PATIENCE))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(store.get, KEY)
        assert there.results() == [("wanted", KEY, 0, None)]
        content, _ = put(there, 3 * CHUNK)
        there.transfer.available(KEY)
        assert bytes(asked.result(20).buffers[0]) == content
    store.close()


def test_a_client_goes_on_where_it_was_when_a_connection_is_lost(
    host: Callable[..., Host], proxy: Callable[[str, int], Proxy]
) -> None:
    there = host(shortcut=False)
    content, total = put(there, 30 * CHUNK)
    between = proxy(there.url, 0)
    between.limits = [None, 12 * CHUNK, None, 12 * CHUNK, None]
    store = RemoteStore(between.url, SECURITY, patience=patience(PATIENCE), shortcut=False)
    assert bytes(store.get(KEY).buffers[0]) == content
    store.close()
    assert there.transfer.served_bytes <= total + 2 * 9 * CHUNK


def test_on_a_narrow_way_a_chunk_may_take_longer_than_a_silent_store_is_waited_for(
    host: Callable[..., Host], proxy: Callable[[str, int], Proxy]
) -> None:
    there, here = host(shortcut=False), host(shortcut=False)
    content, total = put(there, 2 * CHUNK)
    between = proxy(there.url, 0)
    between.limits = [None]
    between.pace = CHUNK / (2 * patience(PATIENCE))
    assert here.fetch(KEY, total, between.url) is None
    assert here.content() == content
    store = RemoteStore(between.url, SECURITY, patience=patience(PATIENCE), shortcut=False)
    assert bytes(store.get(KEY).buffers[0]) == content
    assert store.put((7, 2), b"pickle", [memoryview(content)]) == total
    assert there.content((7, 2)) == content
    store.close()


def test_a_put_of_what_is_on_disk_already_is_done_at_once(host: Callable[..., Host], tmp_path: Path) -> None:
    there = host()
    os.symlink(tmp_path, os.path.join(there.store, DISK))
    store = RemoteStore(there.url, SECURITY, patience=patience(PATIENCE))
    parts, size = parts_of(KEY, b"pickle", [])
    tag = tag_of(parts[0])
    os.makedirs(tmp_path / "free", exist_ok=True)
    (tmp_path / file_name(KEY)).write_bytes(MAGIC + bytes(parts[0])[8:] + bytes(parts[1]))
    store._insist(lambda: store._say(Note(Kind.BEGIN, KEY, 0, size, tag)))
    assert store._next(KEY).offset == size
    store.close()


def test_a_put_goes_on_where_it_was(
    host: Callable[..., Host], proxy: Callable[[str, int], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = host(shortcut=False)
    between = proxy(there.url, 0)
    between.upwards = True
    between.limits = [None, 9 * CHUNK, None, 9 * CHUNK, None]
    store = RemoteStore(between.url, SECURITY, patience=patience(PATIENCE), shortcut=False)
    content = random.Random(1).randbytes(20 * CHUNK)
    said: list[Note] = []
    say = store._say
    monkeypatch.setattr(store, "_say", lambda note: (said.append(note), say(note)))
    store.put(KEY, b"pickle", [memoryview(content)])
    assert there.content() == content
    assert [note.kind for note in said].count(Kind.BEGIN) == 3
    assert [note.kind for note in said].count(Kind.PIECE) <= 20 + 2 * 10
    assert there.results()[0][:2] == ("put", KEY)
    store.close()


def test_a_client_does_not_wait_for_ever(host: Callable[..., Host], proxy: Callable[[str, int], Proxy]) -> None:
    there = host(shortcut=False)
    put(there, 30 * CHUNK)
    between = proxy(there.url, 0)
    between.limits = [None, 5 * CHUNK + 1]
    for address, reason in ((between.url, "no answer for "), (nobody(), "nothing listens")):
        store = RemoteStore(address, SECURITY, patience=patience(PATIENCE), shortcut=False)
        with pytest.raises(TransferFailed, match=reason):
            store.get(KEY)
        store.close()


def test_half_a_put_is_removed_in_the_end(host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puts_module, "_KEEP", 0.2)
    there = host()
    connection = connect(there.url, SECURITY)
    connection.send(pack(Note(Kind.HELLO, offset=VERSION)))
    connection.send(pack(Note(Kind.BEGIN, KEY, 0, 5000)))
    until(there.files)
    until(lambda: not there.files())
    connection.close(0)


def test_threads_take_turns(remote: tuple[RemoteStore, Host]) -> None:
    store, _ = remote

    def work(number: int) -> bytes:
        store.put((1, number), b"%d" % number, [memoryview(b"x" * CHUNK)])
        return bytes(store.get((1, number)).inband)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [b"%d" % number for number in range(16)]
    assert threading.active_count() < 50


def test_a_client_hangs_up_where_a_store_is_gone(remote: tuple[RemoteStore, Host]) -> None:
    """Schedulers and their stores may be many in a client's life; each connection takes descriptors and threads."""
    store, there = remote
    store.put(KEY, b"one")
    store.tidy()
    assert store._connection is not None
    there.transfer.close()

    def is_hung_up() -> bool:
        store.tidy()
        return store._connection is None

    until(is_hung_up)
