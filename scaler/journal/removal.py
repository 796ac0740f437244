"""Removing segments that nobody needs: in order, and what a disk refuses is left to be tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from scaler.common.effects import Log
from scaler.errors import ScalerError
from scaler.journal.directory import refusal


class Removal:
    """Of one journal."""

    def __init__(self, remove: Callable[[int], None]) -> None:
        self._remove = remove
        self._left: deque[int] = deque()
        #: what the log has said last of why the first can't be removed
        self._told = ""

    def __bool__(self) -> bool:
        """Some are left."""
        return bool(self._left)

    def add(self, segment: int) -> None:
        """Nobody needs this one; it goes with the next `run`."""
        self._left.append(segment)

    def run(self) -> list[Log]:
        """Remove them, in order: one that says that a job is deleted goes after those that have something of it."""
        try:
            while self._left:
                self._remove(self._left[0])
                self._left.popleft()
            self._told = ""
        except (OSError, ScalerError) as error:
            before, self._told = self._told, refusal(error)
            if self._told != before:
                words = (
                    f"segment {self._left[0]}, which nobody needs, can't be removed: {self._told}; it is tried again"
                )
                return [Log("WARNING", f"Journal: {words}")]
        return []
