"""What passes between the journals of two schedulers, as far as their process is concerned: who has and says what.

At most one of three is here: a journal that is written and sent along, one that is held back until it is known that the
other one has no newer copy, or a copy that follows what the other one writes. While one is opened (`opening.py`)
none is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from scaler.common.attempts import growing_pause
from scaler.common.effects import Log
from scaler.common.records import record
from scaler.journal.directory import Directory
from scaler.journal.journal import Journal
from scaler.protocol.messages import JournalSlice, JournalStart, JournalState, JournalSynced
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.copied_journal import CopiedJournal
from scaler.scheduler.copies.follower import Follower
from scaler.scheduler.copies.opening import Known, Opening
from scaler.scheduler.succession import Succession

#: seconds for which a journal is held back until the other scheduler is heard, if it may have an older copy; for as
#: long as it takes if no agent has come: those who know of the other one come only if more than half of them do
GRACE = 5.0
#: seconds until one that has a newer copy is asked again to lead, or for its copy, when the last two streams came to
#: nothing: twice as long each time that another one does, and this at most
RETRY, MOST_RETRY = 1.0, 60.0
#: seconds until one that has not answered is asked for its copy again: the connection that it answered over may be lost
#: while ours is not. Twice as long each time, as a large copy takes a while to be looked at
ANSWER = 3.0

#: how the other one is spoken to: it changes with each connection
Route = tuple[str, int]


@record
class Attended:
    """What is to be done now."""

    #: to be said to the other one, in order; over the route that was given
    said: list[ev.Said] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    #: why the connection to the other one is of no use
    rejection: str = ""
    #: more of what was written counts than before, or the disk has come to refuse it
    has_news: bool = False
    #: the journal that was held back is to be opened
    opens: bool = False

    def take(self, wish: ev.Said | ev.Reject | Log) -> None:
        """This is to be done, too."""
        if isinstance(wish, Log):
            self.logs.append(wish)
        elif isinstance(wish, ev.Reject):
            self.rejection = wish.reason
        else:
            self.said.append(wish)


class Copies:
    """Of a scheduler that may be one of a pair, and keeps a journal. Not thread-safe."""

    def __init__(
        self,
        path: str | Path,
        succession: Succession,
        open_journal: Callable[[Path], Journal] = Journal,
        open_follower: Callable[[Path], Follower] = Follower,
    ) -> None:
        self._path = Path(path)
        self._succession = succession
        self._open_journal = open_journal
        self._open_follower = open_follower
        self.journal: CopiedJournal | None = None
        #: that is held back, until when; None: for as long as it takes
        self.is_held = False
        self._until: float | None = None
        #: it is to be held back though it does not say who may have a newer one; it is known that nobody has
        self._must_ask = self._is_newest = False
        #: until when whoever asks for jobs may wait for that
        self._brief_until: float | None = None
        self.follower: Follower | None = None
        #: a copy was made here that could not be looked at when it was to be used: whether it was in step then
        self._unseen: bool | None = None
        self._route: Route | None = None
        #: when the other one is asked for its copy; None: it was, and has answered, or there is nobody to ask
        self._ask_at: float | None = None
        #: it is not asked before this, as so many streams came to nothing
        self._not_before = 0.0
        self._failures = 0
        #: seconds for which an answer is waited for next
        self._patience = ANSWER
        #: the journal is not written here any more, and the other one gets the rest
        self._hands_over = False

    # ---- who has which ---------------------------------------------------------------------------------------------
    def begin(self, now: float, asks: bool = False, may_hold: bool = False) -> Opening:
        """Open the journal of a scheduler that leads: beside the loop, which has none of it until `opened`.

        `asks`: if this copy may not be the newest it is held back until the other one was asked; `may_hold`: if there
        is another copy.
        """
        succession, follower = self._succession, self.follower
        in_step = self._unseen if follower is None else follower.is_in_step(now)
        is_in_step = bool(in_step)
        if is_in_step and follower is not None and not succession.hands_out:
            succession.sure_until = follower.in_step_until
        known = Known(
            succession.partner,
            asks,
            succession.hears_partner(now),
            may_hold,
            self._must_ask,
            in_step is not None,
            is_in_step,
            self.is_held and not self._is_newest,
        )
        if self.journal is not None and not self.is_held:  # it was handed over, and nobody has taken it
            self.journal.end()
            self.journal = None
        opening = Opening(self._path, known, self._open_journal, self.journal, follower)
        self.journal = self.follower = None
        self.is_held, self._until, self._brief_until = False, None, None
        return opening

    def opened(self, opening: Opening, now: float) -> None:
        """What came of it, if it is not known to be discarded: a journal that can be used, or is held back."""
        self._route, self._hands_over = None, False
        self._unseen = opening.known.in_step if opening.is_unseen else None
        self.journal, self.is_held, self._must_ask = opening.journal, opening.is_held, opening.must_ask
        if self.journal is not None and self.is_held:
            self._brief_until = now + GRACE
            self._until = now + GRACE if self.journal.may_be_newest else None

    @property
    def is_shared(self) -> bool:
        """Both schedulers were given this directory, when somebody wrote it last."""
        return Directory(self._path).history().is_shared

    def follow(self) -> Follower:
        """Make a copy of what the other one writes."""
        self.follower, self._unseen = self._open_follower(self._path), None
        return self.follower

    @property
    def reason(self) -> str:
        """Why durable jobs are not kept yet, though a journal is there."""
        partner = (self.journal.partner if self.journal is not None else "") or self._succession.partner
        return (
            f"durable jobs are not kept yet: the scheduler at {partner} may have a newer copy of the journal; "
            f"start it, or say that this one is to be used: scaler promote {self._succession.address}"
        )

    def is_waiting_briefly(self, now: float) -> bool:
        """Whoever asks for jobs may wait: this is likely to be settled in a moment."""
        return self._brief_until is not None and now < self._brief_until

    # ---- what passes -----------------------------------------------------------------------------------------------
    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened."""
        due: list[float | None] = [self._until, self._brief_until]
        if self.journal is not None:
            due += [self.journal.sending.wake, self._ask_at]
        if self.follower is not None:
            due.append(self.follower.wake)
        return min((each for each in due if each is not None), default=None)

    def hear(self, message: ev.Said, now: float) -> None:
        """The other one has said something about its journal."""
        journal, follower = self.journal, self.follower
        if journal is not None and isinstance(message, (JournalState, JournalSynced)):
            was_asked = journal.sending.is_asked
            journal.hear(message, now)
            if was_asked and not journal.sending.is_asked:
                self._ask_at, self._patience = None, ANSWER
        elif follower is not None and isinstance(message, (JournalState, JournalStart, JournalSlice)):
            follower.hear(message, self._succession.partner, now)

    def attend(self, route: Route | None, now: float) -> Attended:
        """Time has passed, or something was heard or written; `route`: how the other one can be spoken to."""
        if not self.is_waiting_briefly(now):
            self._brief_until = None
        if self.journal is not None:
            return self._lead(self.journal, route, now)
        attended = Attended()
        for wish in [] if self.follower is None else self.follower.attend(now):
            attended.take(wish)
        return attended

    def _lead(self, journal: CopiedJournal, route: Route | None, now: float) -> Attended:
        succession = self._succession
        if not succession.has_standby(now):
            route = None
        is_new = route != self._route
        if is_new:  # whoever was asked over another one may never have heard it
            self._route, self._patience = route, ANSWER
            journal.sending.part(for_good=route is None and succession.is_alone)
        has_failed = self._has_failed(journal.sending.failures, now)
        if route is None:
            self._ask_at = None
        elif is_new or has_failed:
            self._ask_at = max(now, self._not_before)
        if self._ask_at is not None and now >= self._ask_at:
            journal.meet(succession.partner)
            self._ask_at, self._patience = now + self._patience, 2 * self._patience
        may_be_alone = succession.may_be_alone(now, asks=journal.sending.is_silent(now))
        wishes, has_news = journal.attend(now, may_be_alone)
        if self._until is not None and now >= self._until and (route is not None or not succession.has_agents):
            self._until = now + RETRY  # it is there, and looks at a large copy perhaps; or all agents may be there
        attended = Attended(has_news=has_news, opens=self._until is not None and now >= self._until)
        for wish in wishes:
            if isinstance(wish, ev.Open):
                attended.opens = self._is_newest = True
            elif isinstance(wish, ev.Yield):
                self._yield(now)
            else:
                attended.take(wish)
        self._tell_succession(journal, now)
        return attended

    def _has_failed(self, failures: int, now: float) -> bool:
        """Whether another stream came to nothing. The more do, the longer are pauses: each look reads all of a copy."""
        before, self._failures = self._failures, failures
        if failures > before:
            self._not_before = now + (growing_pause(failures - 1, RETRY, MOST_RETRY) if failures > 1 else 0.0)
        return failures > before

    def _yield(self, now: float) -> None:
        """The other one has the newer copy."""
        if self._succession.hand_over(0, 0, now, is_forced=True):
            self._ask_at = now + RETRY
        self._until, self._brief_until = None, now + GRACE

    def _tell_succession(self, journal: CopiedJournal, now: float) -> None:
        succession, sending = self._succession, journal.sending
        if self._hands_over:
            if sending.is_flushed:
                succession.rest_is_there(now)
            return
        succession.journal.is_copied = sending.is_copied
        succession.journal.is_copy_in_step = sending.is_in_step

    def hand_over(self) -> None:
        """The journal is closed here: the other one gets what it has not, and leads then."""
        self._hands_over = True

    def close(self) -> None:
        """End it, when the loop has ended. Blocks for a moment."""
        if self.journal is not None:
            self.journal.end()
            self.journal = None
        if self.follower is not None:
            self.follower.close()
            self.follower = None
