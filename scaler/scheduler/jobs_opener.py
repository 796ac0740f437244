"""Opening the journal of durable jobs: a thread does it, as a disk that hangs, or a large journal, may take its time.

Whoever gives it up does not wait for it: what comes of it in the end is closed again.
"""

from __future__ import annotations

import contextlib
import logging
import select
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from scaler.common.host_memory import available_memory
from scaler.common.side_thread import SideThread
from scaler.config import SchedulerConfig

if TYPE_CHECKING:
    from scaler.scheduler.copies.opening import Opening
    from scaler.scheduler.jobs.keeper import JobKeeper

logger = logging.getLogger("scaler.scheduler")

#: the rows of durable jobs may take this part of the memory that the scheduler may use
ROWS_PART = 4
#: seconds that an opening which is not wanted any more is waited for
ENDING = 1.0


def open_jobs(config: SchedulerConfig, opening: Opening | None = None) -> JobKeeper | None:
    """The durable jobs of a scheduler that keeps a journal, of which the other one of a pair may have a copy.

    None if there is no journal, or it is held back. Blocks while it is read, in any thread. Raises `JournalError`.
    """
    if config.journal is None:
        return None
    from scaler.journal.journal import Journal  # here, as few want it and all would load it
    from scaler.scheduler.jobs.jobs_core import JobTerms
    from scaler.scheduler.jobs.keeper import JobKeeper

    begun = time.monotonic()
    with contextlib.ExitStack() as undo:
        if opening is not None:
            undo.callback(opening.discard)
        copied = None if opening is None else opening.run()
        if opening is not None and copied is None:
            undo.pop_all()
            return None
        journal = Journal(config.journal) if copied is None else copied
        undo.callback(journal.close)
        terms = JobTerms(
            config.heartbeat_interval, time.time() - begun, config.journal_quota, config.job_age, config.results_quota,
            config.max_message_bytes, config.client_timeout, available_memory() // ROWS_PART,
        )  # fmt: skip
        files = None
        if config.results is not None:
            from scaler.scheduler.jobs.result_files import ResultFiles

            files = ResultFiles(config.results, config.journal)
            undo.callback(files.close)
        keeper = JobKeeper(journal, terms, files, lambda: copied is None or not copied.has_partner)
        undo.pop_all()
    if keeper.damage is not None:
        if keeper.damage.is_cut:
            logger.info("Journal: %s", keeper.damage)
        else:
            logger.warning("Journal: %s: they are moved to %s/aside", keeper.damage, journal.path)
    took = time.monotonic() - begun
    logger.info("Journal: %s has %d jobs; %d records read in %.2f s", journal.path, keeper.jobs, keeper.replayed, took)
    if files is not None:
        logger.info("Journal: large results are files in %s", keeper.results)
    return keeper


class Opened(NamedTuple):
    """What came of it."""

    opening: Opening
    #: None if it is held back, or could not be opened, for this reason
    jobs: JobKeeper | None
    error: str = ""


class JobsOpener:
    """Opens one after the other, in a thread. For one thread beside that."""

    def __init__(self, open_jobs: Callable[[Opening], JobKeeper | None]) -> None:
        """`open_jobs` may block; it raises `ScalerError` and OSError, and has nothing open then."""
        self._open_jobs = open_jobs
        self._thread: SideThread[Opening, Opened] = SideThread("scaler-opening", self._do, self._fail)
        self._opening: Opening | None = None

    def fileno(self) -> int:
        """Readable when something came of it."""
        return self._thread.fileno()

    def begin(self, opening: Opening) -> None:
        """Open this; what was begun before has ended. Does not block."""
        self._opening = opening
        self._thread.put_by(opening)

    def wait(self, seconds: float) -> None:
        """Block until something came of it, and not for longer than this."""
        poll = select.poll()
        poll.register(self._thread.fileno(), select.POLLIN)
        poll.poll(1000 * seconds)

    def take(self) -> Opened | None:
        """What came of it."""
        found = self._thread.take()
        return found[0] if found else None

    def close(self) -> None:
        """Nobody waits for it any more. Blocks for a moment."""
        if self._opening is not None:
            self._opening.abandon()
        if self._thread.close(ENDING):
            if self._opening is not None and not self._thread.has_begun:
                self._opening.discard()
            for opened in self._thread.take():
                _close(opened.opening, opened.jobs)

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _do(self, opening: Opening) -> None:
        jobs = self._open_jobs(opening)
        if self._thread.is_closing.is_set():
            _close(opening, jobs)
        else:
            self._thread.tell(Opened(opening, jobs))

    def _fail(self, opening: Opening, error: Exception) -> None:
        from scaler.journal.directory import refusal  # here, as few want it and all would load it

        self._thread.tell(Opened(opening, None, refusal(error)))


def _close(opening: Opening, jobs: JobKeeper | None) -> None:
    if jobs is not None:
        jobs.close()
    opening.discard()
