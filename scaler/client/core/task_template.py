"""What all rows of a batch share: a captured function, and the options of its tasks."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from scaler.client.core.fitting import refuse_misfit
from scaler.client.core.options import Options
from scaler.errors import ObjectTooLarge
from scaler.protocol.messages import Task, u32
from scaler.serialize.call import decode_function, encode_function
from scaler.serialize.fresh_functions import has_state
from scaler.serialize.function import Captured

#: shapes of arguments that are remembered of a function
SHAPES = 64


class TaskTemplate:
    """A captured function with options: makes the messages of batches that call it."""

    __slots__ = (
        "__weakref__",
        "_function",
        "_release",
        "_shapes",
        "captured",
        "count",
        "count_before_names",
        "keeps",
        "names",
        "object_id",
        "options",
    )

    def __init__(
        self,
        captured: Captured,
        function: Callable[..., Any],
        options: Options,
        object_id: int = 0,
        keeps: object = None,
        release: Callable[[int], None] | None = None,
    ) -> None:
        """`release` is told of the function's id when nobody has this any more, by the collector: takes no lock."""
        self.captured = captured
        #: the function itself, weakly unless it is stored: whoever goes on submitting it has it
        self._function = weakly(function) if keeps is None else lambda: function
        self.options = options
        #: of the function; 0 until it was sent
        self.object_id = object_id
        #: what keeps a function that is stored where it is
        self.keeps = keeps
        #: how many positional arguments the last call had, by themselves or with keywords, and the names of these
        self.count = self.count_before_names = -1
        self.names: frozenset[str] = frozenset()
        #: all shapes of arguments that are known to fit
        self._shapes: set[tuple[int, frozenset[str]]] = set()
        self._release = release  # last: see `__del__`

    @property
    def is_alive(self) -> bool:
        """Somebody has the function that this was made of."""
        return self._function() is not None

    def function(self) -> Callable[..., Any]:
        """The function, for running it here when a waiting task claims a row; one like it if it is gone or has a state.

        Raises what it raises while it is unpickled.
        """
        found: Callable[..., Any] | None = self._function()
        if found is not None and not has_state(found):
            return found
        payload = self.captured.payload
        if found is not None and not payload:
            payload = encode_function(found)
        made: Callable[..., Any] = decode_function(payload)[0]
        return made

    def check(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError for arguments that don't fit. Needless where their shape is that of the call before."""
        shape = len(args), frozenset(kwargs)
        if shape not in self._shapes:
            refuse_misfit(function, self.captured.name, args, kwargs)
            if len(self._shapes) < SHAPES:
                self._shapes.add(shape)
        if kwargs:
            self.count_before_names, self.names = shape
        else:
            self.count = len(args)

    def __del__(self) -> None:
        release = getattr(self, "_release", None)  # a signal's handler that raises may have left this half made
        if release is not None and self.object_id:
            release(self.object_id)

    def task(self, batch: int, rows: int, form: int) -> Task:
        """A message for rows of this function, without their payloads."""
        options = self.options
        return Task(
            0, batch, rows, form, options.flags, self.object_id, 0, self.captured.name,
            options.priority, options.retries, options.timeout, options.capabilities, u32([0, rows]),
            threads=options.threads, root=options.root, nesting=options.nesting,
        )  # fmt: skip


def weakly(function: Callable[..., Any]) -> Callable[[], Any]:
    """What gives a function as long as somebody has it, of a method its object; nothing if that can't be told."""
    try:
        return weakref.WeakMethod(function) if isinstance(function, MethodType) else weakref.ref(function)
    except TypeError:
        return _nothing


def _nothing() -> None:
    """There is no function."""


def check_size(size: int, limit: int, what: str) -> None:
    """Raise ObjectTooLarge for something that no message can carry."""
    if size > limit:
        raise ObjectTooLarge(
            f"{what} takes {size:,} bytes, more than the scheduler's limit of {limit:,} (max_message_bytes)"
        )
