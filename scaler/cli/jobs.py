"""`scaler jobs | attach | results | delete`, and what `scaler cancel` does about jobs: durable jobs in a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from scaler.cli.asking import ADDRESS, asking_command, quietly

if TYPE_CHECKING:
    from scaler.client.jobs.job import Job, JobState
    from scaler.client.jobs.session import JobSession

#: seconds for which a scheduler is looked for that was there and is gone
PATIENCE = 10.0
#: seconds between two looks at a job that is attached to
LOOK = 0.5


@contextlib.contextmanager
def session_of(address: str, key_file: str | None, insecure: bool) -> Iterator[JobSession]:
    """A session with the scheduler at an address. Raises `ConnectionFailed` at once where there is none."""
    from scaler.client.jobs.session import JobSession  # `-h` and mistakes are answered without loading the engine
    from scaler.transport import known_security, surrounding_security

    session = JobSession(address, known_security(key_file, insecure) or surrounding_security(), PATIENCE)
    try:
        session.find()
        yield session
    finally:
        session.close()


def _job(session: JobSession, name: str) -> Job:
    from scaler.client.jobs.job import Job
    from scaler.client.jobs.subject import JobSubject
    from scaler.client.values.value_codec import ValueCodec

    return Job(JobSubject(session, name), ValueCodec(None))


def _list(address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
    from scaler.client.jobs.job import states_in

    with session_of(address, key_file, insecure) as session:
        states = states_in(session.ask("list"))

    def write() -> None:
        if not as_json:
            print(
                f"{'job':<30} {'state':<9} {'rows':>12} {'ended':>12} {'failed':>9} {'size':>8} {'files':>8} "
                f"{'begun':<19} owner"
            )
        for state in states:
            print(_json(state) if as_json else _row(state))
        if not as_json:
            for why, count in Counter(state.waits for state in states if state.waits).items():
                _say_what_is_waited_for("jobs", f"{count} of them" if len(states) > 1 else "it", why)

    return quietly(write)


def _say_what_is_waited_for(command: str, who: str, why: str) -> None:
    print(f"scaler {command}: rows of {who} have ended, and don't count yet: {why}", file=sys.stderr)


def _json(state: JobState) -> str:
    return json.dumps({"v": 1, **dataclasses.asdict(state)})


def _row(state: JobState) -> str:
    from scaler.monitor.formats import filled, inert, size
    from scaler.monitor.sayable import sayable

    name = sayable(inert(state.name), sys.stdout.encoding)
    ended = state.done + state.failed + state.cancelled
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.created))
    return (
        f"{filled(name, 30)} {state.state:<9} {state.rows:>12,} {ended:>12,} {state.failed:>9,} "
        f"{size(state.bytes):>8} {size(state.file_bytes):>8} {begun} {inert(state.owner)}"
    )


def _attach(name: str, address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
    """Show how far a job is until it has ended; the exit code says whether each row has a value."""
    with session_of(address, key_file, insecure) as session:
        job = _job(session, name)
        state = job.status()

        def write() -> None:
            nonlocal state
            while as_json and state.ended is None:
                print(_json(state), flush=True)
                state = _later(job)
            state = state if as_json else _watch(job, state)
            print(_json(state) if as_json else _row(state))

        quietly(write)
    if state.trouble and not as_json:
        print(f"scaler attach: {state.trouble}", file=sys.stderr)
    return 0 if state.state == "done" else 1


def _watch(job: Job, state: JobState) -> JobState:
    with click.progressbar(length=max(state.rows, 1), label=job.name, show_pos=True, file=sys.stderr) as bar:
        shown, waits = 0, ""
        while True:
            if state.waits not in ("", waits):
                print(file=sys.stderr)  # below the bar
                _say_what_is_waited_for("attach", "it", state.waits)
            waits = state.waits
            ended = state.done + state.failed + state.cancelled
            bar.length = max(state.rows, 1)
            bar.update(ended - shown)
            shown = ended
            if state.ended is not None:
                return state
            state = _later(job)


def _later(job: Job) -> JobState:
    """How a job is once it has ended, or a little later."""
    from scaler.errors import JobError

    with contextlib.suppress(JobError):  # that it can't go on is said by its state
        job.wait(LOOK)
    return job.status()


def _results(name: str, address: str, start: int, as_json: bool, key_file: str | None, insecure: bool) -> int:
    """Print what each row returned, in order, as they come; the exit code says whether each has a value."""
    failed = 0

    def write() -> None:
        nonlocal failed
        with session_of(address, key_file, insecure) as session:
            for each in _job(session, name).ended(start):
                failed += each.error is not None
                if as_json:
                    print(_as_json(each.row, each.value, each.error))
                elif each.error is None:
                    print(_text(each.value))
                else:
                    said = _one_line(f"{type(each.error).__name__}: {_said(each.error)}")
                    print(f"row {each.row}: {said}", file=sys.stderr)

    if isinstance(sys.stdout, io.TextIOWrapper):  # whoever reads it sees them as they come, in a pipe too
        sys.stdout.reconfigure(line_buffering=True)
    quietly(write)
    return 1 if failed else 0


def _as_json(row: int, value: Any, error: BaseException | None) -> str:
    """A line for one row; what JSON has no word for is a text."""
    if error is not None:
        return json.dumps({"v": 1, "row": row, "error": type(error).__name__, "text": _said(error)})
    try:
        return json.dumps({"v": 1, "row": row, "value": value}, default=_text, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, NaN, a list that has itself
        return json.dumps({"v": 1, "row": row, "value": _text(value)})


def _text(value: Any) -> str:
    """A value on one line, whatever its class makes of that."""
    try:
        return _one_line(repr(value))
    except Exception as error:
        return f"<{type(value).__name__} that can't be shown: {_one_line(f'{type(error).__name__}: {_said(error)}')}>"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text can't be had)"


def _one_line(text: str) -> str:
    r"""A text without line ends and what a terminal would obey.

    >>> _one_line("array([[1, 2],\n       [3, 4]])")
    'array([[1, 2], [3, 4]])'
    """
    if text.isprintable():
        return text
    line = " ".join(part.strip() for part in text.splitlines())
    return "".join(c if c.isprintable() else "?" for c in line)


def _delete(name: str, address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
    with session_of(address, key_file, insecure) as session:
        _job(session, name).delete()
    return quietly(lambda: print(json.dumps({"v": 1, "deleted": name}) if as_json else f"deleted {name}"))


def cancelled(name: str, address: str, force: bool, as_json: bool, key_file: str | None, insecure: bool) -> str:
    """Cancel a job, and say how it is; empty then, or why the scheduler has none of this name."""
    from scaler.errors import JobError

    with session_of(address, key_file, insecure) as session:
        try:
            job = _job(session, name)
            job.status()
        except JobError as error:
            return str(error)
        state = job.cancel(force)

    def write() -> None:
        print(_json(state) if as_json else _row(state))
        if state.waits and not as_json:
            _say_what_is_waited_for("cancel", "it", state.waits)

    quietly(write)
    return ""


NAME = click.Argument(["name"])

jobs = asking_command("jobs", "List the durable jobs of a scheduler.", _list, ADDRESS)
attach = asking_command("attach", "Show how far a durable job is, until it has ended.", _attach, NAME, ADDRESS)
results = asking_command(
    "results", "Print the results of a durable job, in order, as they come.", _results, NAME, ADDRESS,
    click.Option(["--start"], type=click.IntRange(0, (1 << 63) - 1), default=0, help="the first row to print, from 0"),
)  # fmt: skip
delete = asking_command("delete", "Forget a durable job with all its results.", _delete, NAME, ADDRESS)
