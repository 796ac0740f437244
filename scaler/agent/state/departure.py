"""Whether this host is about to go, why, and until when it may take."""

from __future__ import annotations

import math

from scaler.common.records import entity
from scaler.protocol.codes import Leaving


@entity
class DepartureState:
    """That this host goes, or that it stays."""

    reason: Leaving = Leaving.NOT
    #: when it ends at the latest, seconds; infinite: when the scheduler says so
    until: float = math.inf
    #: when its batch system ends it, and when it begins to go because of that, seconds; infinite: never
    ends: float = math.inf
    drain_at: float = math.inf
    #: its time is over
    is_over: bool = False

    @property
    def is_under_way(self) -> bool:
        """It is about to go."""
        return self.reason is not Leaving.NOT
