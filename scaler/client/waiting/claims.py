"""What tasks that wait for tasks of their own may run meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any

from scaler.client.core import events as ev
from scaler.common.gate import Gate


class Stage(Enum):
    """How far a task has come with what it waits for.

    FREE ──asks──► ASKED ──refused──► REFUSED ──► BLOCKED
     │ ▲             │                   ▲
     │ └───granted───┘                   │
     └──claims don't pay, or it yields───┘
    """

    #: it may ask for rows
    FREE = auto()
    #: a question is under way
    ASKED = auto()
    #: its rows run elsewhere, or are left to others: nothing to do but wait
    REFUSED = auto()
    #: its worker's slot was given away, too
    BLOCKED = auto()


class Claim:
    """A task's wait for one of its own tokens, and what it has done meanwhile."""

    def __init__(self, token: Any) -> None:
        self.token = token
        self.stage = Stage.FREE
        #: opened when there is something to look at
        self.changed = Gate()
        #: rows that are this task's to run: of the token, and short ones that came along
        self.granted: deque[ev.ClaimGranted] = deque()
        #: how often it has asked
        self.questions = 0
        #: rows that it has run, and the seconds that they took
        self.rows, self.ran = 0, 0.0
        #: it was told to leave all rows to others
        self.yields = False

    def take(self, is_wanted: Callable[[Any], bool]) -> list[ev.ClaimGranted]:
        """The granted rows whose tokens are wanted; they are not here any more. Others may be granted meanwhile."""
        taken: list[ev.ClaimGranted] = []
        for _ in range(len(self.granted)):
            each = self.granted.popleft()
            (taken if is_wanted(each.token) else self.granted).append(each)
        return taken


class Claims:
    """The open claims of one client. Tasks open and close them; who receives the answers brings them here."""

    def __init__(self) -> None:
        #: those that are open, by the `id()` of their token, innermost last
        self.by_token: dict[int, Claim] = {}

    def open(self, token: Any) -> Claim:
        """Begin to wait for a token inside a task; its rows are this claim's, if one around it has them."""
        claim = Claim(token)
        for outer in self.by_token.values():
            claim.granted += outer.take(lambda granted: granted is token)
        self.by_token[id(token)] = claim
        return claim

    def close(self, claim: Claim) -> None:
        """Stop waiting: no more is granted."""
        self.by_token.pop(id(claim.token), None)

    def grant(self, effect: ev.ClaimGranted) -> bool:
        """A row is a claim's to run, of whatever token if nobody waits for its own; False if nobody waits any more."""
        claim = self.by_token.get(id(effect.token))
        if claim is not None and claim.stage is Stage.ASKED:
            claim.stage = Stage.FREE
        claim = claim or next(reversed([*self.by_token.values()]), None)
        if claim is None:
            return False
        claim.granted.append(effect)
        if id(claim.token) not in self.by_token:  # closed since, and perhaps emptied before
            return not claim.take(lambda token: token is effect.token)
        claim.changed.open()
        return True

    def refuse(self, tokens: Iterable[Any]) -> None:
        """The rows of these tokens run elsewhere, or have ended."""
        for token in tokens:
            claim = self.by_token.get(id(token))
            if claim is not None and claim.stage is not Stage.BLOCKED:
                claim.stage = Stage.REFUSED
                claim.changed.open()

    def notify(self) -> None:
        """Some rows have ended: those that wait look again."""
        for claim in list(self.by_token.values()):
            claim.changed.open()
