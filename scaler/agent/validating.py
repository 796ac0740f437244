"""An agent's core that looks at its state after each step, for `scaler_cluster --validate`."""

from __future__ import annotations

from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.events import Effect, Event
from scaler.agent.state.host import HostState
from scaler.agent.state.validate import validate
from scaler.common.findings import complain


class ValidatingCore:
    """Does what the core does; raises `InvalidState` after a step that left the state in disorder.

    Costs a look at all rows and objects for each step.
    """

    def __init__(self, core: AgentCore) -> None:
        self._core = core

    @property
    def state(self) -> HostState:
        """What the core knows."""
        return self._core.state

    def handle(self, events: list[Event], now: float) -> list[Effect]:
        """Take what happened, and look at what became of the state."""
        effects = self._core.handle(events, now)
        complain(events, validate(self._core.state))
        return effects

    def leave(self) -> list[Effect]:
        """The last words of an agent that is told to end."""
        return self._core.leave()
