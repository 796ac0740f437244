"""The durable jobs of a client: submitting, listing and finding them."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from scaler.client.core.options import Options
from scaler.client.jobs.job import Job, JobState, states_in
from scaler.client.jobs.packing import JobIds, JobPacker
from scaler.client.jobs.session import JobSession
from scaler.client.jobs.subject import JobSubject, checked_name
from scaler.client.jobs.submission import Submission
from scaler.client.lifetime import Lifetime
from scaler.client.parts import ClientParts
from scaler.client.values.value_codec import ValueCodec
from scaler.common.renewed_lock import RenewedLock
from scaler.defaults import RECONNECT
from scaler.graph import from_tuples
from scaler.serialize import payload as pickling
from scaler.serialize.call import AnySerializer
from scaler.serialize.function import name_of


class Jobs:
    """Of one client and all its views. Any thread; everything blocks until the scheduler has answered."""

    def __init__(self, new_session: Callable[[], JobSession], serializer: AnySerializer | None) -> None:
        #: makes a connection of its own
        self.new_session = new_session
        self._session = new_session()
        self._serializer = serializer
        self._codec = ValueCodec(serializer)

    def submit(self, function: Callable[..., Any], rows: Iterable[Any], name: str | None, options: Options) -> Job:
        """See `Client.submit_job`."""
        name = _named(name, name_of(function))
        packer = JobPacker(JobIds(self._session.limit), options, self._serializer)
        submission = Submission(self._session, name)
        with submission.whole():
            for part in packer.calls(function, list(rows)):
                submission.add(part)
        return Job(JobSubject(self._session, name, submission.token), self._codec)

    def submit_graph(self, graph: Mapping[Any, Any], keys: Sequence[Any], name: str | None, options: Options) -> Job:
        """See `Client.submit_job_graph`."""
        name = _named(name, "graph")
        packer = JobPacker(JobIds(self._session.limit), options, self._serializer)
        part, rows, constants = packer.graph(from_tuples(graph), keys)
        note = {key: (True, rows[key]) if key in rows else (False, constants[key]) for key in keys}
        submission = Submission(self._session, name, pickling.dumps(note))
        with submission.whole():
            if part.rows:
                submission.add(part)
        return Job(JobSubject(self._session, name, submission.token), self._codec)

    def attach(self, name: str) -> Job:
        """See `Client.attach`."""
        subject = JobSubject(self._session, name)
        subject.ask("state")
        return Job(subject, self._codec)

    def all(self) -> list[JobState]:
        """See `Client.jobs`."""
        return states_in(self._session.ask("list"))

    def close(self) -> None:
        """The client leaves."""
        self._session.close()


def jobs_of(parts: ClientParts) -> Jobs:
    """The durable jobs of a client, one for all its views."""
    parts.liveness.check()
    with _lock.lock:
        jobs = _of_clients.get(parts.lifetime)
        if jobs is None:
            # bounded in tasks, too: a scheduler that is there may refuse what is asked again and again
            patience = RECONNECT if parts.reconnect is None else parts.reconnect
            new_session = partial(JobSession, str(parts.address), parts.security, patience, is_known=True)
            jobs = _of_clients[parts.lifetime] = Jobs(new_session, parts.serializer)
            parts.lifetime.companions.append(jobs.close)
        return jobs


_of_clients: weakref.WeakKeyDictionary[Lifetime, Jobs] = weakref.WeakKeyDictionary()
_lock = RenewedLock()


def _named(name: str | None, what: str) -> str:
    """The name of a new job. Raises `JobError` for one that can't be."""
    if name is None:
        readable = "".join(filter(str.isprintable, what.rpartition(".")[2]))
        return f"{readable[:100] or 'job'}-{uuid.uuid4().hex[:8]}"
    return checked_name(name)
