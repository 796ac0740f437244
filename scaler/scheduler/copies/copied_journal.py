"""The journal of the one of a pair that leads: what is written is sent along, and counts when it is on both disks.

To those who write, it is a journal as any other: what counts is what they are told is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from scaler.common.effects import Log
from scaler.errors import ScalerError
from scaler.journal.directory import Damage, refusal
from scaler.journal.history import Copy
from scaler.journal.journal import Journal
from scaler.journal.layout import Layout, Place
from scaler.journal.records import Frame, Record
from scaler.journal.removal import Removal
from scaler.journal.writer import ENDING
from scaler.protocol.messages import JournalState, JournalSynced
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.sending import Sending

#: seconds between two tries to remove a segment
AGAIN = 5.0
#: what is left to others
Wish = ev.Said | ev.Yield | ev.Open | ev.Reject | Log


class CopiedJournal:
    """For one thread. It is locked from the beginning to `close`; until `replay` it is held back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.path = self._journal.path
        self._sending: Sending | None = None
        #: records that are not on disk here, and those that are and do not count: where each ends, and its number
        self._unsynced: deque[tuple[Place, int]] = deque()
        self._uncounted: deque[tuple[Place, int]] = deque()
        #: how many were written, and how many count
        self._records = self._shown = 0
        self._trouble: str | None = None
        #: what `take_news` gave last
        self._told: tuple[int, str | None] = (0, None)
        self._is_open = self._is_closed = False
        #: what the log has said last of why it can't be sent along
        self._complained = ""
        #: segments that nobody needs, and when they are tried again
        self._needless = Removal(journal.remove)
        self._remove_at = 0.0

    # ---- held back -------------------------------------------------------------------------------------------------
    @property
    def has_partner(self) -> bool:
        """Another scheduler has, or had, a copy of it."""
        return bool(self._journal.history.partner)

    @property
    def partner(self) -> str:
        """Where that is."""
        return self._journal.history.partner

    @property
    def may_be_newest(self) -> bool:
        """Nobody is known to have a newer one.

        Whoever wrote it last went on alone in the end, or it was made by one that stood by.
        """
        return bool(self._journal.history.turns) and (self._journal.history.alone or self._journal.history.follows)

    def hold(self) -> None:
        """Don't write it before the other one was asked. Blocks. Raises `JournalError`."""
        copy, _ = self._journal.look()
        self._journal.sync()
        alone = self._journal.history.alone
        self._sending = Sending(copy, self._journal.lengths(), self.partner, is_held=True, alone=alone)

    # ---- a journal as any other ------------------------------------------------------------------------------------
    def replay(self, take: Callable[[Record, Place], None]) -> tuple[Layout, Damage | None]:
        """As that of `Journal`: whatever is there counts.

        What is written then counts alone as soon as enough agents are heard; at once if nobody has another copy, or
        that lacks something already.
        """
        layout, damage = self._journal.replay(take)
        copy = Copy(self._journal.history.turns, Place(layout.segment, layout.offset))
        self._sending = Sending(copy, self._journal.lengths(), self.partner, alone=self._journal.history.alone)
        self._is_open = True
        return layout, damage

    def fileno(self) -> int:
        """Readable when there are news."""
        return self._journal.fileno()

    def append(self, place: Place, buffers: list[Frame]) -> None:
        """Write a record at its place."""
        self._records += 1
        self._unsynced.append((Place(place.segment, place.offset + sum(map(len, buffers))), self._records))
        self._journal.append(place, buffers)

    def take_news(self) -> tuple[int, str | None]:
        """How many records count, from the first `append` on; and what keeps others from it, or None."""
        if not self._is_closed:
            self._take_synced()
        self._told = self._shown, self._trouble or self.sending.trouble
        return self._told

    def _take_synced(self) -> None:
        synced, self._trouble = self._journal.take_news()
        while self._unsynced and self._unsynced[0][1] <= synced:
            written = self._unsynced.popleft()
            self._uncounted.append(written)
            self.sending.written(*written[0])
        self.sending.count()
        self._see_what_counts()

    def _see_what_counts(self) -> None:
        while self._uncounted and self._uncounted[0][0] <= self.sending.counted:
            self._shown = self._uncounted.popleft()[1]

    def read(self, segment: int, offset: int, size: int) -> bytes:
        """Bytes that are on disk. Raises `JournalError`."""
        return self._journal.read(segment, offset, size)

    def remove(self, segment: int) -> None:
        """Remove a segment that nothing needs any more, as soon as the other one does not need it either."""
        self.sending.remove(segment)

    @property
    def room(self) -> float:
        """Bytes that may be written to this one's disk, but for a reserve."""
        return self._journal.room

    def measure_room(self) -> None:
        """Find out how much room there is; there are news then."""
        self._journal.measure_room()

    def close(self, timeout: float = ENDING) -> None:
        """Write what waits, and let somebody else have it; what was written can still be sent."""
        if self._is_closed:
            return
        self._journal.close(timeout)
        if self._is_open:
            self._take_synced()
        self._is_closed = True

    # ---- sending it along ------------------------------------------------------------------------------------------
    @property
    def sending(self) -> Sending:
        """What is sent, and what counts."""
        assert self._sending is not None
        return self._sending

    def meet(self, partner: str) -> None:
        """The other one can be spoken to. If this is closed that matters only to one that has a copy: it gets the rest.

        A directory that nobody writes here any more can't be marked: the other one would take it for its own.
        """
        if self._is_closed and not self.has_partner:
            return
        self.sending.meet(self._journal.draw() | 1, partner)

    def hear(self, message: JournalState | JournalSynced, now: float) -> None:
        """The other one says something."""
        self.sending.hear(message, now)

    def attend(self, now: float, may_be_alone: bool) -> tuple[list[Wish], bool]:
        """Time has passed; what is left to others, and whether `take_news` has any."""
        found: list[Wish] = []
        self.sending.tick(now, may_be_alone)
        wishes, is_over = deque(self.sending.take()), False
        while wishes:
            wish = wishes.popleft()
            if is_over and isinstance(wish, (ev.Say, ev.Send)):
                continue  # it belongs to a stream of which something is missing
            try:
                self._carry_out(wish, found)
            except (OSError, ScalerError) as error:
                is_over, why = True, refusal(error)
                if why != self._complained:
                    self._complained = why
                    found.append(Log("ERROR", f"Journal: it can't be sent along: {why}"))
                self.sending.fail()
                wishes.extend(self.sending.take())
        if self.sending.is_in_step:
            self._complained = ""
        if self._needless and now >= self._remove_at:
            found += self._needless.run()
            self._remove_at = now + AGAIN if self._needless else 0.0
        self._see_what_counts()
        return found, self._is_open and self._told != (self._shown, self._trouble or self.sending.trouble)

    def _carry_out(self, wish: ev.SenderWish, found: list[Wish]) -> None:
        if isinstance(wish, ev.Send):
            message, size = wish.message, wish.size
            message.bodies = [self._journal.read(message.segment, message.offset, size) if size else b""]
            found.append(message)
        elif isinstance(wish, ev.Say):
            found.append(wish.message)
        elif isinstance(wish, ev.Mark):
            if not self._is_closed:
                self._journal.mark(wish.number)
        elif isinstance(wish, ev.Keep):
            said = self._journal.history
            kept = replace(said, partner=wish.partner, alone=wish.alone, follows=False, is_shared=wish.is_shared)
            if kept != said:
                self._journal.keep_history(kept)
        elif isinstance(wish, ev.Unlink):
            self._needless.add(wish.segment)
        else:
            found.append(wish)

    def end(self) -> None:
        """Nothing is sent any more."""
        self.close()
        self._journal.close()  # and what was read since
