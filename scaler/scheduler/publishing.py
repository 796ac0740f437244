"""Snapshots on their way to monitors: what the core can't know of its own process is added, and each encoded once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from scaler.common.process_use import ProcessUse
from scaler.protocol.messages import Snapshot, u64
from scaler.scheduler.composition import Composition
from scaler.scheduler.core.events import Publish
from scaler.version import __version__

if TYPE_CHECKING:
    from scaler.protocol.messages.cluster_view import SchedulerView
    from scaler.scheduler.succession import Succession


class Publisher:
    """Completes the snapshots of one scheduler."""

    def __init__(
        self, epoch: int, address: str, composition: Composition, succession: Succession | None, *, insecure: bool
    ) -> None:
        """`insecure`: whoever reaches the address is let in."""
        self._epoch = epoch
        self._succession = succession
        self._address = address
        self._insecure = insecure
        self._composition = composition
        self._began = time.monotonic()
        self._use = ProcessUse(os.getpid())
        self._use.look(self._began)  # so the first monitor is told the share since then

    def complete(self, wish: Publish) -> Snapshot:
        """The message that all its monitors get."""
        from scaler.protocol.views import encode_view  # here, as a cluster should start without it

        scheduler, now = wish.view.scheduler, time.monotonic()
        scheduler.epoch, scheduler.pid, scheduler.version = self._epoch, os.getpid(), __version__
        scheduler.address, scheduler.insecure = self._address, self._insecure
        if self._succession is not None:
            self._complete_pair(scheduler, self._succession, now)
        scheduler.time, scheduler.uptime = time.time(), now - self._began
        scheduler.cpu, scheduler.memory = self._use.look(now)
        sent, received = self._composition.sent, self._composition.received
        scheduler.sent_types, scheduler.sent_counts = tuple(each.__name__ for each in sent), u64(sent.values())
        scheduler.received_types = tuple(each.__name__ for each in received)
        scheduler.received_counts = u64(received.values())
        return Snapshot(wish.number, [encode_view(wish.view), wish.workers])

    def _complete_pair(self, scheduler: SchedulerView, succession: Succession, now: float) -> None:
        scheduler.epoch, scheduler.partner = succession.epoch, succession.partner
        scheduler.roster, scheduler.stands_by = succession.roster, not succession.leads
        scheduler.trouble = "" if succession.follows(now) else succession.trouble
        if scheduler.trouble and succession.leads:
            scheduler.trouble += f" (if the other scheduler is gone: scaler promote {succession.address})"
        if scheduler.partner:
            scheduler.silence = succession.silence(now, self._began)
