"""Questions that a monitor asks of the cluster, and their answers."""

from dataclasses import field
from typing import ClassVar

from scaler.common.records import record
from scaler.protocol.codes import TASK_STATES, Frame
from scaler.protocol.messages.message import Message, require

#: rows of an answer, at most
MAX_PAGE = 2_000


@record
class Query(Message):
    """A question: `tasks` that meet all that is said, a page of them; about one of them, `explain` or `story`; or the
    last lines of `output` of a worker, which the scheduler asks its agent, under a number of its own.
    """

    number: int
    kind: str
    #: whose rows; 0: anybody's
    client: int = 0
    #: the row, if it is about one
    row: int = 0
    #: one of `TASK_STATES`; empty: any
    state: str = ""
    #: of the function; empty: any
    name: str = ""
    #: rows of the answer, at most
    limit: int = 1_000
    #: where the page begins: as the last answer said, or 0 and 0
    from_client: int = 0
    from_row: int = 0
    #: output: the agent's number, and the slot of its worker
    agent: int = 0
    slot: int = 0

    def validate(self) -> None:
        require(self.kind in ("tasks", "explain", "story", "output"), f"unknown question {self.kind!r}")
        require(self.state in ("", *TASK_STATES), f"unknown state {self.state!r}")
        require(0 < self.limit <= MAX_PAGE, f"a page has 1 to {MAX_PAGE:,} rows")


@record
class QueryResult(Message):
    """The answer: lines of JSON in UTF-8, each an object; or why there is none."""

    has_bodies: ClassVar[bool] = True

    number: int
    #: where the next page begins; 0 and 0: there is none
    next_client: int = 0
    next_row: int = 0
    error: str = ""
    bodies: list[Frame] = field(default_factory=list)

    def validate(self) -> None:
        require(len(self.bodies) == 1, "an answer has one frame")
