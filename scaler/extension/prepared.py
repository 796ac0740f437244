"""Functions as an adapter has them called in workers, within something of its own."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from scaler.client import Client
from scaler.client.client import parts_of
from scaler.client.core.task_template import TaskTemplate
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.fresh_functions import fresh
from scaler.serialize.function import FunctionCache
from scaler.serialize.recent import Recent

#: functions that are known again, in each of two generations, and bytes of their pickles
_LIMIT, _BYTES = 1_024, 4 << 20


class _Known:
    """What stands for a function, and what it was captured as."""

    __slots__ = ("size", "standing", "template")

    def __init__(self, standing: Any, template: TaskTemplate, size: int) -> None:
        #: it is known for longer than nobody has it; None if that would keep the function
        self.standing = standing
        #: the client may forget it
        self.template = weakref.ref(template)
        self.size = size


def _size_of(known: _Known) -> int:
    return known.size


class PreparedFunctions:
    """What is submitted in the place of functions, made once for each as long as that is as it was.

    `wrap(function, name, *variant)` makes it: `function` is its pickle, as bytes, or the function itself if it is large
    or the client has a serializer of the user's. Any thread may use it.
    """

    def __init__(self, client: Client, wrap: Callable[..., Callable[..., Any]]) -> None:
        parts, self._options = parts_of(client)
        self._templates = parts.templates
        self._is_pickled = parts.serializer is None
        self._wrap = wrap
        self._functions = FunctionCache(parts.serializer, large=INLINE_LIMIT)
        self._known: Recent[Any, _Known] = Recent(_LIMIT, _BYTES, _size_of)

    def of(self, function: Callable[..., Any], *variant: Any) -> TaskTemplate:
        """For `submit_call`, a function as it is now. Blocks and raises like `Client.submit`."""
        captured = self._functions.capture(function)
        key = captured.token, *variant
        known = self._known.get(key)
        template = known.template() if known is not None else None
        options = self._templates.rooted(self._options)
        if template is not None and template.options is options:
            return template
        standing = known.standing if known is not None else None
        if standing is None:
            given = captured.payload[1:] if self._is_pickled and captured.payload else fresh(function)
            standing = self._wrap(given, captured.name, *variant)
        template = self._templates.of(standing, options)
        if captured.payload and not template.keeps:
            self._known.put(key, _Known(standing if self._is_pickled else None, template, captured.size))
        return template
