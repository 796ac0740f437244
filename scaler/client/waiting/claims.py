"""What tasks that wait for tasks of their own may run meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from scaler.client.core import events as ev
from scaler.common.gate import Gate


class Claim:
    """A task's wait for one of its own tokens."""

    def __init__(self) -> None:
        #: opened when there is something to look at
        self.changed = Gate()
        #: rows that are this task's to run
        self.granted: deque[ev.ClaimGranted] = deque()
        #: a question is under way
        self.is_asked = False
        #: the rows run elsewhere: nothing to do but wait
        self.is_refused = False


class Claims:
    """The open claims of one client. Tasks open and close them; the I/O thread brings the answers."""

    def __init__(self) -> None:
        #: those that are open, by the `id()` of their token
        self.by_token: dict[int, Claim] = {}

    def open(self, token: Any) -> Claim:
        """Begin to wait for a token inside a task."""
        claim = self.by_token[id(token)] = Claim()
        return claim

    def close(self, token: Any) -> None:
        """Stop waiting: no more is granted."""
        self.by_token.pop(id(token), None)

    def grant(self, effect: ev.ClaimGranted) -> bool:
        """A row is a claim's to run; False if nobody waits any more."""
        claim = self.by_token.get(id(effect.token))
        if claim is None:
            return False
        claim.granted.append(effect)
        claim.is_asked = False
        claim.changed.open()
        return True

    def refuse(self, tokens: Iterable[Any]) -> None:
        """The rows of these tokens run elsewhere, or have ended."""
        for token in tokens:
            claim = self.by_token.get(id(token))
            if claim is not None:
                claim.is_refused = True
                claim.is_asked = False
                claim.changed.open()

    def notify(self) -> None:
        """Some rows have ended: those that wait look again."""
        for claim in list(self.by_token.values()):
            claim.changed.open()
