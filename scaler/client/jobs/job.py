"""`Job`: what a program holds of a durable job, which goes on without it."""

from __future__ import annotations

import json
import operator
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from scaler.client.jobs.files import JobFiles
from scaler.client.jobs.results import Ended, ended_rows
from scaler.client.jobs.subject import JobSubject
from scaler.client.values.value_codec import ValueCodec
from scaler.common import dashboards
from scaler.errors import JobError
from scaler.protocol.messages import MAX_JOB_WAIT, JobAnswer
from scaler.serialize.record import add_note


@dataclass(frozen=True)
class JobState:
    """A durable job at one moment."""

    name: str
    #: user and host that submitted it
    owner: str
    #: "open" (more may come), "running", "done", "failed" (some of its rows, or `trouble`), "cancelled"
    state: str
    #: of its first rows
    function: str
    #: so far
    rows: int
    done: int
    failed: int
    cancelled: int
    #: seconds since 1970; None: it has not ended
    created: float
    ended: float | None
    #: that it takes in the journal
    bytes: int
    #: spans of results that can be read
    spans: int
    #: why the scheduler could not go on with it; empty if it could
    trouble: str
    #: what keeps rows from counting that have ended, for now: the journal's disk is full, say; empty: nothing
    waits: str = ""
    #: that its large results take in files, and what the paths of these begin with; empty: it has none
    file_bytes: int = 0
    files: str = ""

    @property
    def progress(self) -> float:
        """The part of its rows that has ended, 0 to 1."""
        return (self.done + self.failed + self.cancelled) / self.rows if self.rows else float(self.ended is not None)


#: what an answer has by its own names: all but the job's
_NAMES = [each.name for each in fields(JobState)][1:]


def states_in(answer: JobAnswer) -> list[JobState]:
    """What an answer says of jobs."""
    said = [json.loads(line) for line in answer.text.split("\n") if line]
    return [JobState(each["job"], **{name: each[name] for name in _NAMES}) for each in said]


class Job:
    """A durable job. Made by `Client.submit_job`, `submit_job_graph` and `attach`.

    It lives at the scheduler, in its journal: this object may go, the program may end, and any client attaches again.
    All methods may be called from any thread, ask the scheduler, and block until it has answered; while it is gone they
    look for it as long as their client does. They raise `JobError` if the job is not there (any more), also if there is
    another one of its name meanwhile, and `ConnectionFailed`.
    """

    def __init__(self, subject: JobSubject, codec: ValueCodec) -> None:
        self._subject = subject
        self._codec = codec
        self._name = subject.name
        self._files = JobFiles(subject)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._name

    def status(self) -> JobState:
        """How it is now."""
        return states_in(self._subject.ask("state"))[0]

    @property
    def state(self) -> str:
        """See `JobState.state`."""
        return self.status().state

    @property
    def progress(self) -> float:
        """The part of its rows that has ended, 0 to 1."""
        return self.status().progress

    def done(self) -> bool:
        """All of its rows have ended."""
        return self.status().ended is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all of its rows have ended; False if `timeout` seconds pass first.

        Raises `JobError` if they don't as the job could not go on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(deadline)
            state = states_in(self._subject.ask("state", wait=left))[0]
            self._check(state)
            if state.ended is not None:
                return True
            if left <= 0:
                return False

    def results(self, start: int = 0, timeout: float | None = None) -> Iterator[Any]:
        """The values of its rows in the order in which they were submitted, from row `start`, as they come.

        Raises what the first row raised that failed, with a note of its number, and CancelledError for one that was
        cancelled; `ended` goes on behind them. TimeoutError if `timeout` seconds pass without the next, JobError
        where no more come as the job could not go on.
        """
        for each in self.ended(start, timeout):
            if each.error is not None:
                add_note(each.error, f"row {each.row:,} of job {self._name!r}")
                raise each.error
            yield each.value

    def result(self, timeout: float | None = None) -> Any:
        """The value of a job of a single row, or, of a graph, those of its keys in a dict.

        Blocks; raises what the row raised, and TimeoutError.
        """
        keys = self.keys()
        if keys is None:
            values = list(self.results(timeout=timeout))
            if len(values) != 1:
                raise JobError(f"job {self._name!r} has {len(values):,} rows: results() has their values")
            return values[0]
        rows = list(self.results(timeout=timeout))
        return {key: rows[place] if is_row else place for key, (is_row, place) in keys.items()}

    def ended(self, start: int = 0, timeout: float | None = None) -> Iterator[Ended]:
        """As `results`, with (row, value, error) of each row; what rows raised is not raised. Raises ValueError."""
        start = operator.index(start)
        if not 0 <= start < 1 << 63:
            raise ValueError(f"the first row is a number from 0 on, not {start}")
        return self._pulled("ordered", start, timeout)

    def as_ended(self, timeout: float | None = None) -> Iterator[Ended]:
        """As `ended`, in the order in which the rows ended."""
        return self._pulled("finished", 0, timeout)

    def _pulled(self, kind: str, position: int, timeout: float | None) -> Iterator[Ended]:
        """Rows from a position on, in the order that `kind` says."""
        while True:
            answer = self._pull(kind, position, timeout)
            if answer is None:
                return
            for each in ended_rows(answer, self._name, self._codec.load, self._files):
                if kind != "ordered" or each.row >= position:  # a span may have begun before
                    yield each
            position = answer.next

    def _pull(self, kind: str, position: int, timeout: float | None) -> JobAnswer | None:
        """The next rows; None when there are none left. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _left(deadline)
            answer = self._subject.ask(kind, position=position, wait=left)
            if answer.outcomes:
                return answer
            state = states_in(answer)[0]
            self._check(state)
            if state.ended is not None:
                return None
            if left <= 0:
                raise TimeoutError(f"job {self._name!r}: no further row has ended in {timeout:g} s")

    def _check(self, state: JobState) -> None:
        if state.trouble:
            raise JobError(f"job {self._name!r} can't go on: {state.trouble}")

    def keys(self) -> dict[Any, tuple[bool, Any]] | None:
        """Of a graph: key -> (True, the number of its row) or (False, its value); None for other jobs."""
        note = self._subject.ask("note").bodies[0]
        return pickle.loads(note) if len(note) else None

    def cancel(self, force: bool = False) -> JobState:
        """Have no more of its rows begun, and with `force` end those that run. What has ended stays."""
        return states_in(self._subject.ask("cancel", force=force))[0]

    def delete(self) -> None:
        """Forget it with all its results; what runs of it is ended. Its name is free afterwards.

        Raises nothing if it is deleted already.
        """
        self._subject.ask("delete")

    def __repr__(self) -> str:
        return f"<Job {self._name!r}>"

    def _repr_html_(self) -> str:
        state = self.status()
        ended = state.done + state.failed + state.cancelled
        about = {"state": state.state, "rows": f"{ended:,} of {state.rows:,}", "failed": f"{state.failed:,}"}
        return dashboards.as_html(f"Job {self._name}", about, None)


def _left(deadline: float | None) -> float:
    """Seconds for which an answer may be waited for."""
    return MAX_JOB_WAIT if deadline is None else max(0.0, min(MAX_JOB_WAIT, deadline - time.monotonic()))
