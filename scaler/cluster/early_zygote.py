"""A zygote that is started before it is known what its workers are to begin with."""

from __future__ import annotations

import dataclasses

from scaler.agent.lending import lent_to_workers
from scaler.agent.settling import WorkerOptions
from scaler.agent.worker_processes import EXTRA_SLOTS, Zygote
from scaler.config import AgentConfig


class EarlyZygote:
    """Started for an agent with these options; whoever wants one with the same may take it, once."""

    def __init__(self, config: AgentConfig) -> None:
        self._workers = config.worker_count
        self._lent = dataclasses.replace(lent_to_workers(config), is_early=True)
        self._zygote: Zygote | None = Zygote.start(self._workers + EXTRA_SLOTS, self._lent)

    def take(self, config: AgentConfig, lent: WorkerOptions) -> Zygote | None:
        """The zygote, if its workers have what is lent here, but for modules; otherwise it is ended."""
        same = dataclasses.replace(lent, warm_modules=self._lent.warm_modules, is_early=self._lent.is_early)
        if self._zygote is None or config.worker_count != self._workers or same != self._lent or not lent.warm_modules:
            self.close()
            return None
        zygote, self._zygote = self._zygote, None
        return zygote

    def close(self) -> None:
        """End it, unless it was taken."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
