"""A journal is sent along: what counts is on both disks or is known to be on one, and the newer copy stays."""

import errno
import os
import shutil
from collections import deque
from itertools import pairwise
from random import Random

import pytest
from support import until

from scaler.common.effects import Log
from scaler.errors import ScalerError
from scaler.journal import records
from scaler.journal.copy_on_disk import CopyOnDisk
from scaler.journal.directory import Directory, Locked
from scaler.journal.history import (
    FIRST,
    MOST_TURNS,
    NOTHING,
    Copy,
    History,
    Relation,
    Turn,
    begun,
    from_bytes,
    is_newer,
    relation,
    to_bytes,
)  # fmt: skip
from scaler.journal.journal import Journal
from scaler.journal.layout import Layout, Place
from scaler.journal.records import Checker, Damaged, Record, segment_header, size_of
from scaler.protocol.messages import (
    Copying,
    JournalSlice,
    JournalStart,
    JournalState,
    JournalSynced,
    PartnerReport,
    u32,
    u64,
)
from scaler.scheduler.copies import copied_journal
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies import follower as follower_module
from scaler.scheduler.copies.copied_journal import CopiedJournal
from scaler.scheduler.copies.copies import ANSWER, Copies, Route
from scaler.scheduler.copies.follower import Follower
from scaler.scheduler.copies.sending import Phase, Sending
from scaler.scheduler.copies.taking import Taking
from scaler.scheduler.pair_journal import PairJournal
from scaler.scheduler.succession import Succession


# ---- who is newer ----------------------------------------------------------------------------------------------------
def turn(number: int, lot: int, segment: int, offset: int) -> Turn:
    return Turn(number, lot, Place(segment, offset))


ONE, TWO, OTHER_TWO = turn(1, 11, 1, 24), turn(2, 22, 1, 90), turn(2, 33, 1, 70)


@pytest.mark.parametrize(
    ("mine", "theirs", "found", "common"),
    [
        (((ONE,), (1, 90)), ((ONE,), (1, 90)), Relation.SAME, (1, 90)),
        (((ONE,), (2, 30)), ((ONE,), (1, 90)), Relation.EXTENDS, (1, 90)),
        (((ONE, TWO), (1, 99)), ((ONE,), (1, 80)), Relation.EXTENDS, (1, 80)),
        (((ONE, TWO), (1, 90)), ((ONE,), (1, 90)), Relation.EXTENDS, (1, 90)),
        (((ONE, TWO), (1, 99)), ((ONE,), (1, 95)), Relation.FORKED, (1, 90)),
        (((ONE, TWO), (1, 99)), ((ONE, OTHER_TWO), (1, 99)), Relation.FORKED, (1, 70)),
        (((ONE,), (1, 90)), ((TWO,), (1, 90)), Relation.STRANGE, NOTHING),
        (((ONE,), (1, 90)), ((), NOTHING), Relation.EXTENDS, NOTHING),
        (((ONE,), FIRST), ((), NOTHING), Relation.SAME, NOTHING),
        (((turn(1, 5, 1, 24),), FIRST), ((ONE,), (1, 90)), Relation.IS_EXTENDED, NOTHING),
    ],
)
def test_two_copies_are_alike_up_to_where_their_turns_part(mine, theirs, found, common):
    mine, theirs = (Copy(turns, Place(*end)) for turns, end in (mine, theirs))
    assert relation(mine, theirs) == (found, common)
    mirrored = {Relation.EXTENDS: Relation.IS_EXTENDED, Relation.IS_EXTENDED: Relation.EXTENDS}
    assert relation(theirs, mine) == (mirrored.get(found, found), common)


def test_of_two_that_were_both_written_on_the_one_of_more_turns_is_newer():
    three = turn(3, 44, 1, 95)
    mine, theirs = Copy((ONE, TWO, three), Place(1, 99)), Copy((ONE, OTHER_TWO), Place(7, 99))
    assert (is_newer(mine, theirs), is_newer(theirs, mine)) == (True, False)
    same_turns = Copy((ONE, TWO), Place(1, 99))
    assert (is_newer(same_turns, theirs), is_newer(theirs, same_turns)) == (False, False)


def test_of_two_that_were_both_written_on_the_one_that_went_on_alone_is_newer():
    """Whoever came to lead, and was gone before enough agents had heard of it, has acknowledged nothing."""
    stayed, led = Copy((ONE,), Place(1, 200)), Copy((ONE, TWO), Place(1, 99))
    assert is_newer(stayed, led, alone=True, they_alone=False)
    assert not is_newer(led, stayed, alone=False, they_alone=True)
    assert is_newer(led, stayed, alone=True, they_alone=True)


def test_one_that_comes_to_lead_goes_on_alone_when_enough_agents_are_heard():
    made = Sending(Copy((ONE, TWO), Place(1, 99)), {1: 99}, "b", alone=False)
    made.written(1, 150)
    made.tick(1.0, may_be_alone=False)
    assert (made.counted, made.trouble) == ((1, 99), None)
    made.tick(1.1, may_be_alone=True)
    assert (made.counted, made.alone) == ((1, 150), True)
    assert ev.Keep("b", alone=True) in made.take()


def test_a_history_is_read_as_it_was_written_and_anything_else_is_none():
    history = History()
    for number in range(MOST_TURNS + 3):
        history = begun(history, Place(number + 1, 50), number)
    assert (len(history.turns), history.turns[-1].number) == (MOST_TURNS, MOST_TURNS + 3)
    assert from_bytes(to_bytes(history)) == history
    lost = begun(history, Place(60, 50), 999)
    assert [each.start.segment for each in lost.turns[-2:]] == [60, 60]
    assert lost.turns[-1].number == MOST_TURNS + 4
    shared = History(history.turns, is_shared=True)
    assert from_bytes(to_bytes(shared)) == shared
    assert begun(shared, Place(60, 50), 1).is_shared
    assert from_bytes(to_bytes(history).replace(b', "shared": false', b"")) == history  # as it was written before
    for data in (b"", b"{}", b"[]", b"\xff", b'{"v":1,"turns":[[1,2]]}', to_bytes(history).replace(b"false", b"{")):
        assert from_bytes(data) is None


def test_records_that_come_in_pieces_are_checked_whatever_the_pieces_are():
    some = [b"".join(records.pack(Record(1, n, (b"x" * (9 * n),), 1))) for n in range(5)]
    data = b"".join(some)
    for step in (1, 3, 7, 30, 1000):
        checker, good = Checker(), 0
        for at in range(0, len(data), step):
            whole = checker.take(data[at : at + step])
            good = at + whole if whole else good
        assert (good, checker.is_between) == (len(data), True)
        for bit in range(0, 8 * len(data), 11):
            bad = bytearray(data)
            bad[bit // 8] ^= 1 << bit % 8
            checker = Checker()
            try:
                for at in range(0, len(bad), step):
                    checker.take(bad[at : at + step])
            except Damaged:
                continue
            assert not checker.is_between  # a length that is wrong: the rest of it is awaited


# ---- both of a pair, with disks that are killed ----------------------------------------------------------------------
class Leader:
    """The one that writes, in a directory, with what decides about sending."""

    def __init__(self, path, chance: Random, now: float) -> None:
        self.directory = Directory(path)
        self.directory.lock()
        _, damage = self.directory.look()
        if damage is not None:
            self.directory.set_aside(damage)
        self.ids = ids_in(path)
        lengths = {n: self.directory.segment(n).stat().st_size for n in self.directory.segments()}
        self.layout = Layout(most=700)
        if lengths:
            self.layout.segment, self.layout.offset = max(lengths), lengths[max(lengths)]
        end = max(Place(self.layout.segment, self.layout.offset), self.directory.history().floor)
        self.layout.segment, self.layout.offset = end
        self.directory.write_history(begun(self.directory.history(), end, chance.getrandbits(63)))
        history = self.directory.history()
        self.sending = Sending(Copy(history.turns, end), lengths, alone=history.alone)
        self.unacknowledged: deque[tuple[Place, int]] = deque()
        self.acknowledged = set(self.ids)
        self.may_be_alone = True
        self.sent: deque = deque()

    def write(self, number: int, size: int) -> None:
        frames = (b"%d" % number, b"x" * size)
        place = self.layout.take(frames)
        path = self.directory.segment(place.segment)
        if not path.exists():
            path.write_bytes(segment_header(place.segment))
        with path.open("r+b") as file:
            file.seek(place.offset)
            file.write(b"".join(records.pack(Record(1, number, frames, 1))))
        end = Place(place.segment, place.offset + size_of(frames))
        self.unacknowledged.append((end, number))
        self.sending.written(*end)

    def reclaim(self) -> None:
        """Give the first segment back, as journals do: what is in it is written again."""
        first = self.directory.segments()[:-1][:1]
        if first and self.sending.counted == self.sending._written:
            for number in ids_in(self.directory.path, first[0]):
                self.write(number, 10)
            self.sending.remove(first[0])

    def attend(self, now: float) -> None:
        self.sending.tick(now, self.may_be_alone)
        for wish in self.sending.take():
            if isinstance(wish, ev.Send):
                data = self.directory.segment(wish.message.segment).read_bytes() if wish.size else b""
                wish.message.bodies = [data[wish.message.offset :][: wish.size]]
                assert len(wish.message.bodies[0]) == wish.size
                self.sent.append(wish.message)
            elif isinstance(wish, ev.Say):
                self.sent.append(wish.message)
            elif isinstance(wish, ev.Mark):
                self.directory.mark(wish.number)
            elif isinstance(wish, ev.Keep):
                said = self.directory.history()
                history = History(said.turns, said.floor, wish.partner, wish.alone, is_shared=wish.is_shared)
                self.directory.write_history(history)
            elif isinstance(wish, ev.Unlink):
                self.directory.remove(wish.segment)
            assert not isinstance(wish, (ev.Reject, ev.Yield)), wish
        while self.unacknowledged and self.unacknowledged[0][0] <= self.sending.counted:
            self.acknowledged.add(self.unacknowledged.popleft()[1])

    def end(self) -> None:
        self.directory.unlock()


class Standby:
    """The one that follows, with what decides, and a disk that does one thing at a time."""

    def __init__(self, path) -> None:
        self.taking = Taking()
        self.disk = CopyOnDisk(path)
        self.work: deque = deque()
        self.stream = 0
        self.sent: deque = deque()

    def attend(self, now: float) -> None:
        self.taking.tick(now)
        for wish in self.taking.take():
            assert not isinstance(wish, ev.Reject), wish
            if isinstance(wish, ev.Say):
                self.sent.append(wish.message)
            else:
                self.stream = wish.stream if isinstance(wish, ev.Look) else self.stream
                self.work.append((self.stream, wish))

    def work_once(self, now: float) -> None:
        if not self.work:
            return
        stream, work = self.work.popleft()
        if isinstance(work, ev.Look):
            self.taking.looked(stream, self.disk.look(stream))
        elif stream != self.stream:
            return
        elif isinstance(work, ev.BeginWhole):
            self.disk.begin_whole(work.turns, "a")
        elif isinstance(work, ev.BeginBehind):
            self.disk.begin_behind(work.place, work.turns, "a")
        else:
            self.disk.check(work.place, work.data, work.complete)
            if work.data:
                self.disk.write(work.place, work.data)
            end = Place(work.place.segment, work.place.offset + len(work.data))
            self.disk.sync()
            if work.complete:
                self.disk.complete(end)
            self.disk.remove(list(work.removed))
            self.taking.synced(stream, end, len(work.data), work.complete, now)
        self.attend(now)

    def end(self) -> None:
        self.disk.close()


def ids_in(path, segment: int | None = None) -> set[int]:
    found: set[int] = set()
    if path.exists():
        Directory(path).replay(
            lambda record, place: found.add(record.owner) if segment in (None, place.segment) else None
        )
    return found


def bytes_in(path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.log") if each.stat().st_size > 24}


class World:
    """Two directories; one of a pair leads, and what happens is drawn by lot."""

    def __init__(self, path, seed: int, monkeypatch) -> None:
        monkeypatch.setattr(ev, "SLICE", 300)
        monkeypatch.setattr(ev, "WINDOW", 900)
        monkeypatch.setattr(os, "fsync", lambda file: None)
        monkeypatch.setattr(os, "fdatasync", lambda file: None)
        self.chance = Random(seed)
        self.paths = [path / "a", path / "b"]
        self.at = 0
        self.now = 100.0
        self.number = 0
        self.leader = Leader(self.paths[0], self.chance, self.now)
        self.standby: Standby | None = Standby(self.paths[1])
        self.is_connected = False
        #: what happened that tests want to have happened
        self.seen: set[str] = set()

    def step(self) -> None:
        chance = self.chance
        action = chance.choices(
            ["write", "deliver", "answer", "disk", "time", "connect", "cut", "kill", "succeed", "isolate", "reclaim"],
            [30, 40, 40, 40, 6, 6, 0.8, 0.6, 0.5, 0.3, 1.5],
        )[0]
        getattr(self, action)()
        self.leader.attend(self.now)
        if self.standby is not None:
            self.standby.attend(self.now)
        if self.leader.sending.phase is Phase.IN_STEP:
            self.seen.add("in step")

    def write(self) -> None:
        self.number += 1
        self.leader.write(self.number, self.chance.choice((3, 50, 200)))

    def reclaim(self) -> None:
        self.leader.reclaim()

    def deliver(self) -> None:
        if self.is_connected and self.leader.sent:
            self.standby.taking.hear(self.leader.sent.popleft(), self.now)

    def answer(self) -> None:
        if self.is_connected and self.standby.sent:
            self.leader.sending.hear(self.standby.sent.popleft(), self.now)

    def disk(self) -> None:
        if self.standby is not None:
            self.standby.work_once(self.now)

    def time(self) -> None:
        self.now += self.chance.choice((0.01, 0.3, 1.0, 3.0))

    def connect(self) -> None:
        if self.standby is None:
            self.standby = Standby(self.paths[1 - self.at])
        if not self.is_connected or self.leader.sending.phase is Phase.APART:  # as one that fell silent is asked again
            self.is_connected = True
            self.leader.sending.meet(self.chance.getrandbits(60) | 1, "b")
            self.leader.sent.clear()
            self.standby.sent.clear()

    def cut(self) -> None:
        self.is_connected = False
        self.leader.sending.part(for_good=False)
        self.leader.sent.clear()
        if self.standby is not None:
            self.standby.taking.part()
            self.standby.sent.clear()

    def kill(self) -> None:
        """The standby is killed; it comes back with what is on its disk."""
        if self.standby is not None:
            self.cut()
            self.standby.end()
            self.standby = None
            self.seen.add("killed")

    def isolate(self) -> None:
        """Nobody hears the one that leads any more, and it does not know it; in the end the other one leads."""
        self.cut()
        self.leader.may_be_alone = False
        for _ in range(self.chance.randrange(20)):
            self.chance.choice((self.write, self.time, self.disk))()
            self.leader.attend(self.now)
        self.succeed()

    def succeed(self) -> None:
        """The one that leads is gone, and the other one takes its place."""
        if self.standby is None or not Directory(self.paths[1 - self.at]).history().turns:
            self.leader.may_be_alone = True
            return
        self.cut()
        in_step = self.standby.taking.is_in_step(self.now)
        self.standby.end()
        promised = self.leader.acknowledged
        self.leader.end()
        self.at = 1 - self.at
        self.leader = Leader(self.paths[self.at], self.chance, self.now)
        self.standby = None
        if in_step:
            self.seen.add("succeeded in step")
            assert promised <= self.leader.ids
        else:
            self.seen.add("succeeded behind")

    def heal(self) -> None:
        """All is well for long enough: both have the same."""
        for _ in range(3000):
            self.connect()
            for action in (self.deliver, self.answer, self.disk):
                action()
            self.now += 0.01
            self.leader.attend(self.now)
            self.standby.attend(self.now)
            sending, is_idle = self.leader.sending, not (self.leader.sent or self.standby.work)
            if sending.is_flushed and is_idle and not sending._removed:  # which the next sign of life tells of
                break
        assert self.leader.sending.is_flushed
        assert bytes_in(self.paths[0]) == bytes_in(self.paths[1])
        assert not self.leader.unacknowledged


SEEDS = 25


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.heavy)])
def test_whatever_is_cut_killed_or_taken_over_nothing_that_counts_is_missing(tmp_path, monkeypatch, first):
    seen: set[str] = set()
    for seed in range(first, first + (SEEDS if not first else 40 * SEEDS)):
        world = World(tmp_path / str(seed), seed, monkeypatch)
        try:
            for _ in range(600):
                world.step()
            world.heal()
        except (AssertionError, ScalerError, OSError) as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} {error}") from error
        world.leader.end()
        world.standby.end()
        seen |= world.seen
    assert seen == {"in step", "killed", "succeeded in step", "succeeded behind"}


# ---- who is not trusted ----------------------------------------------------------------------------------------------
def record_bytes(number: int, size: int = 40) -> bytes:
    return b"".join(records.pack(Record(1, number, (b"x" * size,), 1)))


class Taker:
    """A standby with an empty directory that was offered a journal, and is told things."""

    def __init__(self, path) -> None:
        self.standby = Standby(path)
        self.rejections: list[str] = []
        self.say(JournalState(7, Copying.LEADS))
        self.state = self.standby.sent.pop()

    def say(self, message) -> None:
        standby = self.standby
        standby.taking.hear(message, 1.0)
        while True:
            for wish in standby.taking.take():
                if isinstance(wish, ev.Reject):
                    self.rejections.append(wish.reason)
                elif isinstance(wish, ev.Say):
                    standby.sent.append(wish.message)
                else:
                    standby.stream = 7
                    standby.work.append((7, wish))
            if not standby.work:
                return
            try:
                standby.work_once(1.0)
            except Damaged as why:
                standby.taking.damaged(7, str(why))

    def piece(self, segment: int, offset: int, data: bytes = b"", **more) -> None:
        self.say(JournalSlice(7, segment, offset, bodies=[data], **more))


@pytest.fixture
def taker(tmp_path, monkeypatch):
    monkeypatch.setattr(Standby, "attend", lambda self, now: None)
    taker = Taker(tmp_path)
    taker.say(JournalStart(7, True, turns=ev.said_of((ONE,))))
    taker.piece(3, 24, record_bytes(1), complete=True)
    taker.piece(3, 24 + len(record_bytes(1)), record_bytes(2)[:20])
    assert (taker.state.copying, taker.rejections) == (Copying.OWN, [])
    yield taker
    taker.standby.end()


NEXT = 24 + len(record_bytes(1)) + 20


@pytest.mark.parametrize(
    ("segment", "offset", "data", "more", "why"),
    [
        (3, NEXT + 1, b"x", {}, "do not follow the last ones"),
        (3, 24, b"x", {}, "do not follow the last ones"),
        (2, 24, b"x", {}, "do not follow the last ones"),
        (4, 25, b"x", {}, "do not follow the last ones"),
        (3, NEXT + 1, b"", {"complete": True}, "do not follow the last ones"),
        (3, NEXT, bytes(100), {}, "damaged: the checksum of a record is wrong"),
        (4, 24, record_bytes(3), {}, "damaged: a segment ends within a record"),
        (3, NEXT, b"", {"removed": u32([4])}, "removed that is not there"),
        (3, NEXT, bytes(1 << 20), {}, "damaged"),
    ],
)
def test_bytes_that_can_not_be_right_cost_the_session_and_leave_the_copy_as_it_was(
    taker, tmp_path, segment, offset, data, more, why
):
    taker.piece(segment, offset, data, **more)
    assert len(taker.rejections) == 1
    assert why in taker.rejections[0]
    taker.piece(3, NEXT, record_bytes(2)[20:])  # nobody listens any more
    assert len(taker.rejections) == 1
    assert ids_in(tmp_path) == {1}
    # the next session goes on from there
    taker.rejections.clear()
    taker.say(JournalState(7, Copying.LEADS))
    assert Place(taker.standby.sent[-1].segment, taker.standby.sent[-1].offset) == (3, NEXT - 20)


def test_a_whole_copy_that_ends_within_a_record_is_none(taker, tmp_path):
    taker.say(JournalState(7, Copying.LEADS))
    taker.say(JournalStart(7, True, turns=ev.said_of((TWO,))))
    taker.piece(9, 24, record_bytes(5)[:-1], complete=True)
    assert taker.rejections == ["sends a journal that is damaged: it ends within a record"]
    taker.say(JournalState(7, Copying.LEADS))
    assert ids_in(tmp_path) == {1}


def test_nothing_is_copied_behind_a_place_that_is_not_there(tmp_path):
    (tmp_path / "00000001.log").write_bytes(segment_header(1) + record_bytes(1))
    (tmp_path / "00000003.log").write_bytes(segment_header(3) + record_bytes(2))
    disk = CopyOnDisk(tmp_path)
    assert disk.look(1).copy.end == (3, 24 + len(record_bytes(2)))
    before = bytes_in(tmp_path)
    for place in (Place(1, 25 + len(record_bytes(1))), Place(2, 30)):
        with pytest.raises(ScalerError, match=r"nothing can follow byte \d+$"):
            disk.begin_behind(place, (ONE,), "a")
    disk.close()
    assert bytes_in(tmp_path) == before


def test_a_record_follows_no_hole(tmp_path):
    """The history of an empty directory says that a journal went on to the middle of a segment."""
    directory = Directory(tmp_path)
    directory.write_history(History((ONE,), Place(2, 90)))
    for count in (1, 2):
        journal = Journal(tmp_path)
        layout, damage = journal.replay(lambda record, place: None)
        assert damage is None
        place = layout.take((b"x",))
        assert place.segment == 3
        journal.append(place, records.pack(Record(1, count, (b"x",), 1)))
        journal.close()
        assert ids_in(tmp_path) == set(range(1, count + 1))


def test_what_nobody_asked_for_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Standby, "attend", lambda self, now: None)
    for said, why in [
        (JournalSlice(7, 1, 24, bodies=[b"x"]), "before it says where they belong"),
        (JournalStart(7, False, 1, 24), "from a place on that the copy here does not reach"),
        (JournalStart(7, False, 0, 0), "from a place on that the copy here does not reach"),
        (JournalState(7, Copying.OWN), "answers about its journal what nobody asked"),
    ]:
        taker = Taker(tmp_path)
        taker.say(said)
        assert why in taker.rejections[0]
        taker.say(JournalStart(7, True))
        assert len(taker.rejections) == 1
        taker.standby.end()


def test_whoever_sends_more_than_it_may_is_not_waited_for(tmp_path):
    taking = Taking()
    taking.hear(JournalState(7, Copying.LEADS), 1.0)
    taking.looked(7, Standby(tmp_path).disk.look(7))
    taking.hear(JournalStart(7, True), 1.0)
    data = bytes(ev.SLICE)
    for at in range(1 + ev.WINDOW // ev.SLICE):
        taking.hear(JournalSlice(7, 1, 24 + at * len(data), bodies=[data]), 1.0)
    assert not any(isinstance(wish, ev.Reject) for wish in taking.take())
    taking.hear(JournalSlice(7, 1, 24 + (1 + ev.WINDOW // ev.SLICE) * len(data), bodies=[data]), 1.0)
    assert "more bytes of a journal at once than it may" in taking.take()[-1].reason


def sending(written: int = 1000, **more) -> Sending:
    made = Sending(Copy((ONE,), Place(1, written)), {1: written}, **more)
    made.meet(7, "b")
    made.take()
    return made


def answer(end: int, **more) -> JournalState:
    return JournalState(7, Copying.OWN, 1, end, ev.said_of((ONE,)), segments=u64([1]), **more)


def test_a_standby_that_says_what_can_not_be_costs_itself_the_session():
    made = sending()
    made.hear(JournalSynced(7, 1, 500), 0.0)
    assert "what nobody asked" in made.take()[-1].reason
    for end in (1001, 100):
        made = sending()
        made.hear(answer(200), 0.0)
        made.hear(JournalSynced(7, 1, end), 0.0)
        assert "that it was not sent" in made.take()[-1].reason
        assert made.phase is Phase.APART


def test_what_counts_waits_for_both_disks_until_the_other_one_knows_that_it_lacks_something():
    made = sending()
    made.hear(answer(200), 0.0)
    made.hear(JournalSynced(7, 1, 1000, number=1), 0.0)
    assert made.is_in_step
    made.written(1, 1100)
    made.tick(0.0, may_be_alone=True)
    assert made.counted == (1, 1000)
    made.hear(JournalSynced(7, 1, 1100, number=2), 0.1)
    assert made.counted == (1, 1100)
    made.part(for_good=False)
    made.written(1, 1200)
    assert (made.is_silent(ev.ALONE), made.is_silent(0.1 + ev.ALONE)) == (False, True)
    made.tick(ev.ALONE, may_be_alone=True)
    assert (made.counted, made.wake) == ((1, 1100), 0.1 + ev.ALONE)
    made.tick(0.2 + ev.ALONE, may_be_alone=False)
    assert (made.counted, made.trouble, made.wake) == ((1, 1100), None, 0.2 + ev.ALONE + ev.COMING)
    made.tick(0.2 + ev.ALONE + ev.COMING, may_be_alone=False)
    assert made.counted == (1, 1100)
    assert "too few agents" in made.trouble
    assert made.wake is None, "no time changes that"
    made.tick(0.2 + ev.ALONE + ev.COMING, may_be_alone=True)
    assert (made.counted, made.trouble) == ((1, 1200), None)
    assert [wish for wish in made.take() if isinstance(wish, ev.Keep)][-1] == ev.Keep("b", alone=True)


def test_of_a_whole_copy_nothing_counts_before_it_is_complete(monkeypatch):
    monkeypatch.setattr(ev, "SLICE", 300)
    made = sending()
    made.hear(answer(1000), 0.0)
    assert made.is_in_step
    made.part(for_good=False)
    made.written(1, 1010)
    made.written(1, 2000)
    made.meet(8, "b")
    made.hear(JournalState(8, Copying.OWN), 0.2)  # with an empty directory
    made.tick(0.2, may_be_alone=False)
    made.hear(JournalSynced(8, 1, 1224, number=1), 0.3)
    assert made.counted == (1, 1000)
    made.hear(JournalSynced(8, 1, 2000, number=2, complete=True), 0.4)
    assert (made.counted, made.is_in_step) == ((1, 2000), True)


def test_a_standby_that_can_make_no_copy_says_so_once_and_keeps_its_session():
    made = sending()
    made.hear(answer(200), 0.0)
    told = []
    for stream in (7, 8, 9):
        if stream > 7:
            made.meet(stream, "b")
        made.hear(JournalState(stream, Copying.NONE, trouble="No space left on device"), 0.0)
        assert made.phase is Phase.APART
        made.hear(JournalSynced(stream, 1, 200), 0.0)  # what was under way
        wishes = made.take()
        assert not any(isinstance(wish, ev.Reject) for wish in wishes)
        told += [wish.text for wish in wishes if isinstance(wish, Log)]
    assert made.failures == 3
    assert "has not come to be in step 3 times" in told.pop()
    assert told == ["Journal: the one at b has no copy: No space left on device"]


def test_one_that_says_goodbye_is_not_waited_for():
    made = sending()
    made.hear(answer(1000), 0.0)
    assert made.is_in_step
    made.part(for_good=True)
    made.written(1, 1100)
    made.tick(0.1, may_be_alone=True)
    assert made.counted == (1, 1100)


def test_a_standby_whose_disk_is_stuck_is_not_waited_for_though_it_lives():
    made = sending()
    made.hear(answer(1000), 0.0)
    made.written(1, 1100)
    made.tick(0.0, may_be_alone=True)
    now = 0.0
    while now < ev.STALLED + ev.ALONE + 1:
        now += ev.BEAT
        made.hear(JournalSynced(7, 1, 1000, number=int(now * 10)), now)
        made.tick(now, may_be_alone=True)
    assert (made.counted, made.phase) == ((1, 1100), Phase.BEHIND)
    assert not [wish for wish in made.take() if isinstance(wish, ev.Send)][-1].message.in_step
    made.hear(JournalSynced(7, 1, 1100, number=999), now)
    assert made.is_in_step


def test_a_copy_counts_as_in_step_from_when_the_sign_of_life_was_sent_that_was_heard(tmp_path):
    taking = Taking()
    taking.hear(JournalState(7, Copying.LEADS), 1.0)
    taking.looked(7, Standby(tmp_path).disk.look(7))
    taking.hear(JournalStart(7, True), 1.0)
    taking.tick(2.0)
    taking.tick(3.0)
    number = taking.take()[-1].message.number
    taking.hear(JournalSlice(7, 1, 24, echo=number - 1, in_step=True, bodies=[b""]), 50.0)  # it was stopped meanwhile
    assert not taking.is_in_step(50.0)
    taking.hear(JournalSlice(7, 1, 24, echo=number, in_step=True, bodies=[b""]), 3.5)
    assert (taking.is_in_step(2.9 + ev.ALONE), taking.is_in_step(3.0 + ev.ALONE)) == (True, False)
    taking.hear(JournalSlice(7, 1, 24, echo=number, in_step=False, bodies=[b""]), 3.6)
    assert not taking.is_in_step(3.6)


def test_a_newer_copy_is_asked_to_lead_and_a_strange_one_is_left_alone():
    made = sending()
    made.hear(answer(1001), 0.0)
    assert any(isinstance(wish, ev.Yield) for wish in made.take())
    made = sending()
    made.hear(JournalState(7, Copying.OWN, 1, 500, ev.said_of((OTHER_TWO,))), 0.0)
    assert ["which is left as it is: move it away" in wish.text for wish in made.take()] == [True]
    for said in (answer(1000), JournalState(7, Copying.SHARED), JournalState(7, Copying.NONE)):
        made = sending(is_held=True)
        made.hear(said, 0.0)
        assert [type(wish) for wish in made.take()] == [ev.Open]


@pytest.mark.parametrize(
    ("theirs", "theirs_alone", "mine_alone", "said"),
    [
        (turn(3, 88, 1, 60), True, True, ["what has counted here alone is not in the newer copy at b"]),
        (turn(3, 88, 1, 60), True, False, []),
        (turn(3, 88, 1, 60), False, True, []),
        (turn(2, 88, 1, 60), True, True, ["what has counted at b alone is not in the newer copy here"]),
        (turn(2, 88, 1, 60), False, False, []),
    ],
)
def test_if_both_went_on_alone_it_is_said_what_goes_aside(theirs, theirs_alone, mine_alone, said):
    """Each has warned of what it did not have when it went on; what it has acknowledged since is lost with it."""
    made = Sending(Copy((ONE, TWO), Place(1, 200)), {1: 200}, "b", alone=mine_alone)
    made.meet(7, "b")
    made.hear(JournalState(7, Copying.OWN, 1, 300, ev.said_of((ONE, theirs)), theirs_alone, u64([1])), 0.0)
    texts = [wish.text for wish in made.take() if isinstance(wish, Log) and "may be missing" in wish.text]
    assert texts == [f"Journal: {words}: jobs and results may be missing" for words in said]


# ---- the shells ------------------------------------------------------------------------------------------------------
class Leading:
    """A succession that leads, beside another one."""

    partner, is_paired, is_alone = "b", True, False

    def __init__(self) -> None:
        self.journal = PairJournal()

    def may_be_alone(self, now: float, asks: bool) -> bool:
        return True

    def has_standby(self, now: float) -> bool:
        return True

    def hears_partner(self, now: float) -> bool:
        return True


def opened(copies: Copies, now: float, asks: bool = False) -> tuple[CopiedJournal | None, list[str]]:
    """The journal, unless it is held back; and what the log says."""
    opening = copies.begin(now, asks)
    journal = opening.run()
    copies.opened(opening, now)
    return journal, [log.text for log in opening.logs]


@pytest.fixture
def copies(tmp_path):
    copies = Copies(tmp_path / "a", Leading())
    opened(copies, 0.0)[0].replay(lambda record, place: None)
    yield copies
    copies.close()


def asked(copies: Copies, route: Route | None, now: float) -> list[int]:
    """The streams for which a copy is asked for."""
    said = copies.attend(route, now).said
    return [each.stream for each in said if isinstance(each, JournalState)]


def test_a_copy_that_comes_to_nothing_is_asked_for_at_longer_and_longer_intervals(copies):
    pauses, since = [], 0.0
    for now in (step / 2 for step in range(300)):
        while len(pauses) < 9 and (streams := asked(copies, ("link", 1), now)):
            pauses.append(now - since)
            since = now
            copies.hear(JournalState(streams[0], Copying.NONE, trouble="No space left on device"), now)
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 60]


def test_sessions_that_end_before_the_copy_is_in_step_are_followed_by_pauses(copies):
    asked_at = []
    for step in range(60):
        now, route = step / 2, ("link", step // 2)
        for stream in asked(copies, route, now):
            asked_at.append(now)
            copies.hear(JournalState(stream, Copying.OWN), now)  # and it hangs up
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert gaps[0] == 1
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 8


def test_a_stream_of_which_nothing_is_heard_is_followed_by_another(copies):
    """Two were begun over two connections, and the first came last: the standby waits for what nobody sends."""
    (stream,) = asked(copies, ("link", 1), 0.0)
    copies.hear(JournalState(stream, Copying.OWN), 0.0)
    now, again = 0.0, []
    while not again:
        now += 0.5
        again = asked(copies, ("link", 1), now)
        assert now <= ev.SILENT + 1
    copies.hear(JournalState(again[0], Copying.OWN), now)
    copies.hear(JournalSynced(again[0], 0, 0, 1, complete=True), now)
    copies.attend(("link", 1), now)
    assert copies.journal.sending.is_in_step


def test_whoever_did_not_answer_over_connections_that_were_lost_is_asked_again_soon_over_the_next(copies):
    """Each time a connection is made it is asked at once; how often that was so far does not matter to the last."""
    for count in range(6):
        assert asked(copies, ("link", count), count / 10)
    now, since = 0.5, 0.5
    while not asked(copies, ("link", 5), now):
        now += 0.5
        assert now <= since + ANSWER + 0.5
    assert asked(copies, ("link", 5), now + ANSWER) == []  # over the same it takes longer and longer
    assert asked(copies, ("link", 5), now + 2 * ANSWER)


def test_a_copy_in_step_is_asked_for_at_once_when_its_connection_is_lost(copies):
    for count in range(4):
        (stream,) = asked(copies, ("link", count), float(count))
        copies.hear(JournalState(stream, Copying.OWN), float(count))
        copies.hear(JournalSynced(stream, 0, 0, 1, complete=True), float(count))
        copies.attend(("link", count), float(count))
        assert copies.journal.sending.is_in_step


def test_what_can_not_be_read_here_is_said_once_and_nothing_else_is_left_undone(tmp_path, monkeypatch):
    journal = CopiedJournal(Journal(tmp_path))
    layout, _ = journal.replay(lambda record, place: None)
    journal.append(layout.take((b"x",)), records.pack(Record(1, 1, (b"x",), 1)))
    until(lambda: journal.take_news()[0] == 1, "a record on disk")
    monkeypatch.setattr(os, "pread", lambda file, size, offset: b"")
    monkeypatch.setattr(ev, "WINDOW", 10)
    monkeypatch.setattr(ev, "SLICE", 10)
    told = []
    for _ in range(2):
        journal.sending.alone = False
        journal.meet("b")
        journal.hear(JournalState(journal.sending._stream, Copying.OWN), 0.0)
        wishes, _ = journal.attend(0.0, may_be_alone=True)
        told += [wish.text for wish in wishes if isinstance(wish, Log)]
        assert journal.sending.phase is Phase.APART
        assert not any(isinstance(wish, JournalSlice) for wish in wishes)
        assert Directory(tmp_path).history().alone
    assert journal.sending.failures == 2
    assert len([text for text in told if "can't be sent along" in text]) == 1
    journal.end()


def test_segments_that_can_not_be_removed_go_later_and_in_order(tmp_path, monkeypatch):
    """What says that a job is deleted may be in a later one, and that of the job in an earlier one."""
    journal = CopiedJournal(Journal(tmp_path))
    layout, _ = journal.replay(lambda record, place: None)
    for _ in range(3):
        journal.append(layout.take((b"x",)), records.pack(Record(1, 1, (b"x",), 1)))
        layout.turn_over()
    until(lambda: journal.take_news()[0] == 3, "three segments on disk")
    broken, told = {1}, []

    def remove(self, segment):
        if segment in broken:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.segment(segment).unlink()

    monkeypatch.setattr(Directory, "remove", remove)
    for number, now in enumerate((0.0, 0.5, copied_journal.AGAIN), 1):
        if number < 3:
            journal.remove(number)
        told += journal.attend(now, may_be_alone=True)[0]
        assert Directory(tmp_path).segments() == [1, 2, 3]
    assert [(log.level, "segment 1" in log.text, "not permitted" in log.text) for log in told] == [
        ("WARNING", True, True)
    ]
    assert journal.sending.failures == 0
    broken.clear()
    journal.attend(2 * copied_journal.AGAIN, may_be_alone=True)
    assert Directory(tmp_path).segments() == [3]
    journal.end()


def test_whatever_happens_to_the_disk_of_a_standby_it_is_said_and_the_next_stream_is_taken(tmp_path, monkeypatch):
    follower = Follower(tmp_path)
    found: list = []

    def said(kind):
        found.extend(follower.attend(1.0))
        return [each for each in found if isinstance(each, kind)]

    def broken(self, *arguments):
        raise ValueError("nobody expected this")

    with monkeypatch.context() as patch:
        patch.setattr(CopyOnDisk, "look", broken)
        follower.hear(JournalState(7, Copying.LEADS), "a", 1.0)
        until(lambda: said(JournalState), "an answer")
    assert said(JournalState)[-1].trouble == "ValueError: nobody expected this"
    with monkeypatch.context() as patch:
        patch.setattr(CopyOnDisk, "begin_whole", broken)
        follower.hear(JournalState(8, Copying.LEADS), "a", 1.0)
        until(lambda: said(JournalState)[-1].copying == Copying.OWN, "an answer")
        follower.hear(JournalStart(8, True), "a", 1.0)
        until(lambda: said(JournalState)[-1].copying == Copying.NONE, "word that there is no copy")
        follower.hear(JournalSlice(8, 1, 24, bodies=[record_bytes(1)]), "a", 1.0)
    follower.hear(JournalState(9, Copying.LEADS), "a", 1.0)
    until(lambda: said(JournalState)[-1].stream == 9, "an answer")
    follower.hear(JournalStart(9, True), "a", 1.0)
    follower.hear(JournalSlice(9, 1, 24, complete=True, bodies=[record_bytes(1)]), "a", 1.0)
    until(lambda: any(each.complete for each in said(JournalSynced)), "a copy")
    assert follower.close()
    assert ids_in(tmp_path) == {1}
    assert not said(ev.Reject)
    assert [log.text for log in said(Log)] == [
        "Journal: no copy of it can be made here: ValueError: nobody expected this"
    ]


# ---- a disk that refuses ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("written", [0, 10])
def test_a_segment_whose_beginning_did_not_fit_begins_as_it_should_when_it_does(tmp_path, monkeypatch, written):
    disk = CopyOnDisk(tmp_path)
    disk.look(1)
    disk.begin_behind(Place(1, 24), (ONE,), "a")
    data = record_bytes(7)
    disk.check(Place(1, 24), data)
    real = os.pwrite

    def full(file, data, offset):
        real(file, bytes(data)[:written], offset)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            disk.write(Place(1, 24), data)
    disk.write(Place(1, 24), data)
    disk.sync()
    disk.close()
    assert Directory(tmp_path).segment(1).read_bytes() == segment_header(1) + data


def test_a_copy_takes_the_place_of_another_though_the_disk_refuses_in_the_middle_of_that(tmp_path, monkeypatch):
    monkeypatch.setattr(follower_module, "AGAIN", 0.01)
    real, chance, refused = os.replace, Random(5), 0

    def refusing(source, target):
        nonlocal refused
        if chance.random() < 0.8:
            refused += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    (tmp_path / "b").mkdir()
    Directory(tmp_path / "b").segment(1).write_bytes(segment_header(1) + record_bytes(1))
    follower = Follower(tmp_path / "b")
    found: list = []

    def said(kind):
        found.extend(follower.attend(1.0))
        return [each for each in found if isinstance(each, kind)]

    follower.hear(JournalState(7, Copying.LEADS), "a", 1.0)
    until(lambda: said(JournalState), "an answer")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refusing)
        follower.hear(JournalStart(7, True, turns=ev.said_of((ONE,))), "a", 1.0)
        follower.hear(JournalSlice(7, 1, 24, complete=True, bodies=[record_bytes(7)]), "a", 1.0)
        until(lambda: any(each.complete for each in said(JournalSynced)), "a copy")
    assert follower.close()
    assert refused > 2
    assert ids_in(tmp_path / "b") == {7}


def test_a_copy_that_is_silent_does_not_count_as_in_step_again_before_it_is_heard():
    made = sending()
    made.hear(answer(1000), 0.0)
    assert made.is_in_step
    for now in (ev.SILENT + 0.1, ev.ALONE + 0.1, ev.ALONE + 5):
        made.tick(now, may_be_alone=True)
        assert (made.is_in_step, made.alone) == (False, now > ev.ALONE)
    made.hear(JournalSynced(7, 1, 1000, number=1), ev.ALONE + 6)
    assert made.alone, "that stream is over"
    made.meet(8, "b")
    made.hear(JournalState(8, Copying.OWN, 1, 1000, ev.said_of((ONE,)), segments=[1]), ev.ALONE + 7)
    assert (made.is_in_step, made.alone) == (True, False)


def test_that_a_copy_is_complete_is_said_until_it_is_heard(taker):
    said = [each for each in taker.standby.sent if isinstance(each, JournalSynced)]
    taker.standby.taking.tick(10.0)
    again = [wish.message for wish in taker.standby.taking.take() if isinstance(wish, ev.Say)]
    assert [each.complete for each in (said[-1], *again)] == [True, True]


def test_a_whole_copy_of_a_journal_in_which_nothing_is_left_is_in_step():
    turns = (ONE, turn(2, 22, 4, 90))
    made = Sending(Copy(turns, Place(9, 24)), {})
    made.meet(7, "b")
    made.hear(answer(500), 0.0)
    piece = [wish for wish in made.take() if isinstance(wish, ev.Send)][-1].message
    assert (piece.segment, piece.offset, piece.complete) == (9, 24, True)
    made.hear(JournalSynced(7, 9, 24, number=1, complete=True), 0.1)
    assert made.is_in_step


def test_a_copy_without_the_segment_in_which_both_part_is_made_anew():
    """It has given that back already, and what comes behind that place would be written into a file without it."""
    made = Sending(Copy((ONE, TWO), Place(1, 200)), {1: 200})
    made.meet(7, "b")
    made.hear(JournalState(7, Copying.OWN, 2, 24, ev.said_of((ONE,)), segments=u64([])), 0.0)
    assert [wish.message.whole for wish in made.take() if getattr(wish, "message", None).__class__ is JournalStart] == [
        True
    ]


def test_a_directory_that_both_have_is_known_to_be_shared_from_then_on():
    made = sending()
    made.hear(JournalState(7, Copying.SHARED), 0.0)
    assert ev.Keep("", True, is_shared=True) in made.take()


# ---- which copy is used ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("partner", ["", "b"])
def test_one_that_has_handed_over_asks_for_nothing_but_to_send_the_rest_of_its_copy(tmp_path, partner):
    """A directory of both can't be marked by one that has let it go: the other would lock it, to copy it to itself."""
    kept(tmp_path, partner=partner)
    journal = CopiedJournal(Journal(tmp_path))
    journal.replay(lambda record, place: None)
    journal.close()
    journal.meet("b")
    said, _ = journal.attend(1.0, may_be_alone=False)
    assert [message.copying for message in said if isinstance(message, JournalState)] == [Copying.LEADS] * bool(partner)


def test_one_that_has_handed_over_and_leads_again_as_nobody_came_opens_the_journal_anew(copies):
    """What was handed over is not locked any more, and has counted records for the jobs that were there."""
    handed_over = copies.journal
    handed_over.close()
    copies.hand_over()
    journal, _ = opened(copies, 1.0)
    assert journal is not handed_over
    journal.replay(lambda record, place: None)
    with pytest.raises(Locked):
        Journal(journal.path)


def kept(path, *, partner: str = "", alone: bool = False, follows: bool = False) -> None:
    """A directory in which somebody wrote a record."""
    directory = Directory(path)
    directory.lock()
    directory.segment(1).write_bytes(segment_header(1) + record_bytes(1))
    directory.write_history(History((ONE,), partner=partner, alone=alone, follows=follows))
    directory.unlock()


def elected(path, asks: bool = True, hears: bool = False) -> tuple[Copies, list[str]]:
    """A standby with this directory comes to lead; and what the log says. The other one has been heard, or not."""
    succession = Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True)
    if hears:
        succession.hear_partner(PartnerReport(0, False, "tcp://a:1", 0, False, u64(), False), 100.0)
    copies = Copies(path, succession)
    copies.follow()
    journal, logs = opened(copies, 100.0, asks)
    assert (journal is None) == copies.is_held
    if journal is not None:
        journal.replay(lambda record, place: None)
    return copies, logs


@pytest.mark.parametrize(
    ("was", "asks", "hears", "is_held", "is_warned"),
    [
        ({"partner": "a", "follows": True}, True, False, False, True),
        ({"partner": "a", "follows": True}, True, True, True, False),
        ({"partner": "a"}, True, False, True, False),
        ({"partner": "a"}, False, False, False, True),
        ({"partner": "a", "alone": True}, True, False, True, False),
        ({}, True, False, False, False),
    ],
)
def test_one_that_is_elected_asks_for_a_newer_copy_or_says_what_may_be_missing(
    tmp_path, was, asks, hears, is_held, is_warned
):
    kept(tmp_path, **was)
    copies, logs = elected(tmp_path, asks, hears)
    assert (copies.is_held, any("may be missing" in text for text in logs)) == (is_held, is_warned)
    copies.close()


def test_one_whose_copy_was_removed_does_not_lead_with_none_as_if_it_had_all(tmp_path):
    """A disk that is not mounted any more leaves an empty directory in its place."""
    where = tmp_path / "journal"
    where.mkdir()
    kept(where, partner="a", follows=True)
    copies = Copies(where, Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True))
    copies.follow()._taking._lease = 99.0
    shutil.rmtree(where)
    journal, logs = opened(copies, 100.0, True)
    assert (journal, copies.is_held) == (None, True)
    assert logs == [f"Journal: the copy in {where} had all that counts, and is not there any more"]
    assert "the scheduler at tcp://a:1 may have a newer copy" in copies.reason
    assert copies.attend(None, 200.0).opens is False
    copies.close()


@pytest.mark.parametrize("lease", [0.0, 99.0])
def test_a_copy_that_could_not_be_looked_at_is_as_it_was_when_it_can_be(tmp_path, monkeypatch, lease):
    def no_descriptor(directory):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    kept(tmp_path, partner="a", follows=True)
    succession = Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True)
    succession.hear_partner(PartnerReport(0, False, "tcp://a:1", 0, False, u64(), False), 100.0)
    copies = Copies(tmp_path, succession)
    copies.follow()._taking._lease = lease
    with monkeypatch.context() as patched:
        patched.setattr(Directory, "history", no_descriptor)
        opening = copies.begin(100.0, asks=True)
        with pytest.raises(OSError, match="open files"):
            opening.run()
        opening.discard()
        copies.opened(opening, 100.0)
    journal, logs = opened(copies, 101.0, asks=True)
    assert copies.is_held is (lease == 0.0)
    assert any("has all that counts" in text for text in logs) is (lease > 0.0)
    assert (journal is None) is copies.is_held
    copies.close()


def test_one_that_is_elected_in_step_says_until_when_that_holds(tmp_path):
    kept(tmp_path, partner="a", follows=True)
    succession = Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True)
    copies = Copies(tmp_path, succession)
    copies.follow()._taking._lease = 99.0
    journal, logs = opened(copies, 100.0, True)
    assert "has all that counts" in logs[0]
    assert succession.sure_until == 99.0 + ev.ALONE
    journal.replay(lambda record, place: None)
    copies.close()


def test_one_that_is_elected_before_it_has_any_copy_waits_for_the_other(tmp_path):
    copies, logs = elected(tmp_path)
    assert (copies.is_held, logs) == (True, [])
    assert "the scheduler at tcp://a:1 may have a newer copy" in copies.reason
    assert copies.attend(None, 200.0).opens is False
    journal, logs = opened(copies, 201.0)  # somebody says that this one is to be used
    assert "may be missing" in logs[0]
    journal.replay(lambda record, place: None)
    copies.close()


def test_an_answer_that_takes_long_is_waited_for(tmp_path):
    """Its copy is large perhaps, and the newer one."""
    kept(tmp_path, partner="a", alone=True)
    copies, _ = elected(tmp_path, hears=True)
    succession = copies._succession
    succession.promote(100.0)
    for now in (100.5, 107.0, 120.0):
        succession.hear_partner(PartnerReport(0, False, "tcp://a:1", 0, False, u64(), False), now)
        assert not copies.attend(("peer", 3), now).opens
    assert not copies.attend(None, 130.0).opens, "nobody has come here: more than half of the agents may be there"
    succession.agent_joined(1)
    assert copies.attend(None, 132.0).opens
    copies.close()


def test_a_copy_is_taken_on_though_a_connection_of_this_end_comes_or_goes(tmp_path):
    """What is sent is lost with connections of the one that sends, which knows that and begins another stream."""
    succession = Succession("tcp://b:1", 5, "tcp://a:1", stands_by=True)
    copies = Copies(tmp_path, succession)
    follower = copies.follow()

    def heard(message) -> list:
        copies.hear(message, 100.0)
        said = list(copies.attend(("peer", 3), 100.0).said)
        until(lambda: said.extend(copies.attend(("peer", 3), 100.0).said) or said)
        return said

    try:
        heard(JournalState(7, Copying.LEADS))
        copies.hear(JournalStart(7, True, turns=ev.said_of((ONE,))), 100.0)
        heard(JournalSlice(7, 1, 24, bodies=[record_bytes(1)], complete=True))
        copies.attend(("link", 1), 100.0)
        copies.attend(None, 100.0)
        more = Place(1, 24 + len(record_bytes(1)))
        (synced, *_) = heard(JournalSlice(7, *more, bodies=[record_bytes(2)]))
        assert synced.offset == more.offset + len(record_bytes(2))
        assert follower is copies.follower
    finally:
        copies.close()


def test_a_partner_that_was_never_paired_and_is_lost_may_still_count_on_its_copy():
    """Only a goodbye, or somebody who says so, tells that nobody waits for it."""
    succession = Succession("tcp://a:1", 5)
    assert succession.is_alone
    succession.hear_partner(PartnerReport(0, False, "tcp://b:1", 1, False, u64(), False), 100.0)
    assert (succession.is_paired, succession.is_alone) == (False, False)
    succession.lose_partner(100.1, said_goodbye=True)
    assert succession.is_alone


# ---- a copy that takes the place of another --------------------------------------------------------------------------
class Killed(Exception):
    """The process ends here."""


def test_a_copy_is_replaced_as_a_whole_wherever_that_is_cut_short(tmp_path, monkeypatch):
    calls = 0
    for cut in range(100):
        path = tmp_path / str(cut)
        standby = Standby(path)
        for number, segment in ((1, 1), (2, 2)):
            path.mkdir(exist_ok=True)
            Directory(path).segment(segment).write_bytes(segment_header(segment) + record_bytes(number))
        standby.disk.look(1)
        left = cut

        def dying(call):
            def made(*arguments, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return call(*arguments, **options)

            return made

        with monkeypatch.context() as patch:
            for name in ("replace", "rename", "mkdir", "unlink", "rmdir", "fsync", "pwrite"):
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                standby.disk.begin_whole((ONE,), "a")
                standby.disk.check(Place(2, 24), record_bytes(7))
                standby.disk.write(Place(2, 24), record_bytes(7))
                standby.disk.complete(Place(2, 24 + len(record_bytes(7))))
            except Killed:
                calls += 1
            is_done = left >= 0
        standby.end()
        again = Standby(path)
        seen = again.disk.look(1)
        assert ids_in(path) in ({1, 2}, {7}), cut
        assert (ids_in(path) == {7}) == (seen.copy.turns == (ONE,)), cut
        assert not (path / "incoming").exists()
        again.end()
        if is_done:
            break
    assert calls > 10
    assert ids_in(path) == {7}
    assert {each.name for each in (path / "aside" / "replaced").iterdir()} == {"00000001.log", "00000002.log"}
