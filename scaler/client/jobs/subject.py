"""Which job is asked about: the one that had the name when it was first heard of, not one that has got it since."""

from __future__ import annotations

from typing import Any

from scaler.client.jobs.session import JobSession
from scaler.protocol.messages import JobAnswer


class JobSubject:
    """One job, as it is asked about. Any thread; blocks."""

    def __init__(self, session: JobSession, name: str, token: int = 0) -> None:
        """`token` as in `JobQuestion`; 0: it is the job that has the name when it is first asked about."""
        self._session = session
        self.name = name
        self._token = token

    def ask(self, kind: str, **fields: Any) -> JobAnswer:
        """Ask a question. Raises `JobError`, also if the job was deleted, and `ConnectionFailed`."""
        answer = self._session.ask(kind, self.name, token=self._token, **fields)
        self._token = self._token or answer.token
        return answer
