"""What the one of a pair that leads sends of its journal, and what of it counts: on both disks, or on its own alone.

Pure. Whoever has the clock, the disk and the connection tells it of them and does what it `take`s.

    the other one can be spoken to      meet(stream, address, now)     part(now, for_good)     fail()
    it has said something               hear(message, now)
    something is on disk here           written(segment, length)       remove(segment)
    time goes by                        tick(now, may_be_alone)

What is on disk here is sent from there, whether it was written a year ago or just now: what is under way is bounded,
and nothing waits in memory. A copy is *behind* until it has nearly all; then what counts is held up until it has all
that ever counted (*closing*), and it is *in step*: from now on only that counts which is on both disks.

Nobody goes on alone before the other one knows that this may be: it numbers its signs of life and notes when it sent
each, and hears which was heard last. For `ALONE` seconds after it sent that one its copy has all that counts.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from scaler.common.effects import Log
from scaler.journal.history import NOTHING, Copy, Relation, is_newer, relation
from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER
from scaler.protocol.messages import Copying, JournalSlice, JournalStart, JournalState, JournalSynced, u32
from scaler.scheduler.copies import events as ev


class Phase(Enum):
    """How it is with the other copy."""

    #: nobody is there, or whoever is has no copy of its own
    APART = "apart"
    #: it was asked what it has
    ASKED = "asked"
    #: it is made anew
    WHOLE = "whole"
    BEHIND = "behind"
    CLOSING = "closing"
    IN_STEP = "in step"


#: so many streams in a row that come to nothing are said to be
MANY_FAILURES = 3
_STREAMING = (Phase.WHOLE, Phase.BEHIND, Phase.CLOSING, Phase.IN_STEP)
_GATED = (Phase.CLOSING, Phase.IN_STEP)


class Sending:
    """Of one journal."""

    def __init__(
        self, copy: Copy, lengths: dict[int, int], partner: str = "", is_held: bool = False, alone: bool = True
    ) -> None:
        """`lengths`: of segments, as far as they are on disk. `is_held`: it is not written before this says `Open`.

        `alone`: something may have been acknowledged that the other one has not, or nobody has another one.
        """
        self._turns = copy.turns
        self._lengths = dict(sorted(lengths.items()))
        #: where this copy ends; and what was written last does, and what counts of that
        self._end = copy.end
        self._written = max((Place(*each) for each in lengths.items()), default=NOTHING)
        self.counted = self._written
        self._is_held = is_held
        self.partner = partner
        self.phase = Phase.APART
        #: what is on disk here counts, whatever the other one has
        self.alone = alone
        #: since when it would go on alone; None: the other one has what counts, or this one is alone
        self._lacks_since: float | None = None
        #: streams in a row that ended before the copy was in step
        self.failures = 0
        #: the log has said that what counted in one of two copies goes aside
        self._has_told_lost = False
        #: why there is no copy, as the other one has said last
        self._refusal = ""
        #: why nothing more counts for now; None: nothing keeps it
        self.trouble: str | None = None
        self._stream = 0
        #: what is sent next, and what the other one has on disk
        self._next = self._there = copy.end
        #: pieces that are on their way: where each ends, and its bytes
        self._under_way: deque[tuple[Place, int]] = deque()
        self._bytes = 0
        #: a whole copy has not taken the place of the old one
        self._awaits_complete = False
        #: since when something is; None: nothing is
        self._waits_since: float | None = None
        #: of the other one's signs of life that came in time: the last number, and when it was heard
        self._echo = 0
        self._lease = float("-inf")
        #: when anything was heard of it last
        self._heard = float("-inf")
        self._next_beat = float("inf")
        #: segments that are removed when the other one has all up to a place; and those that it is to remove
        self._leaving: deque[tuple[Place, int]] = deque()
        self._removed: list[int] = []
        self._wishes: list[ev.SenderWish] = []

    # ---- what it is ------------------------------------------------------------------------------------------------
    @property
    def is_copied(self) -> bool:
        """There is another copy that counts, or will."""
        return self.phase in _STREAMING or not self.alone

    @property
    def is_asked(self) -> bool:
        """The other one was asked what it has, and has not answered."""
        return self.phase is Phase.ASKED

    @property
    def is_in_step(self) -> bool:
        """All that counts is on both disks."""
        return self.phase is Phase.IN_STEP

    @property
    def is_flushed(self) -> bool:
        """The other one has all that is here."""
        return self.phase is Phase.IN_STEP and not self._under_way and not self._seek()

    def is_silent(self, now: float) -> bool:
        """The other one had all that counts, and was not heard for so long that it does not count on its copy."""
        had_all = not self.alone and self.phase in (Phase.APART, Phase.ASKED, Phase.IN_STEP)
        return had_all and self._lease > float("-inf") and now >= self._lease + ev.ALONE

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened, after the last `tick`."""
        due = [self._next_beat] if self.phase in _STREAMING else []
        if self._lacks_since is not None:
            due += [self._lacks_since + ev.COMING] if self.trouble is None else []
        elif not self.alone and self.phase is not Phase.CLOSING and self._lease > float("-inf"):
            due.append(self._lease + ev.ALONE)
        return min(due, default=None)

    def take(self) -> list[ev.SenderWish]:
        """What is to be done, in order."""
        wishes, self._wishes = self._wishes, []
        return wishes

    # ---- this journal ----------------------------------------------------------------------------------------------
    def written(self, segment: int, length: int) -> None:
        """So much of a segment is on disk here."""
        if segment not in self._lengths:
            self._lengths[segment] = length
        else:
            self._lengths[segment] = max(self._lengths[segment], length)
        self._written = max(self._written, Place(segment, length))
        self._end = max(self._end, self._written)

    def remove(self, segment: int) -> None:
        """Nobody needs a segment here any more: it goes when the other one has what was written before that."""
        if segment == self._end.segment:
            self._end = Place(segment + 1, SEGMENT_HEADER)
        if self.phase in _STREAMING:
            self._leaving.append((self._written, segment))
        else:
            self._unlink(segment)

    def _unlink(self, segment: int) -> None:
        self._lengths.pop(segment, None)
        self._wishes.append(ev.Unlink(segment))

    # ---- the other one ---------------------------------------------------------------------------------------------
    def meet(self, stream: int, partner: str) -> None:
        """The other one stands by and can be spoken to; `stream` is drawn by lot."""
        self._part()
        self._stream, self.phase, self.partner = stream, Phase.ASKED, partner
        self._wishes.append(ev.Mark(stream))
        state = JournalState(
            stream, Copying.LEADS, *self._end, turns=ev.said_of(self._turns), alone=self.alone
        )  # fmt: skip
        self._wishes.append(ev.Say(state))

    def part(self, for_good: bool) -> None:
        """It can't be spoken to any more; `for_good`: it said that it does not stand by any more."""
        self._part()
        if for_good:
            self._lease = float("-inf")

    def fail(self) -> None:
        """The stream comes to nothing: it can't be read here, not be written there, or nobody takes it."""
        failures = self.failures
        self._part()
        self._count_failure(failures + 1)

    def _count_failure(self, failures: int) -> None:
        self.failures = failures
        if failures == MANY_FAILURES:
            words = f"has not come to be in step {failures} times: it is tried again, at longer and longer intervals"
            self._tell("WARNING", f"the copy at {self.partner} {words}; the log there may say more")

    def _part(self) -> None:
        if self.phase in (Phase.WHOLE, Phase.BEHIND, Phase.CLOSING):
            self._count_failure(self.failures + 1)
        self.phase, self._stream = Phase.APART, 0
        self._under_way.clear()
        self._bytes, self._waits_since, self._echo = 0, None, 0
        self._removed.clear()
        while self._leaving:
            self._unlink(self._leaving.popleft()[1])

    def hear(self, message: JournalState | JournalSynced, now: float) -> None:
        """It says what it has, or how far it is. What belongs to another stream is of no interest."""
        if not self._stream or message.stream != self._stream:
            return
        self._heard = now
        if isinstance(message, JournalState) and (self.phase is Phase.ASKED or message.trouble):
            self._hear_state(message, now)
        elif isinstance(message, JournalSynced) and self.phase in _STREAMING:
            self._hear_synced(message, now)
        else:
            self._reject("says of its journal what nobody asked")

    def _reject(self, reason: str) -> None:
        self._part()
        self._wishes.append(ev.Reject(reason))

    def _hear_state(self, state: JournalState, now: float) -> None:
        mine, theirs = Copy(self._turns, self._end), ev.copy_of(state)
        found, common = relation(mine, theirs)
        if state.trouble:
            self.fail()
            if state.trouble != self._refusal:
                self._refusal = state.trouble
                self._tell("WARNING", f"the one at {self.partner} has no copy: {state.trouble}")
        elif state.copying != Copying.OWN or found is Relation.STRANGE:
            self.phase = Phase.APART
            if state.copying == Copying.OWN:
                self._tell(
                    "WARNING", f"the one at {self.partner} has another journal, which is left as it is: move it away"
                )
            elif state.copying == Copying.SHARED and not self._is_held:
                self._wishes.append(ev.Keep("", True, is_shared=True))
        elif is_newer(theirs, mine, state.alone, self.alone):
            self.phase = Phase.APART
            if found is Relation.FORKED and self.alone:
                self._tell_lost("here", f"at {self.partner}")
            self._tell("WARNING", f"the one at {self.partner} has a newer copy, and is to lead")
            self._wishes.append(ev.Yield())
            return
        else:
            if found is Relation.FORKED and state.alone:
                self._tell_lost(f"at {self.partner}", "here")
            if not self._is_held:
                self._start(state, found, common, now)
        if self._is_held:
            self.phase = Phase.APART
            self._wishes.append(ev.Open())

    def _tell_lost(self, where: str, other: str) -> None:
        """Both copies were written on alone: what has counted in the older one goes aside."""
        if not self._has_told_lost:
            self._has_told_lost = True
            words = f"what has counted {where} alone is not in the newer copy {other}"
            self._tell("WARNING", f"{words}: jobs and results may be missing")

    def _start(self, state: JournalState, found: Relation, common: Place, now: float) -> None:
        """Have the other copy follow: from the place on where both part, or from the beginning."""
        self._wishes.append(ev.Keep(self.partner, self.alone))
        parts_well = found is not Relation.FORKED or not state.alone
        is_behind = parts_well and self._has_all_from(common, set(state.segments))
        self._wishes.append(ev.Say(JournalStart(self._stream, not is_behind, *common, turns=ev.said_of(self._turns))))
        if is_behind:
            self.phase, self._next = Phase.BEHIND, common
            unknown = [number for number in state.segments if number not in self._lengths and number < common.segment]
            self._leaving.extend((self._written, number) for number in unknown)
        else:
            self.phase = Phase.WHOLE
            self._next = Place(min(self._lengths), SEGMENT_HEADER) if self._lengths else self._end
            self._tell("INFO", f"the one at {self.partner} is sent a whole copy")
        self._awaits_complete = not is_behind
        self._there = self._next if is_behind else NOTHING
        self._lease, self._next_beat = float("-inf"), now + ev.BEAT
        if self.phase is Phase.WHOLE and not self._lag():
            self._send(0, is_complete=True)
            self.phase = Phase.BEHIND
        self._go_on(now)

    def _has_all_from(self, place: Place, there: set[int]) -> bool:
        """All that follows a place is still here, and all that is here and before it is there."""
        if place.offset < SEGMENT_HEADER or self._lengths.get(place.segment, 0) < place.offset:
            return False
        if place.offset > SEGMENT_HEADER and place.segment not in there:
            return False
        last = max(self._lengths)
        return all(number in self._lengths for number in range(place.segment, last + 1)) and all(
            number in there for number in self._lengths if number < place.segment
        )

    def _hear_synced(self, synced: JournalSynced, now: float) -> None:
        place = Place(synced.segment, synced.offset)
        if not self._there <= place <= self._next:
            self._reject("says that bytes of the journal are on its disk that it was not sent")
            return
        self._there = place
        self._awaits_complete = self._awaits_complete and not synced.complete
        while self._under_way and self._under_way[0][0] <= place:
            self._bytes -= self._under_way.popleft()[1]
            self._waits_since = now
        if not self._under_way:
            self._waits_since = None
        if not self._is_stalled(now):
            self._echo, self._lease = synced.number, now
        while self._leaving and self._leaving[0][0] <= place and self.phase is not Phase.WHOLE:
            _, segment = self._leaving.popleft()
            self._unlink(segment)
            self._removed.append(segment)
        self._go_on(now)

    def _is_stalled(self, now: float) -> bool:
        return self._waits_since is not None and now - self._waits_since > ev.STALLED

    def _is_present(self, now: float) -> bool:
        """It was heard a moment ago, and takes what it is sent."""
        return now - self._heard <= ev.STALLED and not self._is_stalled(now)

    # ---- sending ---------------------------------------------------------------------------------------------------
    def _go_on(self, now: float) -> None:
        """Send what there is, as long as not too much is on its way; and see whether the copy is in step by that."""
        while self.phase in _STREAMING and self._bytes < ev.WINDOW and self._seek():
            size = min(ev.SLICE, self._lengths[self._next.segment] - self._next.offset)
            is_last = self.phase is Phase.WHOLE and self._lag() <= size
            self._send(size, is_last)
            if self._waits_since is None:
                self._waits_since = now
            if is_last:
                self.phase = Phase.BEHIND
        is_near = self._bytes + self._lag() <= ev.WINDOW and self._is_present(now)
        if self.phase is Phase.BEHIND and is_near:
            self.phase = Phase.CLOSING
        if self.phase is Phase.CLOSING and self._there >= self.counted and not self._awaits_complete:
            self.phase, self.alone, self.failures, self._refusal = Phase.IN_STEP, False, 0, ""
            self._echo_now(now)
            self._wishes.append(ev.Keep(self.partner, False))
            self._tell("INFO", f"the copy at {self.partner} is in step: what counts is on both disks")
        self.count()

    def _echo_now(self, now: float) -> None:
        self._lease = max(self._lease, now)
        self._beat(now)

    def _seek(self) -> bool:
        """Whether there is something to be sent; `_next` is where it is then."""
        if self._next.offset < self._lengths.get(self._next.segment, 0):
            return True
        for number, length in self._lengths.items():
            if number > self._next.segment and length > SEGMENT_HEADER:
                self._next = Place(number, SEGMENT_HEADER)
                return True
        return False

    def _lag(self) -> int:
        """Bytes that were not sent."""
        lag = max(0, self._lengths.get(self._next.segment, 0) - self._next.offset)
        return lag + sum(
            length - SEGMENT_HEADER for number, length in self._lengths.items() if number > self._next.segment
        )

    def _send(self, size: int, is_complete: bool = False) -> None:
        removed, self._removed = self._removed, []
        message = JournalSlice(
            self._stream, *self._next, echo=self._echo, in_step=self.phase is Phase.IN_STEP, complete=is_complete,
            removed=u32(removed),
        )  # fmt: skip
        self._wishes.append(ev.Send(message, size))
        if size:
            self._next = Place(self._next.segment, self._next.offset + size)
            self._under_way.append((self._next, size))
            self._bytes += size

    def _beat(self, now: float) -> None:
        self._next_beat = now + ev.BEAT
        self._send(0)

    # ---- time, and what counts -------------------------------------------------------------------------------------
    def tick(self, now: float, may_be_alone: bool) -> None:
        """Time has passed, or something was written. `may_be_alone`: this one leads, and enough agents hear it."""
        if self.phase in _STREAMING and now - self._heard > ev.SILENT:
            self.fail()  # it was asked over another connection, too, heard that later, and waits for that stream
        is_lacking = not self.alone and self._is_known_to_lack(now)
        if not is_lacking:
            self._lacks_since = None
        elif self._lacks_since is None:
            self._lacks_since = now
        words = f"the one at {self.partner} is {'behind' if self.phase in _STREAMING else 'away'}"
        has_waited = self._lacks_since is not None and now >= self._lacks_since + ev.COMING
        self.trouble = f"{words}, and too few agents are heard to go on without it" if has_waited else None
        if is_lacking and may_be_alone:
            self.alone, self.trouble, self._lacks_since = True, None, None
            self._wishes.append(ev.Keep(self.partner, True))
            if self._heard > float("-inf"):  # otherwise it has just come to lead, as was said
                self._tell("WARNING", f"goes on alone: {words}")
            if self.phase is Phase.IN_STEP:
                self.phase = Phase.BEHIND
        if self.phase is Phase.CLOSING and not self._is_present(now):
            self.phase = Phase.BEHIND
        self._go_on(now)
        if self.phase in _STREAMING and now >= self._next_beat:
            self._beat(now)

    def _is_known_to_lack(self, now: float) -> bool:
        """The other one does not count on its copy: it was told so, or has not heard for long enough that it may."""
        if self.phase in (Phase.WHOLE, Phase.BEHIND):
            return True
        return self.phase is not Phase.CLOSING and now >= self._lease + ev.ALONE

    def count(self) -> None:
        """See how much counts by now."""
        if self.phase in _GATED or not self.alone:
            there = NOTHING if self._awaits_complete else self._there  # before it is complete nothing of it is believed
            self.counted = max(self.counted, min(self._written, there))
        else:
            self.counted = self._written

    def _tell(self, level: str, text: str) -> None:
        self._wishes.append(Log(level, f"Journal: {text}"))
