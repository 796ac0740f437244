"""The results of a durable job as values: from answers with spans of rows, in the order in which they were asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

from scaler.client.jobs.files import JobFiles
from scaler.errors import JobError
from scaler.protocol.messages import CANCELLED, ERROR, FILED, VALUES_LIST, JobAnswer, sizes_of
from scaler.serialize import payload as pickling
from scaler.serialize.record import decode_error


class Ended(NamedTuple):
    """How a row of a job ended."""

    #: from 0 in the order in which they were submitted
    row: int
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


def ended_rows(answer: JobAnswer, name: str, load: Callable[[Any], Any], files: JobFiles) -> Iterator[Ended]:
    """Each row of an answer; `name` is the job's, `load` makes a value of its bytes, `files` has those in files."""
    view, at, size_at = memoryview(answer.bodies[0]), 0, 0
    prefix = json.loads(answer.text)["files"] if FILED in answer.outcomes else ""
    for i, outcome in enumerate(answer.outcomes):
        lo, hi = answer.rows[2 * i], answer.rows[2 * i + 1]
        count = sizes_of(outcome, hi - lo)
        sizes = answer.sizes[size_at : size_at + count]
        size_at += count
        if outcome == CANCELLED:
            for row in range(lo, hi):
                yield Ended(row, error=CancelledError(f"row {row:,} of job {name!r} was cancelled"))
            continue
        end = at + sum(sizes)
        if outcome == ERROR:
            yield Ended(lo, error=decode_error(bytes(view[at:end]), f"row {lo:,} of job {name!r}"))
        elif outcome == VALUES_LIST:
            yield from _list(view[at:end], lo, hi)
        else:
            for row, size in zip(range(lo, hi), sizes, strict=True):
                body = view[at : at + size]
                yield _file(files, prefix, row, body, load) if outcome == FILED else _value(body, row, load)
                at += size
        at = end


def _list(body: memoryview, lo: int, hi: int) -> Iterator[Ended]:
    try:
        values = pickling.loads_list(body, hi - lo)
    except Exception as error:  # whatever a worker sent
        _advise(error)
        yield from (Ended(row, error=error) for row in range(lo, hi))
        return
    yield from (Ended(row, value) for row, value in zip(range(lo, hi), values, strict=True))


def _file(files: JobFiles, prefix: str, row: int, reference: memoryview, load: Callable[[Any], Any]) -> Ended:
    try:
        data = files.read(prefix, row, reference)
    except JobError as error:
        return Ended(row, error=error)
    return _value(data, row, load)


def _value(body: bytes | memoryview, row: int, load: Callable[[Any], Any]) -> Ended:
    try:
        return Ended(row, load(body))
    except Exception as error:  # its class is not here, say
        _advise(error)
        return Ended(row, error=error)


def _advise(error: Exception) -> None:
    """A value does not come out of its bytes: say what to do if a module of its class is missing."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = error.name.partition(".")[0]
        error.msg += f" (install {module} here, or have PYTHONPATH name the directory that has it)"
