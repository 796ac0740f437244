"""What somebody wants done, said by a monitor's session; and what came of it."""

from array import array
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import MAX_LINE, MAX_LINES, MAX_NAME, MAX_NAMED, MAX_NUMBER
from scaler.protocol.messages.columns import column, u32
from scaler.protocol.messages.message import Message, require

#: what a `Command` may want
COMMANDS = ("cancel", "drain", "undrain", "fleet", "promote", "hand-over")


@record
class Command(Message):
    """`cancel` rows, have agents `drain` or `undrain`, tell of a `fleet` of hosts that somebody asks for.

    And of a pair of schedulers: have the one that hears this lead (`promote`), or the other (`hand-over`).
    """

    groups: ClassVar = {"fleet": ("provider", "desired", "pending", "running", "draining", "waited", "lines")}

    number: int
    kind: str
    #: cancel: whose rows, 0 for anybody's; which row, 0 for none in particular; of which function, empty for any
    client: int = 0
    row: int = 0
    name: str = ""
    #: cancel: even those that run
    force: bool = False
    #: drain, undrain: which agents, by number and by the job that they run in
    agents: "array[int]" = column(u32)
    jobs: tuple[str, ...] = ()
    #: fleet: what hosts come from, and how many are wanted, asked for and not there, there, and about to go
    provider: str = ""
    desired: int = 0
    pending: int = 0
    running: int = 0
    draining: int = 0
    #: fleet: milliseconds that the oldest of those asked for has waited
    waited: int = 0
    #: fleet: the batch system's own words, a line each: why hosts wait or have failed
    lines: tuple[str, ...] = ()

    def validate(self) -> None:
        require(self.kind in COMMANDS, f"unknown command {self.kind!r}")
        require(self.client < MAX_NUMBER, f"numbers of peers are below {MAX_NUMBER:,}")
        if self.kind == "cancel":
            require(bool(self.client or self.row or self.name), "a cancellation names a client, a row or a function")
        elif self.kind == "fleet":
            require(0 < len(self.provider) <= MAX_NAME, f"a provider's name has 1 to {MAX_NAME} characters")
        elif self.kind in ("drain", "undrain"):
            require(0 < len(self.agents) + len(self.jobs) <= MAX_NAMED, f"1 to {MAX_NAMED:,} agents or jobs are named")
        require(len(self.lines) <= MAX_LINES, f"more than {MAX_LINES} lines")
        require(all(len(line) <= MAX_LINE for line in self.lines), f"a line of more than {MAX_LINE} characters")


@record
class CommandResult(Message):
    """How many were concerned, or why nothing was done."""

    number: int
    #: rows that are cancelled; agents that will go, or stay; 1 for a report
    done: int = 0
    #: rows that agents were asked for: those that have begun go on, unless forced
    asked: int = 0
    error: str = ""
