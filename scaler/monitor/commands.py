"""Telling a cluster what to do: cancel tasks, drain hosts; and telling it of hosts that are to come.

    with Commands("tcp://head:2345") as commands:
        print(commands.cancel(function="work").done)
        commands.drain(jobs=["4711"])

Who holds the cluster's key may say so. Used by one thread; everything blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scaler.errors import ConnectionFailed, ScalerError
from scaler.monitor.link import Link, sendable
from scaler.protocol.codes import MAX_LINE, MAX_LINES, MAX_NAME
from scaler.protocol.messages import Command, CommandResult, Message, u32
from scaler.transport import Security

U32 = 2**32 - 1


class CommandRefused(ScalerError):
    """The scheduler did nothing of what it was told; the text says why, in one line."""


class Cancelled(NamedTuple):
    """How many tasks a cancellation was about."""

    #: they had not been given to a host: they are cancelled
    done: int
    #: further rows, which hosts were asked for: those that have begun go on, unless it was forced
    asked: int


class Commands:
    """A session of commands. Raises `ConnectionFailed`, `HandshakeRefused` and `AddressError` when it is made."""

    def __init__(self, address: str, *, security: Security | None = None, timeout: float = 5.0) -> None:
        """`address` is a monitor address, ipc:///path, or a scheduler's; `timeout`, in seconds, is for each answer."""
        self._link = Link(address, security, "scaler-commands")
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._link.connect(timeout)

    def cancel(self, *, client: int = 0, row: int = 0, function: str = "", force: bool = False) -> Cancelled:
        """Cancel a task, the tasks of a function, or all of a client; with `force` even those that run.

        At least one of `client`, `row` and `function` is given, and tasks are meant that all of them fit. Raises
        `CommandRefused` if there is none.
        """
        if not (client or row or function):
            raise ValueError("name a client, a task or a function whose tasks are to be cancelled")
        answer = self._tell(Command(next(self._numbers), "cancel", client, row, sendable(function), force))
        return Cancelled(answer.done, answer.asked)

    def drain(self, agents: Iterable[int] = (), jobs: Iterable[str] = ()) -> int:
        """Have agents go in order, named by number or by their batch system's job; how many will.

        They finish what runs, give back the rest, hand over what only they have, and end. Raises `CommandRefused` if
        none of them is there.
        """
        return self._agents("drain", agents, jobs)

    def undrain(self, agents: Iterable[int] = (), jobs: Iterable[str] = ()) -> int:
        """Have agents stay that were told to drain; how many will. Raises `CommandRefused` if none does."""
        return self._agents("undrain", agents, jobs)

    def _agents(self, kind: str, agents: Iterable[int], jobs: Iterable[str]) -> int:
        numbers, names = u32(agents), tuple(map(sendable, jobs))
        if not numbers and not names:
            raise ValueError("name agents, or the jobs in which they run")
        return self._tell(Command(next(self._numbers), kind, agents=numbers, jobs=names)).done

    def promote(self) -> None:
        """Have the scheduler lead that is asked, which stands by, though it does not hear more than half of the agents.

        Only if the other one is gone for good, or cut off with all agents that it has. Raises `CommandRefused` if it
        leads already.
        """
        self._tell(Command(next(self._numbers), "promote"))

    def hand_over(self) -> None:
        """Have the scheduler lead that stands by for the one that is asked, which will stand by for it.

        Blocks until it does. Raises `CommandRefused` if none stands by.
        """
        self._tell(Command(next(self._numbers), "hand-over"))

    def report_fleet(
        self,
        provider: str,
        *,
        desired: int,
        pending: int,
        running: int,
        draining: int = 0,
        waited: float = 0.0,
        lines: Sequence[str] = (),
    ) -> None:
        """Tell how many hosts are wanted, asked for and not there, there, and about to go; screens show it.

        `waited`: seconds that the oldest of those asked for has waited. `lines`: the batch system's own words; the
        first 20 are told, 200 characters of each. It is believed for a minute, or until this session ends: say it again
        every few seconds.
        """
        bounded = [min(U32, max(0, number)) for number in (desired, pending, running, draining, round(1000 * waited))]
        words = tuple(line[:MAX_LINE] for line in lines[:MAX_LINES])
        wanted, asked, there, going, milliseconds = bounded
        self._tell(
            Command(
                next(self._numbers), "fleet", provider=provider[:MAX_NAME] or "hosts", desired=wanted, pending=asked,
                running=there, draining=going, waited=milliseconds, lines=words,
            )
        )  # fmt: skip

    def _tell(self, command: Command) -> CommandResult:
        def answers(message: Message) -> bool:
            return isinstance(message, CommandResult) and message.number == command.number

        answer = self._link.ask(command, answers, self._timeout)
        assert isinstance(answer, CommandResult)
        if answer.error:
            raise CommandRefused(answer.error)
        return answer

    def beat(self) -> float:
        """Keep the session alive; seconds until this is to be called again. Raises `ConnectionFailed`."""
        _, trouble = self._link.receive()
        if trouble is not None:
            raise ConnectionFailed(trouble)
        return self._link.beat()

    def close(self) -> None:
        """Say goodbye; blocks for a moment. What was told of hosts is forgotten."""
        self._link.leave()

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
