"""How the one of a pair that stands by makes a copy of the journal of the other, which is not trusted with it.

Pure. Whoever has the clock, the disk and the connection tells it of them and does what it `take`s.

    the other one has said something     hear(message, now)     part()
    the disk has done something          looked, synced, damaged, failed
    time goes by                         tick(now)

It knows whether its copy has all that counts (`is_in_step`): the one that leads does not go on alone for `ALONE`
seconds after a sign of life that it has heard, and says which that was.
"""

from __future__ import annotations

from collections import deque

from scaler.journal.history import NOTHING, Seen
from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER
from scaler.protocol.messages import Copying, JournalSlice, JournalStart, JournalState, JournalSynced, u64
from scaler.scheduler.copies import events as ev

#: signs of life that are remembered until the other one says that it has heard them
MOST_BEATS = 64
#: characters of why there is no copy
MOST_WORDS = 300


class Taking:
    """Of one directory."""

    def __init__(self) -> None:
        self._stream = 0
        #: the directory is being looked at; its answer was said; bytes are taken
        self._is_asked = self._is_offered = self._is_taking = False
        #: a whole copy has taken the place of the old one
        self._is_complete = False
        self._seen = Seen()
        #: where the next byte goes; None: wherever a segment begins
        self._next: Place | None = None
        #: what is on disk here, and the bytes that are not yet
        self._there = NOTHING
        self._bytes = 0
        #: signs of life that were sent: number and when
        self._beats: deque[tuple[int, float]] = deque(maxlen=MOST_BEATS)
        self._number = 0
        self._next_beat = float("inf")
        #: when the last one was sent that the other one has heard while this copy had all that counts
        self._lease = float("-inf")
        self._wishes: list[ev.TakerWish] = []

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened."""
        return self._next_beat if self._is_taking else None

    def is_in_step(self, now: float) -> bool:
        """Whatever counts at the one that leads is in this copy."""
        return now < self.in_step_until

    @property
    def in_step_until(self) -> float:
        """When that ends, if the one that leads is not heard again."""
        return self._lease + ev.ALONE

    def take(self) -> list[ev.TakerWish]:
        """What is to be done, in order."""
        wishes, self._wishes = self._wishes, []
        return wishes

    # ---- the other one ---------------------------------------------------------------------------------------------
    def part(self) -> None:
        """What belongs to this stream is of no interest any more.

        Connections come and go without that: whoever sends begins another stream when one of its own is lost, and
        bytes that are missing are noticed.
        """
        self._stream, self._is_asked, self._is_offered, self._is_taking = 0, False, False, False
        self._is_complete = False

    def hear(self, message: JournalState | JournalStart | JournalSlice, now: float) -> None:
        """The one that leads says something; what belongs to an earlier stream is of no interest."""
        if isinstance(message, JournalState):
            if message.copying != Copying.LEADS or not message.stream:
                self._reject("answers about its journal what nobody asked")
                return
            self.part()
            self._stream, self._is_asked, self._lease = message.stream, True, float("-inf")
            self._wishes.append(ev.Look(message.stream))
        elif message.stream != self._stream:
            return
        elif isinstance(message, JournalStart):
            self._hear_start(message, now)
        else:
            self._hear_slice(message)

    def _reject(self, reason: str) -> None:
        self.part()
        self._wishes.append(ev.Reject(reason))

    def _hear_start(self, start: JournalStart, now: float) -> None:
        place = Place(start.segment, start.offset)
        if not self._is_offered:
            self._reject("sends a journal that nobody waits for")
        elif not start.whole and not (place.offset >= SEGMENT_HEADER and place <= self._seen.copy.end):
            self._reject("sends a journal from a place on that the copy here does not reach")
        else:
            self._is_offered, self._is_taking = False, True
            turns = ev.turns_of(start.turns)
            self._wishes.append(ev.BeginWhole(turns) if start.whole else ev.BeginBehind(place, turns))
            self._next = None if start.whole else place
            self._there = NOTHING if start.whole else place
            self._bytes = 0
            self._next_beat = now + ev.BEAT

    def _hear_slice(self, piece: JournalSlice) -> None:
        data = piece.bodies[0]
        place = Place(piece.segment, piece.offset)
        if not self._is_taking:
            self._reject("sends bytes of a journal before it says where they belong")
        elif (len(data) or piece.complete) and not self._fits(place):
            self._reject("sends bytes of a journal that do not follow the last ones")
        elif self._bytes + len(data) > ev.WINDOW + ev.SLICE:
            self._reject("sends more bytes of a journal at once than it may")
        elif piece.removed and max(piece.removed) > (self._next or NOTHING).segment:
            self._reject("would have a segment removed that is not there")
        else:
            self._take_slice(piece, place, bytes(data))

    def _fits(self, place: Place) -> bool:
        if self._next is None:
            return place.segment > 0 and place.offset == SEGMENT_HEADER
        return place == self._next or (place.segment > self._next.segment and place.offset == SEGMENT_HEADER)

    def _take_slice(self, piece: JournalSlice, place: Place, data: bytes) -> None:
        while self._beats and self._beats[0][0] <= piece.echo:
            number, when = self._beats.popleft()
            if number == piece.echo and piece.in_step:
                self._lease = when
        if not piece.in_step:
            self._lease = float("-inf")
        if data or piece.complete or piece.removed:
            self._wishes.append(ev.Append(place, data, piece.complete, tuple(piece.removed)))
            self._bytes += len(data)
        if data:
            self._next = Place(place.segment, place.offset + len(data))
        if piece.removed and self._next is not None and max(piece.removed) == self._next.segment:
            self._next = Place(self._next.segment + 1, SEGMENT_HEADER)

    # ---- the disk --------------------------------------------------------------------------------------------------
    def looked(self, stream: int, seen: Seen | str) -> None:
        """What is in the directory, or why it can't be looked at."""
        if stream != self._stream or not self._is_asked:
            return
        self._is_asked = False
        if isinstance(seen, str):
            self._say(JournalState(stream, Copying.NONE, trouble=seen[:MOST_WORDS]))
        elif seen.is_shared:
            self._say(JournalState(stream, Copying.SHARED))
        else:
            self._is_offered, self._seen = True, seen
            said = JournalState(
                stream, Copying.OWN, *seen.copy.end, ev.said_of(seen.copy.turns), seen.alone, u64(seen.segments)
            )
            self._say(said)

    def synced(self, stream: int, place: Place, size: int, complete: bool, now: float) -> None:
        """Bytes up to here are on disk, so many of them; with that a whole copy took the place of the old one."""
        if stream != self._stream or not self._is_taking:
            return
        self._there, self._bytes = max(self._there, place), self._bytes - size
        self._is_complete |= complete
        self._beat(now)

    def damaged(self, stream: int, why: str) -> None:
        """What came can't be part of a journal."""
        if stream == self._stream:
            self._reject(f"sends a journal that is damaged: {why}")

    def failed(self, stream: int, why: str) -> None:
        """No copy can be made here: the one that leads may ask again."""
        if stream == self._stream:
            self.part()
            self._say(JournalState(stream, Copying.NONE, trouble=why[:MOST_WORDS]))

    # ---- time ------------------------------------------------------------------------------------------------------
    def tick(self, now: float) -> None:
        """Time has passed."""
        if self._is_taking and now >= self._next_beat:
            self._beat(now)

    def _beat(self, now: float) -> None:
        """Say how far this copy is, and all else that may have been lost with a connection."""
        self._next_beat = now + ev.BEAT
        self._number += 1
        self._beats.append((self._number, now))
        self._say(JournalSynced(self._stream, *self._there, self._number, self._is_complete))

    def _say(self, message: JournalState | JournalSynced) -> None:
        self._wishes.append(ev.Say(message))
