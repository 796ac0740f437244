"""The limits of a simulated scheduler: the defaults of the program's options."""

from dataclasses import fields
from typing import Any

from scaler.config import SchedulerConfig
from scaler.scheduler.core.scheduler_core import Limits


def default_limits(**changes: Any) -> Limits:
    """The limits of a scheduler that was told nothing but these."""
    options = [field.name for field in fields(Limits) if hasattr(SchedulerConfig, field.name)]
    return Limits(**{name: getattr(SchedulerConfig, name) for name in options} | changes)
