"""A scheduler's core that looks at its state after each step, for `scaler_scheduler --validate`."""

from __future__ import annotations

from scaler.common.findings import complain
from scaler.scheduler.core.events import Effect, Event
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state.validate import validate


class ValidatingCore:
    """Does what the core does; raises `InvalidState` after a step that left the state in disorder.

    Costs a look at all rows and objects for each step.
    """

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core

    @property
    def workers(self) -> int:
        """Workers in the whole cluster."""
        return self._core.workers

    def handle(self, events: list[Event], now: float) -> list[Effect]:
        """Take what happened, and look at what became of the state."""
        effects = self._core.handle(events, now)
        complain(events, validate(self._core.state))
        return effects
