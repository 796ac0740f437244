"""`Processor`: how programs of the original find out that they run inside a task."""

from __future__ import annotations

import os

from scaler.transport import Address
from scaler.worker import context


class Processor:
    """The worker process that a task runs in."""

    @staticmethod
    def get_current_processor() -> Processor | None:
        """This process as a worker; None if it is none."""
        return Processor() if context.surroundings() is not None else None

    @property
    def pid(self) -> int:
        """Of this process."""
        return os.getpid()

    def scheduler_address(self) -> Address:
        """Where the cluster's clients connect."""
        about = context.surroundings()
        assert about is not None
        return Address.parse(about["address"])

    def current_task(self) -> context.TaskContext | None:
        """The task that this thread runs; None outside of tasks."""
        return context.current()


__all__ = ["Processor"]
