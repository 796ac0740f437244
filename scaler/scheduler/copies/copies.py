"""What passes between the journals of two schedulers, as far as their process is concerned: who has and says what.

At most one of three is here: a journal that is written and sent along, one that is held back until it is known that the
other one has no newer copy, or a copy that follows what the other one writes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from scaler.common.effects import Log
from scaler.protocol.messages import JournalSlice, JournalStart, JournalState, JournalSynced
from scaler.scheduler.copies import events as ev
from scaler.scheduler.copies.copied_journal import CopiedJournal
from scaler.scheduler.copies.follower import Follower
from scaler.scheduler.succession import Succession

#: seconds for which a journal is held back until the other scheduler is heard, if it may have an older copy
GRACE = 5.0
#: seconds until one that has a newer copy is asked again to lead, or for its copy, when the last two streams came to
#: nothing: twice as long each time that another one does, and this at most
RETRY, MOST_RETRY = 1.0, 60.0
#: seconds until one that has not answered is asked for its copy again: the connection that it answered over may be lost
#: while ours is not. Twice as long each time, as a large copy takes a while to be looked at
ANSWER = 3.0

#: how the other one is spoken to: it changes with each connection
Route = tuple[str, int]


class Attended(NamedTuple):
    """What is to be done now."""

    #: to be said to the other one, in order; over the route that was given
    said: list[ev.Said]
    logs: list[Log]
    #: why the connection to the other one is of no use
    rejection: str = ""
    #: more of what was written counts than before, or the disk has come to refuse it
    has_news: bool = False
    #: the journal that was held back is to be opened
    opens: bool = False


class Copies:
    """Of a scheduler that may be one of a pair, and keeps a journal. Not thread-safe."""

    def __init__(self, path: str | Path, succession: Succession) -> None:
        self._path = Path(path)
        self._succession = succession
        self.journal: CopiedJournal | None = None
        #: that is held back, until when; None: for as long as it takes
        self.is_held = False
        self._until: float | None = None
        #: until when whoever asks for jobs may wait for that
        self._brief_until: float | None = None
        self.follower: Follower | None = None
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
    def open(self, may_hold: bool, now: float) -> CopiedJournal | None:
        """The journal of a scheduler that leads; None if it is held back. Blocks. Raises `JournalError`."""
        self._route, self._hands_over = None, False
        if self.journal is None:
            self.journal = CopiedJournal(self._path)
            if may_hold and self.journal.has_partner:
                try:
                    self.journal.hold()
                except BaseException:
                    self.journal.end()
                    self.journal = None
                    raise
                self.is_held = True
                self._brief_until = now + GRACE
                self._until = now + GRACE if self.journal.was_alone else None
                return None
        self.is_held, self._until, self._brief_until = False, None, None
        return self.journal

    def discard(self) -> None:
        """The journal could not be read: it is opened anew when it is tried again."""
        if self.journal is not None:
            self.journal.end()
            self.journal = None

    def follow(self) -> Follower:
        """Make a copy of what the other one writes."""
        self.follower = Follower(self._path)
        return self.follower

    def succeed(self, now: float) -> list[Log]:
        """This one leads from now on, with its copy; what there is to be said of that. Blocks."""
        follower, self.follower = self.follower, None
        if follower is None:
            return []
        in_step = follower.is_in_step(now)
        has_ended = follower.close()
        self._route = None
        from scaler.journal.directory import Directory

        directory = Directory(self._path)
        history = directory.history()
        logs = [] if has_ended else [Log("ERROR", f"Journal: the disk of {self._path} does not answer")]
        if in_step:
            return [*logs, Log("INFO", f"Journal: the copy in {self._path} has all that counts")]
        if not history.follows:
            return logs
        since = directory.written_last()
        when = "" if since is None else time.strftime(", %Y-%m-%d %H:%M:%S,", time.localtime(since))
        text = (
            f"Journal: the copy in {self._path} is not known to be in step with that of {history.partner}: "
            f"jobs and results may be missing that came after its last record{when} was written"
        )
        return [*logs, Log("WARNING", text)]

    @property
    def reason(self) -> str:
        """Why durable jobs are not kept yet, though a journal is there."""
        partner = self.journal.partner if self.journal is not None else ""
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
        follower = self.follower
        if follower is None:
            return Attended([], [])
        if route != self._route:
            self._route = route
            follower.part()
        said: list[ev.Said] = []
        logs: list[Log] = []
        rejection = ""
        for wish in follower.attend(now):
            if isinstance(wish, Log):
                logs.append(wish)
            elif isinstance(wish, ev.Reject):
                rejection = wish.reason
            else:
                said.append(wish)
        return Attended(said, logs, rejection)

    def _lead(self, journal: CopiedJournal, route: Route | None, now: float) -> Attended:
        succession = self._succession
        if not succession.has_standby(now):
            route = None
        is_new = route != self._route
        if is_new:
            self._route = route
            journal.sending.part(now, for_good=route is None and not succession.is_paired)
        has_failed = self._has_failed(journal.sending.failures, now)
        if route is None:
            self._ask_at = None
        elif is_new or has_failed:
            self._ask_at = max(now, self._not_before)
        if self._ask_at is not None and now >= self._ask_at:
            journal.meet(succession.partner, now)
            self._ask_at, self._patience = now + self._patience, 2 * self._patience
        wishes, has_news = journal.attend(now, succession.hands_out)
        said: list[ev.Said] = []
        logs: list[Log] = []
        rejection, opens = "", self._until is not None and now >= self._until
        for wish in wishes:
            if isinstance(wish, Log):
                logs.append(wish)
            elif isinstance(wish, ev.Reject):
                rejection = wish.reason
            elif isinstance(wish, ev.Open):
                opens = True
            elif isinstance(wish, ev.Yield):
                self._yield(now)
            else:
                said.append(wish)
        self._tell_succession(journal, now)
        return Attended(said, logs, rejection, has_news, opens)

    def _has_failed(self, failures: int, now: float) -> bool:
        """Whether another stream came to nothing. The more do, the longer are pauses: each look reads all of a copy."""
        before, self._failures = self._failures, failures
        if failures > before:
            self._not_before = now + (min(MOST_RETRY, RETRY * 2.0 ** min(failures - 2, 30)) if failures > 1 else 0.0)
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
        succession.copies = sending.is_copied
        succession.is_copy_in_step = sending.is_in_step

    def hand_over(self) -> None:
        """The journal is closed here: the other one gets what it has not, and leads then."""
        self._hands_over = True

    def close(self) -> None:
        """End it, when the loop has ended. Blocks for a moment."""
        self.discard()
        if self.follower is not None:
            self.follower.close()
            self.follower = None
