"""What a succession wants: for the scheduler's core, for its process, and for whoever gave a command.

Apart from `succession.py`, which only a scheduler needs that may be one of a pair.
"""

from scaler.common.effects import Log
from scaler.common.records import record
from scaler.protocol.messages import PartnerReport


@record
class HandOut:
    """Rows may be handed out from now on; or not any more, and why."""

    may: bool
    reason: str = ""


@record
class Announce:
    """Agents are told of so many that count from now on; 0: there is no pair."""

    roster: int


@record
class KeepJobs:
    """Durable jobs are kept here from now on, or not any more: their journal is the partner's to write.

    `asks`: not before it is known that the partner has no newer copy of that, if it can be asked.
    """

    here: bool
    asks: bool = False


@record
class StepDown:
    """Everything that peers have here is forgotten; they are told to look elsewhere."""

    reason: str


@record
class Tell:
    """Say this to the partner, however it is connected."""

    report: PartnerReport


@record
class Answer:
    """The other scheduler leads, as somebody wanted; or does not, for this reason."""

    monitor: int
    number: int
    error: str


Wish = HandOut | Announce | KeepJobs | StepDown | Tell | Answer | Log
#: what of that the shell carries out
PairWish = Tell | KeepJobs | StepDown | Log
