"""A core that looks at its state after each step, for `--validate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaler.common.findings import Finding, complain


class ValidatingCore:
    """Does what the core does; raises `InvalidState` after a step that left the state in disorder.

    Costs a look at all rows and objects for each step.
    """

    def __init__(self, core: Any, validate: Callable[[Any], Sequence[Finding]]) -> None:
        self._core = core
        self._validate = validate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def handle(self, events: list[Any], now: float) -> list[Any]:
        """Take what happened, and look at what became of the state."""
        effects: list[Any] = self._core.handle(events, now)
        complain(events, self._validate(self._core.state))
        return effects
