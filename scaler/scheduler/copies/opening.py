"""A journal of one of a pair is opened: what that takes of the disk, apart from the loop, which a disk may hold up.

loop      Copies.begin     with what is known then; the journal that was held back, or the copy, goes along
thread    Opening.run      ends the copy, locks the journal, and sees whether it is to be held back
loop      Copies.opened    takes what came of it
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.errors import ScalerError
from scaler.journal.directory import Directory
from scaler.journal.journal import Journal
from scaler.scheduler.copies.copied_journal import CopiedJournal
from scaler.scheduler.copies.follower import Follower


class Abandoned(ScalerError):
    """Nobody wants it any more."""


@record
class Known:
    """What the loop knows when it begins."""

    #: where the other one is
    partner: str
    #: the other one is to be asked whether it has a newer copy, if that may be; it was heard a moment ago
    asks: bool
    hears: bool
    #: it is to be held back if there is another copy; it is in any case
    may_hold: bool
    must_ask: bool
    #: a copy was made here since the journal was opened last; whatever counts is in it
    has_followed: bool = False
    in_step: bool = False
    #: it was held back, nobody has said that there is no newer one, and it is to be used
    is_doubtful: bool = False


class Opening:
    """Of one journal, once. `run` and `discard` block, and are for any thread; the rest is for the loop."""

    def __init__(
        self,
        path: Path,
        known: Known,
        open_journal: Callable[[Path], Journal],
        journal: CopiedJournal | None = None,
        follower: Follower | None = None,
    ) -> None:
        """`journal`: it is held back, and locked. `follower` makes a copy there until now."""
        self.path = path
        self.known = known
        self._open_journal = open_journal
        self._follower = follower
        self._is_abandoned = threading.Event()
        #: what came of it: the journal, if it was opened or is held back; and what the log is to say
        self.journal = journal
        self.is_held = False
        self.must_ask = known.must_ask
        #: nobody has seen yet what the copy is that was made here
        self.is_unseen = known.has_followed
        self.logs: list[Log] = []

    def run(self) -> CopiedJournal | None:
        """The journal, locked and to be read; None if it is held back. Raises `ScalerError`, and OSError."""
        if self._follower is not None:
            self._end_following(self._follower)
        if self.is_unseen:
            self._see_copy()
        elif self.known.is_doubtful:
            self.logs.append(self._warning())
        self._see_whether_wanted()
        journal = self.journal
        if journal is None:
            journal = self.journal = CopiedJournal(self._open_journal(self.path))
            if self.must_ask or (self.known.may_hold and journal.has_partner):
                journal.hold()
                self.is_held = True
                return None
        self._see_whether_wanted()
        self.must_ask = False
        return journal

    def _see_whether_wanted(self) -> None:
        """Before anything is changed: the one who wanted it may stand by again."""
        if self._is_abandoned.is_set():
            raise Abandoned(f"the disk of {self.path} has answered too late")

    def _end_following(self, follower: Follower) -> None:
        while not follower.close():  # its disk does not answer, and what it is at may still come there
            self._see_whether_wanted()
        self._follower = None

    def _see_copy(self) -> None:
        """One that was made by following is not held back for a partner that is gone."""
        history = Directory(self.path).history()
        if self.known.in_step and history.turns:
            self.logs.append(Log("INFO", f"Journal: the copy in {self.path} has all that counts"))
        elif not history.turns or history.partner:  # otherwise both write the same one, or nobody has another copy
            if self.known.in_step:  # somebody has removed it, or its disk is not there, and an empty directory is
                text = f"Journal: the copy in {self.path} had all that counts, and is not there any more"
                self.logs.append(Log("ERROR", text))
            self.must_ask = self.known.asks and (self.known.hears or not history.follows)
            if not self.must_ask:
                self.logs.append(self._warning())
        self.is_unseen = False

    def _warning(self) -> Log:
        """What is said when this copy is used though another one may be newer."""
        directory = Directory(self.path)
        partner = directory.history().partner or self.known.partner
        since = directory.written_last()
        when = "" if since is None else time.strftime(", %Y-%m-%d %H:%M:%S,", time.localtime(since))
        text = (
            f"Journal: the copy in {self.path} is not known to be in step with that of {partner}: "
            f"jobs and results may be missing that came after its last record{when} was written"
        )
        return Log("WARNING", text)

    def abandon(self) -> None:
        """Nobody waits for it any more. Does not block."""
        self._is_abandoned.set()

    def discard(self) -> None:
        """It could not be read, or is not wanted any more: somebody else can have it."""
        journal, self.journal, self.is_held = self.journal, None, False
        if journal is not None:
            journal.end()
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
