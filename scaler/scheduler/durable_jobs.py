"""The durable jobs of a scheduler's process: whether they are kept here, and what the journals of a pair have to say.

A journal is opened when this scheduler leads, and closed when it hands over; one that may be older than the partner's
copy is held back until that is known (`copies`). Meanwhile whoever asks for jobs waits, or is told why there are none.
A thread opens it (`jobs_opener.py`): a disk that hangs holds up durable jobs, and nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from scaler.common.effects import Log
from scaler.common.loop import Loop
from scaler.protocol.messages import Copying, JournalState
from scaler.scheduler.composition import Composition
from scaler.scheduler.jobs_opener import JobsOpener, Opened
from scaler.scheduler.pairing import AboutJournals
from scaler.scheduler.partner import Partner
from scaler.scheduler.succession import Succession

if TYPE_CHECKING:
    from scaler.scheduler.copies.copied_journal import CopiedJournal
    from scaler.scheduler.copies.copies import Copies
    from scaler.scheduler.copies.opening import Opening
    from scaler.scheduler.jobs.keeper import JobKeeper

#: seconds between looks whether a journal can be had that somebody else writes
JOURNAL_PAUSE = 0.5
#: seconds for which whoever asks for jobs waits for that, or until it is opened; then the log says what is waited for
BRIEF = 5.0
#: seconds for which everybody waits until it is opened, as it mostly is by then
BLINK = 0.2
#: seconds that each of its disks is given when it is left to the partner, who would miss this scheduler after 2.5
LEAVING = 0.5


class Shell(Protocol):
    """What is left to the process."""

    @property
    def loop(self) -> Loop:
        """What wakes it."""

    def new_opener(self) -> JobsOpener:
        """What opens the journal."""

    @property
    def directories(self) -> str:
        """Which are waited for then, in words."""

    def log(self, level: str, text: str) -> None:
        """Say something in the log."""


class DurableJobs:
    """Of one scheduler, which may be one of a pair. One thread."""

    def __init__(
        self,
        composition: Composition,
        shell: Shell,
        jobs: JobKeeper | None = None,
        copies: Copies | None = None,
        succession: Succession | None = None,
        partner: Partner | None = None,
    ) -> None:
        """`jobs` are kept from the beginning; `copies`: of their journal. A partner comes with a succession."""
        self._composition = composition
        self._shell = shell
        self._loop = shell.loop
        self._copies = copies
        self._succession = succession
        self._partner = partner
        self._jobs: JobKeeper | None = None
        self._opener: JobsOpener | None = None
        #: the journal is being opened, since when, and the log does not say so yet
        self._opening: Opening | None = None
        self._since = 0.0
        self._is_unsaid = False
        #: when the journal is tried again that somebody else writes, seconds; and what the log has said last of it
        self._due: float | None = None
        #: whether the partner is to be asked then for a newer copy, if that may be
        self._asks = False
        self._complained = ""
        #: until when whoever asks for jobs may wait for that; 0: it was not tried yet
        self._brief_until = 0.0
        #: why the last session with the partner was ended for what it said of its journal
        self._rejected = ""
        if jobs is not None:
            self._take(jobs)
        if copies is not None:
            self._begin_copies(copies)

    def _begin_copies(self, copies: Copies) -> None:
        """Hold the journal back until it is known that there is no newer copy, or make one."""
        self._see_whether_held(copies)
        if self._succession is not None and self._succession.leads:
            if self._jobs is None and not copies.is_held:
                self._due = 0.0  # the partner writes it, and leads
        elif self._succession is not None:
            follower = copies.follow()
            self._loop.watch(follower.fileno(), follower)

    def _see_whether_held(self, copies: Copies) -> None:
        if self._succession is not None:
            self._succession.journal.is_held = copies.is_held
        if copies.is_held:
            self._composition.await_residents(copies.reason, is_brief=True)
            self._shell.log("INFO", f"Journal: {copies.reason}")

    def _take(self, jobs: JobKeeper) -> None:
        self._jobs = jobs
        self._composition.lodge(jobs)
        for each in jobs.filenos():
            self._loop.watch(each, jobs)

    # ---- the loop --------------------------------------------------------------------------------------------------
    @property
    def wakes(self) -> tuple[float | None, ...]:
        """When something is due though nothing happened."""
        return (
            self._due,
            self._since + BRIEF if self._is_unsaid else None,
            None if self._jobs is None else self._jobs.wake,
            None if self._copies is None else self._copies.wake,
        )

    def attend(self, now: float) -> None:
        """Time has passed, something is on disk, or the partner has said something."""
        if self._due is not None and now >= self._due:
            self.keep(True, now, self._asks)
        if self._opening is not None:
            self._attend_to_opening(now)
        if self._jobs is not None and self._loop.ready.pop(self._jobs, self) is None:
            self._jobs.gather()
        if self._partner is None:
            return
        about = self._partner.take_about_journals()
        if self._copies is None:
            self._deny(self._partner, about)
        else:
            self._attend_to_copies(self._partner, self._copies, about, now)

    def _deny(self, partner: Partner, about: list[AboutJournals]) -> None:
        """Say that there is no copy here, if somebody wants to know."""
        for said in about:
            if isinstance(said, JournalState) and said.copying == Copying.LEADS:
                partner.tell(JournalState(said.stream, Copying.NONE))

    def _attend_to_copies(self, partner: Partner, copies: Copies, about: list[AboutJournals], now: float) -> None:
        for said in about:
            copies.hear(said, now)
            if isinstance(said, JournalState) and self._succession is not None:
                self._see_whether_kept(said, self._succession, partner)
        self._loop.ready.pop(copies.follower, None)
        attended = copies.attend(partner.route, now)
        self._log(attended.logs)
        for message in attended.said:
            partner.tell(message)
        if attended.rejection:
            self._reject(partner, attended.rejection, now)
        if attended.has_news and self._jobs is not None:
            self._jobs.gather()
        if copies.is_held:
            if attended.opens:
                self.keep(True, now)
            else:
                self._composition.await_residents(copies.reason, copies.is_waiting_briefly(now))

    def _see_whether_kept(self, said: JournalState, succession: Succession, partner: Partner) -> None:
        """The partner says what it has of a journal: it is not to be handed jobs that it can't keep."""
        keeps_none = said.copying == Copying.NONE
        if keeps_none and not said.trouble and not succession.journal.partner_keeps_none:
            advice = "it would lead without durable jobs; give it --journal DIRECTORY"
            self._shell.log("WARNING", f"Journal: the one at {partner.address} keeps none: {advice}")
        succession.journal.partner_keeps_none = keeps_none

    def _reject(self, partner: Partner, reason: str, now: float) -> None:
        if reason != self._rejected:  # it may come back with the same again and again
            self._rejected = reason
            self._shell.log("ERROR", f"Journal: the session with {partner.address} is ended: it {reason}")
        partner.reject(reason, now)

    # ---- here, or at the partner -----------------------------------------------------------------------------------
    def keep(self, here: bool, now: float, asks: bool = False) -> None:
        """Keep durable jobs from now on, or leave them to the partner. Blocks for a moment.

        `asks`: not before it is known that the partner has no newer copy, if this one's is not known to be the newest.
        """
        self._due = None
        if here and self._jobs is None and self._opening is None and self._copies is not None:
            self._open(self._copies, now, asks)
        elif not here and self._jobs is not None:
            self._leave(self._jobs)

    def _open(self, copies: Copies, now: float, asks: bool) -> None:
        if copies.follower is not None:
            self._loop.forget(copies.follower.fileno())
        opener = self._opener = self._opener or self._shell.new_opener()
        self._opening, self._since, self._asks = copies.begin(now, asks), now, asks
        opener.begin(self._opening)
        opener.wait(BLINK)
        self._attend_to_opening(now)
        if self._opening is not None:
            self._loop.watch(opener.fileno(), opener)
            self._is_unsaid = True
            self._set_opening(True)
            self._composition.await_residents("durable jobs are not kept yet: the journal is being read", is_brief=True)

    def _set_opening(self, is_opening: bool) -> None:
        if self._succession is not None:
            self._succession.journal.is_opening = is_opening

    def _attend_to_opening(self, now: float) -> None:
        assert self._opener is not None
        assert self._copies is not None
        self._loop.ready.pop(self._opener, None)
        done = self._opener.take()
        if done is not None:
            self._opening, self._is_unsaid = None, False
            self._loop.forget(self._opener.fileno())
            self._set_opening(False)
            self._copies.opened(done.opening, now)
            self._log(done.opening.logs)
            self._opened(self._copies, done, now)
        elif self._is_unsaid and now >= self._since + BRIEF:
            self._is_unsaid = False
            text = f"{self._shell.directories} can't be read: nothing has come of it for {BRIEF:.0f} s"
            self._shell.log("WARNING", f"Journal: {text}; durable jobs wait for it")
            self._composition.await_residents(f"durable jobs are not kept yet: {text}", is_brief=False)

    def _opened(self, copies: Copies, done: Opened, now: float) -> None:
        if done.error:
            reason = f"durable jobs are not kept yet: {done.error}"
            if reason != self._complained:
                self._complained = reason
                self._shell.log("ERROR", reason)
            self._due = now + JOURNAL_PAUSE
            self._brief_until = self._brief_until or now + BRIEF
            self._composition.await_residents(reason, is_brief=now < self._brief_until)
            return
        self._complained, self._brief_until = "", 0.0
        if done.jobs is not None:
            self._take(done.jobs)
        self._see_whether_held(copies)

    def _leave(self, jobs: JobKeeper) -> None:
        for each in jobs.filenos():
            self._loop.forget(each)
        self._composition.part_with_residents()
        self._jobs = None
        jobs.close(LEAVING)
        if self._copies is not None:
            self._copies.hand_over()

    def close(self) -> None:
        """End what they are written by, when the loop has ended; blocks for a moment."""
        if self._opener is not None:
            self._opener.close()
            self._set_opening(False)
        if self._jobs is not None:
            self._jobs.close()
        if self._copies is not None:
            self._copies.close()

    def _log(self, logs: list[Log]) -> None:
        for log in logs:
            self._shell.log(log.level, log.text)

    @property
    def journal(self) -> CopiedJournal | None:
        """That of one that leads, and has a copy, or will."""
        return None if self._copies is None else self._copies.journal
