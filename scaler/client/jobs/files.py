"""Large results of a job that are files: read where they are if they are there, else asked for in slices."""

from __future__ import annotations

from scaler.client.jobs.subject import JobSubject
from scaler.common.patience import Patience
from scaler.errors import JobError
from scaler.protocol.messages import MAX_RESULT_BYTES
from scaler.results import files
from scaler.results.reference import Reference


class JobFiles:
    """Of one job. Any thread; blocks."""

    def __init__(self, job: JobSubject) -> None:
        self._job = job
        self._patience = Patience()

    def read(self, prefix: str, row: int, data: bytes | memoryview) -> bytes:
        """The result of a row, for which `data` stands; `prefix` is what the paths of the job's files begin with.

        Raises `JobError` naming job, row and file, and `ConnectionFailed`.
        """
        reference = Reference.unpack(data)
        try:
            return self._patience.call(lambda: files.read(prefix, reference), reference.size)
        except (files.Unreadable, OSError):  # the directory is not there, say, is another one, or hangs
            found = self._fetch(row, reference)
        try:
            files.check(prefix, reference, found)
        except files.Unreadable as trouble:
            raise JobError(f"job {self._job.name!r}, row {row:,}: {trouble}") from None
        return found

    def _fetch(self, row: int, reference: Reference) -> bytes:
        parts, at = [], 0
        while at < reference.size:
            answer = self._job.ask("file", position=row, offset=at, limit=MAX_RESULT_BYTES)
            parts.append(answer.bodies[0])
            if not len(parts[-1]):
                break
            at += len(parts[-1])
        return b"".join(parts)
