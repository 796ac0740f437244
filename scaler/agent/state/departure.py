"""Whether this host is about to go, why, and until when it may take."""

from __future__ import annotations

import math

from scaler.common.records import entity
from scaler.protocol.codes import Leaving

#: seconds for which an agent whose end was announced waits for another scheduler, once its own has ended in order
SUCCESSOR_PATIENCE = 2.0


@entity
class DepartureState:
    """That this host goes, or that it stays."""

    reason: Leaving = Leaving.NOT
    #: when it ends at the latest, seconds; infinite: when the scheduler says so
    until: float = math.inf
    #: when the time that it was given is over, seconds; and when its scheduler ended in order and none came since
    granted: float = math.inf
    deserted: float = math.inf
    #: when its batch system ends it, and when it begins to go because of that, seconds; infinite: never
    ends: float = math.inf
    drain_at: float = math.inf
    #: its time is over
    is_over: bool = False

    @property
    def is_under_way(self) -> bool:
        """It is about to go."""
        return self.reason is not Leaving.NOT

    def reckon(self) -> None:
        """See when it ends at the latest: without a scheduler nobody takes what it has."""
        self.until = self.granted
        if self.granted < math.inf:
            self.until = min(self.granted, self.deserted + SUCCESSOR_PATIENCE)
