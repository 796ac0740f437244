"""The options that a client's tasks have."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

from scaler.protocol.messages import MAX_WORKERS, WARN


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Options:
    """What `Client.with_options` sets. Equal ones are the same object, so to compare and hash them costs nothing.

    >>> plain = Options.make()
    >>> plain.replace(priority=3) is Options.make(priority=3), plain.replace(priority=3).replace(priority=0) is plain
    (True, True)
    """

    #: of several rows that are ready the one with the largest runs first
    priority: int = 0
    #: how often a row that raised is run again
    retries: int = 0
    #: seconds a row may run; 0 for no limit
    timeout: float = 0.0
    #: what the agent must have, sorted
    capabilities: tuple[str, ...] = ()
    #: slots of a host that a row takes; 0 for one
    threads: int = 0
    #: PROFILE, STREAM, WARN of `scaler.protocol.messages`
    flags: int = 0

    @classmethod
    def make(cls, **fields: Any) -> Options:
        """The options with these fields, others as by default."""
        made = cls(**fields)
        return _interned.setdefault(dataclasses.astuple(made), made)

    def replace(self, **changes: Any) -> Options:
        """The same with other values of these fields."""
        return self.make(**{**dataclasses.asdict(self), **changes})

    def changed(
        self,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
        pass_warnings: bool = False,
        threads: int | None = None,
    ) -> Options:
        """These, as `Client.with_options` changes them. Raises ValueError or TypeError for what makes no sense."""
        changes: dict[str, Any] = {}
        if priority is not None:
            changes["priority"] = self.priority + priority
        if retries is not None:
            if retries < 0:
                raise ValueError(f"retries must be 0 or more, not {retries}")
            changes["retries"] = retries
        if timeout is not None:
            if timeout <= 0:
                raise ValueError(f"timeout must be a positive number of seconds, not {timeout}")
            changes["timeout"] = float(timeout)
        if capabilities is not None:
            changes["capabilities"] = tuple(
                sorted({capabilities} if isinstance(capabilities, str) else set(capabilities))
            )
        if threads is not None:
            changes["threads"] = _slots(threads)
        if pass_warnings:
            changes["flags"] = self.flags | WARN
        return self.replace(**changes) if changes else self


def _slots(threads: int) -> int:
    try:
        number = operator.index(threads)
    except TypeError:
        raise TypeError(f"threads must be a whole number, not {threads!r}") from None
    if not 1 <= number <= MAX_WORKERS:
        raise ValueError(f"threads must be 1 to {MAX_WORKERS:,}, not {number}")
    return 0 if number == 1 else number


#: by their fields
_interned: WeakValueDictionary[tuple[Any, ...], Options] = WeakValueDictionary()
