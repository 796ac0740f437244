"""The options that a client's tasks have."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from scaler.protocol.messages import FRESH, MAX_WORKERS, MOST_CAPABILITIES, MOST_SECONDS, NESTINGS, WARN

#: the largest priority, the smallest with a minus, and the most retries
MOST = 2**31 - 1
#: tasks inside each other that are told apart by how deep they are
DEEPEST = NESTINGS - 1


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
    #: PROFILE, STREAM, WARN, FRESH of `scaler.protocol.messages`
    flags: int = 0
    #: of tasks that a task makes: says which client's leaving ends them; 0: nobody's but their own client's
    root: int = 0
    #: how many tasks they are made in, one inside the other
    nesting: int = 0

    @classmethod
    def make(cls, **fields: Any) -> Options:
        """The options with these fields, others as by default."""
        made = cls(**fields)
        return _interned.setdefault(made.values, made)

    @property
    def values(self) -> tuple[Any, ...]:
        """The fields in their order, of which `Options(*values)` makes another one: for pickles."""
        return _values(self)  # `dataclasses.astuple` copies each of them

    def replace(self, **changes: Any) -> Options:
        """The same with other values of these fields."""
        return self.make(**dict(zip(_NAMES, self.values, strict=True)) | changes)

    def changed(
        self,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        capabilities: Iterable[str] | None = None,
        pass_warnings: bool = False,
        threads: int | None = None,
        fresh_worker: bool | None = None,
    ) -> Options:
        """These, as `Client.with_options` changes them. Raises ValueError or TypeError for what makes no sense."""
        changes: dict[str, Any] = {}
        if priority is not None:
            changes["priority"] = max(-MOST, min(MOST, self.priority + _whole("priority", priority, -MOST, MOST)))
        if retries is not None:
            changes["retries"] = _whole("retries", retries, 0, MOST)
        if timeout is not None:
            changes["timeout"] = _seconds(timeout)
        if capabilities is not None:
            changes["capabilities"] = _names(capabilities)
        if threads is not None:
            slots = _whole("threads", threads, 1, MAX_WORKERS)
            changes["threads"] = 0 if slots == 1 else slots
        flags = self.flags | WARN if pass_warnings else self.flags
        if fresh_worker is not None:
            flags = flags | FRESH if fresh_worker else flags & ~FRESH
        if flags != self.flags:
            changes["flags"] = flags
        return self.replace(**changes) if changes else self


_NAMES = tuple(field.name for field in dataclasses.fields(Options))
_values = operator.attrgetter(*_NAMES)


@lru_cache(maxsize=256)
def with_root(options: Options, root: int) -> Options:
    """The same options of tasks that are made for this root's sake."""
    return options.replace(root=root)


def _whole(option: str, value: Any, least: int, most: int) -> int:
    """A whole number as it is, or a float that is one."""
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else int(operator.index(value))
    except TypeError:
        raise TypeError(f"{option} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        wanted = f"{least:,} or more" if number < least else f"{least:,} to {most:,}"
        raise ValueError(f"{option} must be {wanted}, not {number:,}")
    return number


def seconds_of(name: str, value: float) -> float:
    """An argument of this name, as a number. Raises TypeError for what is none, and ValueError for less than 0."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}") from None
    if not seconds >= 0:
        raise ValueError(f"{name} must be a positive number of seconds, not {value}")
    return seconds


def _seconds(timeout: float) -> float:
    seconds = seconds_of("timeout", timeout)
    if not seconds:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout}")
    return seconds if seconds < MOST_SECONDS else 0.0


def _names(capabilities: Iterable[Any]) -> tuple[str, ...]:
    names = {capabilities} if isinstance(capabilities, str) else set(capabilities)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"capabilities must be names, not {wrong!r}")
    if sum(map(len, names)) > MOST_CAPABILITIES:
        raise ValueError(f"capabilities have at most {MOST_CAPABILITIES:,} characters together")
    return tuple(sorted(names))


#: by their fields
_interned: WeakValueDictionary[tuple[Any, ...], Options] = WeakValueDictionary()
