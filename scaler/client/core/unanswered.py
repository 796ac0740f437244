"""What a client asked about single rows and was not told yet: cancellations, and claims of tasks that wait."""

from collections.abc import Iterable
from typing import Any

from scaler.client.core.events import Cancel, Claim
from scaler.client.core.pending import PendingBatches

#: requests of one kind among which those about rows that have ended are looked for
_MANY = 1000


class UnansweredRequests:
    """By the `id()` of the token they are about, so that they can be said again."""

    def __init__(self) -> None:
        #: each of one token
        self.cancels: dict[int, Cancel] = {}
        #: the tasks that ask wait for their tokens
        self.claims: dict[int, Claim] = {}
        #: when there are so many cancellations, those of rows that have ended are left out: never for each one anew,
        #: however many rows that have not ended are cancelled one by one
        self._many_cancels = _MANY

    def add_cancel(self, event: Cancel, pending: PendingBatches) -> None:
        """The rows of these tokens are to be cancelled."""
        for token in event.tokens:
            self.cancels[id(token)] = Cancel((token,), event.force)
        if len(self.cancels) > self._many_cancels:
            self.cancels = {key: asked for key, asked in self.cancels.items() if pending.rows_of(asked.tokens)}
            self._many_cancels = max(_MANY, 2 * len(self.cancels))

    def add_claim(self, event: Claim, pending: PendingBatches) -> None:
        """A task that waits for this token would run its rows itself."""
        self.claims = {key: asked for key, asked in self.claims.items() if pending.rows_of([asked.token])}
        self.claims[id(event.token)] = event

    def end_cancels(self, tokens: Iterable[Any]) -> None:
        """These can't be cancelled."""
        for token in tokens:
            self.cancels.pop(id(token), None)

    def end_claims(self, tokens: Iterable[Any]) -> None:
        """These claims were answered."""
        for token in tokens:
            self.claims.pop(id(token), None)

    def clear(self) -> None:
        """Nothing is under way that anything could have been asked of."""
        self.cancels.clear()
        self.claims.clear()
