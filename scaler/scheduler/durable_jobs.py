"""The durable jobs of a scheduler's process: whether they are kept here, and what the journals of a pair have to say.

A journal is opened when this scheduler leads, and closed when it hands over; one that may be older than the partner's
copy is held back until that is known (`copies`). Meanwhile whoever asks for jobs waits, or is told why there are none.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from scaler.common.effects import Log
from scaler.config import SchedulerConfig
from scaler.errors import ScalerError
from scaler.protocol.messages import Copying, JournalState
from scaler.scheduler.composition import Composition
from scaler.scheduler.pairing import AboutJournals
from scaler.scheduler.partner import Partner
from scaler.scheduler.residents import Residents
from scaler.scheduler.succession import Succession

if TYPE_CHECKING:
    from scaler.scheduler.copies.copied_journal import CopiedJournal
    from scaler.scheduler.copies.copies import Copies

logger = logging.getLogger("scaler.scheduler")

#: seconds between looks whether a journal can be had that somebody else writes
JOURNAL_PAUSE = 0.5
#: seconds for which whoever asks for jobs waits for that
BRIEF = 5.0


class Jobs(Residents, Protocol):
    """The durable jobs of a scheduler, as far as its process is concerned."""

    @property
    def wake(self) -> float | None:
        """When they should be looked after though nothing happened."""

    def filenos(self) -> list[int]:
        """Readable when more of them is on disk."""

    def gather(self) -> None:
        """Take in what is on disk; never blocks."""

    def close(self) -> None:
        """End what they are written by; blocks for a moment."""


def open_jobs(config: SchedulerConfig, copies: Copies | None = None, may_hold: bool = False) -> Jobs | None:
    """The durable jobs of a scheduler that keeps a journal, of which the other one of a pair may have copies.

    None if there is no journal, or it is held back, if it may be. Blocks while it is read. Raises `JournalError`.
    """
    if config.journal is None:
        return None
    from scaler.journal.journal import Journal  # here, as few want it and all would load it
    from scaler.scheduler.jobs.jobs_core import JobTerms
    from scaler.scheduler.jobs.keeper import JobKeeper

    begun = time.monotonic()
    copied = None if copies is None else copies.open(may_hold, begun)
    if copies is not None and copied is None:
        return None
    journal = Journal(config.journal) if copied is None else copied
    terms = JobTerms(
        config.heartbeat_interval, time.time() - begun, config.journal_quota, config.job_age, config.results_quota,
        config.max_message_bytes,
    )  # fmt: skip
    files = None
    if config.results is not None:
        from scaler.scheduler.jobs.result_files import ResultFiles

        files = ResultFiles(config.results, config.journal)
    try:
        keeper = JobKeeper(journal, terms, files, lambda: copied is None or not copied.has_partner)
    except BaseException:
        journal.close()
        if files is not None:
            files.close()
        if copies is not None:
            copies.discard()
        raise
    if keeper.damage is not None:
        logger.log(logging.INFO if keeper.damage.is_cut else logging.WARNING, "Journal: %s", keeper.damage)
    took = time.monotonic() - begun
    logger.info("Journal: %s has %d jobs; %d records read in %.2f s", journal.path, keeper.jobs, keeper.replayed, took)
    if files is not None:
        logger.info("Journal: large results are files in %s", keeper.results)
    return keeper


class Watching(Protocol):
    """What of a loop is used."""

    ready: dict[object, None]

    def watch(self, fd: int, source: object) -> None:
        """Put `source` into `ready` when this can be read."""

    def forget(self, fd: int) -> None:
        """Stop watching."""


class Shell(Protocol):
    """What is left to the process."""

    @property
    def loop(self) -> Watching:
        """What wakes it."""

    def open_jobs(self) -> Jobs | None:
        """The durable jobs of one that leads; None without a journal. Blocks while it is read. Raises `ScalerError`."""

    def log(self, level: str, text: str) -> None:
        """Say something in the log."""


class DurableJobs:
    """Of one scheduler, which may be one of a pair. One thread."""

    def __init__(
        self,
        composition: Composition,
        shell: Shell,
        jobs: Jobs | None = None,
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
        self._jobs: Jobs | None = None
        #: when the journal is tried again that somebody else writes, seconds; and what the log has said last of it
        self._due: float | None = None
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
            self._succession.holds_jobs = copies.is_held
        if copies.is_held:
            self._composition.await_residents(copies.reason, is_brief=True)
            self._shell.log("INFO", f"Journal: {copies.reason}")

    def _take(self, jobs: Jobs) -> None:
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
            None if self._jobs is None else self._jobs.wake,
            None if self._copies is None else self._copies.wake,
        )

    def attend(self, now: float) -> None:
        """Time has passed, something is on disk, or the partner has said something."""
        if self._due is not None and now >= self._due:
            self.keep(True, now)
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

    def _reject(self, partner: Partner, reason: str, now: float) -> None:
        if reason != self._rejected:  # it may come back with the same again and again
            self._rejected = reason
            self._shell.log("ERROR", f"Journal: the session with {partner.address} is ended: it {reason}")
        partner.reject(reason, now)

    # ---- here, or at the partner -----------------------------------------------------------------------------------
    def keep(self, here: bool, now: float, asks: bool = False) -> None:
        """Keep durable jobs from now on, or leave them to the partner. Blocks while the journal is read or closed.

        `asks`: not before it is known that the partner has no newer copy, if this one's is not known to be the newest.
        """
        self._due = None
        if here and self._jobs is None:
            self._open(now, asks)
        elif not here and self._jobs is not None:
            self._leave(self._jobs)

    def _open(self, now: float, asks: bool) -> None:
        copies = self._copies
        if copies is not None:
            if copies.follower is not None:
                self._loop.forget(copies.follower.fileno())
            self._log(copies.succeed(now, asks))
        try:
            opened = self._shell.open_jobs()
        except ScalerError as error:
            reason = f"durable jobs are not kept yet: {error}"
            if reason != self._complained:
                self._complained = reason
                self._shell.log("ERROR", reason)
            self._due = now + JOURNAL_PAUSE
            self._brief_until = self._brief_until or now + BRIEF
            self._composition.await_residents(reason, is_brief=now < self._brief_until)
            return
        self._complained, self._brief_until = "", 0.0
        if opened is not None:
            self._take(opened)
        if copies is not None:
            self._see_whether_held(copies)

    def _leave(self, jobs: Jobs) -> None:
        for each in jobs.filenos():
            self._loop.forget(each)
        self._composition.part_with_residents()
        self._jobs = None
        jobs.close()
        if self._copies is not None:
            self._copies.hand_over()

    def close(self) -> None:
        """End what they are written by, when the loop has ended; blocks for a moment."""
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
