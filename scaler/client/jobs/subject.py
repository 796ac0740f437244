"""Which job is asked about: the one that had the name when it was first heard of, not one that has got it since."""

from __future__ import annotations

from typing import Any

from scaler.client.jobs.session import JobSession
from scaler.errors import JobError
from scaler.protocol.messages import MAX_JOB_NAME, JobAnswer


class JobSubject:
    """One job, as it is asked about. Any thread; blocks."""

    def __init__(self, session: JobSession, name: str, token: int = 0) -> None:
        """`token` as in `JobQuestion`; 0: it is the job that has the name when it is first asked about.

        Raises `JobError` for a name that no job has.
        """
        self._session = session
        self.name = checked_name(name)
        self._token = token

    def ask(self, kind: str, **fields: Any) -> JobAnswer:
        """Ask a question. Raises `JobError`, also if the job was deleted, and `ConnectionFailed`."""
        answer = self._session.ask(kind, self.name, token=self._token, **fields)
        self._token = self._token or answer.token
        return answer


def checked_name(name: object) -> str:
    """The name of a job. Raises `JobError` for one that can't be."""
    if type(name) is not str or not 0 < len(name) <= MAX_JOB_NAME or not name.isprintable():
        said = repr(name)
        said = said if len(said) <= MAX_JOB_NAME else f"{said[:60]}... ({len(said):,} characters)"
        raise JobError(f"a job's name has 1 to {MAX_JOB_NAME} printable characters, and {said} does not")
    return name
