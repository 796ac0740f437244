"""Clients of the core that live in its process (durable jobs): what they want of it, and how it is handed on."""

from __future__ import annotations

from typing import Protocol

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.protocol.messages import CommandResult, Hello, JobAnswer, JobQuestion, JobSubmit, Message


@record
class Join:
    """A resident wants to be a client of the core; the one with the number in its Hello, if nobody else is."""

    resident: int
    hello: Hello


@record
class Say:
    """A resident says something to the core, and has dealt with so many messages of the core's."""

    number: int
    message: Message
    ack: int


@record
class Hold:
    """Results of a resident wait, so many bytes of them; with 0 they do no more."""

    number: int
    bytes: int


@record
class Reply:
    """Tell a monitor that asked."""

    monitor: int
    message: JobAnswer | CommandResult


#: what residents want
ResidentWish = Join | Say | Hold | Reply | Log


class Residents(Protocol):
    """Those who live here, with what carries out their wishes."""

    #: something has happened that they have not dealt with
    has_news: bool

    def ask(self, monitor: int, message: JobSubmit | JobQuestion) -> None:
        """A monitor wants something of them."""

    def lose_monitor(self, monitor: int) -> None:
        """A monitor has gone, and wants no answer."""

    def welcome(self, resident: int, number: int) -> None:
        """One that joined has this number now."""

    def hear(self, number: int, message: Message) -> None:
        """The core says something to one."""

    def forget(self, number: int, reason: str) -> None:
        """The core does not know one any more."""

    def doubt(self, reason: str) -> None:
        """Another scheduler may lead meanwhile, for this reason; empty: none does. Holds for what came before, too."""

    def handle(self, now: float) -> list[ResidentWish]:
        """Let them decide; what they want."""
