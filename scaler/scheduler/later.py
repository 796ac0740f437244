"""The modules that a scheduler starts without, and may need later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler.config import SchedulerConfig

#: each behind those that it imports
LATER = (
    "scaler.scheduler.core.relaying",
    "scaler.protocol.messages.cluster_view",
    "scaler.scheduler.views.demand",
    "scaler.scheduler.core.explaining",
    "scaler.scheduler.views.task_pages",
    "scaler.scheduler.core.answering",
    "scaler.scheduler.core.commanding",
    "scaler.scheduler.core.rebuilding",
    "queue",
    "scaler.common.side_thread",
    "scaler.scheduler.missing_agents",
    "scaler.protocol.views",
    "scaler.scheduler.views.cluster_view",
    "scaler.scheduler.state.validate",
)
#: of one that may be one of a pair
OF_PAIRS = (
    "scaler.scheduler.roster",
    "scaler.scheduler.votes",
    "scaler.scheduler.pair_journal",
    "scaler.scheduler.succession",
    "scaler.scheduler.pairing",
    "scaler.scheduler.jobs_opener",
    "scaler.scheduler.partner",
    "scaler.scheduler.durable_jobs",
    "scaler.protocol.initiator",
    "scaler.scheduler.partner_link",
    "scaler.journal",
    "scaler.journal.records",
    "scaler.journal.layout",
    "scaler.journal.history",
    "scaler.journal.directory",
    "scaler.transport.zeromq",  # not at the start, if all come by local sockets
)
#: what `jobs_opener.open_jobs` loads; and what if large results are files
OF_JOURNALS = (
    "hmac", "secrets", "bz2", "lzma", "shutil", "scaler.journal", "scaler.journal.records", "scaler.journal.layout",
    "scaler.journal.history", "scaler.journal.directory", "scaler.journal.replacing", "scaler.journal.writer",
    "scaler.journal.journal", "scaler.scheduler.jobs", "scaler.results", "scaler.results.reference",
    "scaler.scheduler.jobs.result_index", "scaler.scheduler.jobs.job", "scaler.scheduler.jobs.events",
    "scaler.scheduler.jobs.disk", "scaler.scheduler.jobs.file_reads", "scaler.scheduler.jobs.job_records",
    "scaler.scheduler.jobs.segments", "scaler.scheduler.jobs.job_table", "scaler.scheduler.jobs.submitters",
    "scaler.scheduler.jobs.accepting", "scaler.scheduler.jobs.reading", "scaler.scheduler.jobs.filing",
    "scaler.scheduler.jobs.at_core", "scaler.scheduler.jobs.changing", "scaler.scheduler.jobs.reclaiming",
    "scaler.scheduler.jobs.restoring", "scaler.scheduler.jobs.jobs_core", "scaler.journal.removal",
    "scaler.scheduler.jobs.keeper",
)  # fmt: skip
OF_RESULT_FILES = ("scaler.common.patience", "scaler.results.files", "scaler.scheduler.jobs.result_files")


def modules_of(config: SchedulerConfig) -> tuple[str, ...]:
    """What one needs for durable jobs that keeps a journal: one that stands by opens it later."""
    if config.journal is None:
        return ()
    return OF_JOURNALS if config.results is None else (*OF_JOURNALS, *OF_RESULT_FILES)
