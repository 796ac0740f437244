"""Asking a cluster: what is there, which tasks there are, why one has not run, what has happened to it.

    with Questions("tcp://head:2345") as questions:
        for task in questions.tasks(state="queued", function="work"):
            print(task["task"], task["client"])
        print(questions.explain("412001:290")[0]["lines"])
        print(questions.status()["tasks"], questions.listed("workers", Filters(host="node-7")).records)

A task is named by its client's number and its own, as in the log and in every answer: `412001:290`; its own alone will
do while no other client has such. Used by one thread; everything blocks.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from scaler.errors import UnknownTask
from scaler.monitor.link import Link, sendable
from scaler.monitor.listing import Filters, Listed, listed, status
from scaler.monitor.output import LastOutput, output_of, place_of
from scaler.monitor.reading import decoded
from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import TASK_STATES
from scaler.protocol.messages import MAX_PAGE, Message, Query, QueryResult, Watch
from scaler.protocol.messages import Snapshot as SnapshotMessage
from scaler.transport import Security

M = TypeVar("M", bound=Message)

#: what a task is called: its client's number, and its own
_NUMBERS = re.compile("(?:([0-9]{1,10}):)?([0-9]{1,19})")
#: milliseconds between two snapshots, as far as anybody is told who asks for one alone
_ONCE = 1000


class Questions:
    """A session of questions. Raises `ConnectionFailed`, `HandshakeRefused` and `AddressError` when it is made."""

    def __init__(self, address: str, *, security: Security | None = None, timeout: float = 5.0) -> None:
        """`address` is a monitor address, ipc:///path, or a scheduler's; `timeout`, in seconds, is for each answer."""
        self._link = Link(address, security, "scaler-questions")
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._link.connect(timeout)

    def tasks(
        self, state: str = "", function: str = "", client: int = 0, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Tasks that have not ended, or others of whose batch have not, in the order of their names.

        `state`: waiting, queued, agent, done, failed, cancelled, or empty for any. Raises ValueError for another
        one, and for a `client` that is no number of one.
        """
        for line in self.task_lines(state, function, client, limit):
            yield json.loads(line)

    def task_lines(self, state: str, function: str, client: int, limit: int | None) -> Iterator[str]:
        """The same as lines of JSON, as they came. Asks for a page when the last one was taken."""
        if state not in ("", *TASK_STATES):
            raise ValueError(f"no task can be {state!r}: the states are {', '.join(TASK_STATES)}")
        if not 0 <= client < 1 << 32:
            raise ValueError(f"{client} is no number of a client")
        left, function = limit, sendable(function)
        where = 0, 0
        while left is None or left > 0:
            size = MAX_PAGE if left is None else min(left, MAX_PAGE)
            query = Query(
                next(self._numbers), "tasks", client, 0, state, function, size, from_client=where[0], from_row=where[1]
            )
            answer, lines = self._ask(query)
            yield from lines
            left = None if left is None else left - len(lines)
            where = answer.next_client, answer.next_row
            if where == (0, 0):
                return

    def explain(self, task: str) -> list[dict[str, Any]]:
        """Why a task has not run, or where it runs; of all clients that have one of this name. Raises `UnknownTask`."""
        return self._about("explain", task)

    def story(self, task: str) -> list[dict[str, Any]]:
        """What has happened to a task, as far as the scheduler remembers. Raises `UnknownTask`."""
        return self._about("story", task)

    def _about(self, kind: str, task: str) -> list[dict[str, Any]]:
        named = parse_task(task)
        function = sendable(named.function)
        answer, lines = self._ask(Query(next(self._numbers), kind, named.client, named.row, name=function))
        if answer.error:
            raise UnknownTask(answer.error)
        return [json.loads(line) for line in lines]

    def last_output(self, worker: str) -> LastOutput:
        """The last lines that the tasks of a worker have printed; `worker` as `scaler workers` calls it: "3.12"."""
        place = place_of(worker)
        if place is None:
            return LastOutput(error=f"{worker!r} names no worker: write AGENT.SLOT, for example 3.12")
        query = Query(next(self._numbers), "output", agent=place[0], slot=place[1])
        return output_of(self._ask(query)[0])

    def snapshot(self) -> Snapshot:
        """The cluster at this moment. Agents report for it first, a second at most; then they are let alone again."""
        message = self._answer(Watch(_ONCE), SnapshotMessage)
        self._link.say(Watch(0, message.number))
        return decoded(message)

    def status(self) -> dict[str, Any]:
        """The cluster in one record, as `scaler.monitor.listing` says."""
        return status(self.snapshot())

    def listed(self, kind: str, filters: Filters | None = None) -> Listed:
        """Agents, workers, clients, functions or the largest objects. Raises `ScalerError` for an unknown column."""
        return listed(kind, self.snapshot(), filters or Filters())

    def _ask(self, query: Query) -> tuple[QueryResult, list[str]]:
        """The answer to a question, and its lines."""
        answer = self._answer(query, QueryResult, query.number)
        text = bytes(answer.bodies[0]).decode(errors="replace")
        return answer, text.split("\n") if text else []

    def _answer(self, said: Message, kind: type[M], number: int | None = None) -> M:
        """The next message of this kind, and with this number, after something was said."""

        def answers(message: Message) -> bool:
            return isinstance(message, kind) and number in (None, getattr(message, "number", None))

        answer = self._link.ask(said, answers, self._timeout)
        assert isinstance(answer, kind)
        return answer

    def close(self) -> None:
        """Say goodbye; blocks for a moment."""
        self._link.leave()

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class NamedTask(NamedTuple):
    """What the name of a task says."""

    #: the number of its client, 0 if the name has none
    client: int
    row: int
    #: empty if the name has none; with one, a task of the same number of another function is not meant
    function: str


def parse_task(name: str) -> NamedTask:
    """What a name of a task says, as a line of the log may begin with it, too. Raises `UnknownTask` for what is none.

    >>> tuple(parse_task("412001:290")), tuple(parse_task("290"))
    ((412001, 290, ''), (0, 290, ''))
    >>> tuple(parse_task("work[290]")), tuple(parse_task("task m.work (290)")), tuple(parse_task("work (412001:290)"))
    ((0, 290, 'work'), (0, 290, 'm.work'), (412001, 290, 'work'))
    """
    text, function = name.strip().removesuffix(":"), ""
    for opening, closing in ("[]", "()"):  # as in the log, and as errors and these commands say it
        before, found, numbers = text.rpartition(opening)
        if found and text.endswith(closing):
            text, function = numbers[:-1], before.strip().removeprefix("task ").strip()
            break
    match = _NUMBERS.fullmatch(text)
    client, row = (int(number or 0) for number in match.groups()) if match else (0, 1 << 63)
    if row >= 1 << 63 or client >= 1 << 32:
        raise UnknownTask(f"{name!r} names no task: write CLIENT:TASK, for example 412001:290, as 'scaler tasks' does")
    return NamedTask(client, row, function)
