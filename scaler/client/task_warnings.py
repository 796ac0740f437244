"""Warnings that tasks issued, kept until somebody issues them again where the caller sees them."""

from __future__ import annotations

import json
import sys
import warnings
from collections import deque
from functools import partial
from typing import Any

#: warnings that are kept until they are shown; older ones are left out
MOST = 1_000


class TaskWarnings:
    """Those of one client's tasks, each as JSON of its module, class, message, file and line. Any thread."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=MOST)
        #: by file: what has been shown once, for the filters of this process
        self._registries: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}

    def add(self, text: str) -> None:
        """A task has warned."""
        self._texts.append(text)

    def issue(self) -> None:
        """Issue all that have come, in the calling thread. Raises them where its filters make them errors."""
        while self._texts:
            try:
                module, name, message, filename, lineno = json.loads(self._texts.popleft())
            except (ValueError, TypeError, RecursionError):  # a task has written over what its worker says
                continue
            if not all(isinstance(text, str) for text in (module, name, message, filename)) or type(lineno) is not int:
                continue
            registry = self._registries.setdefault(filename, {})
            warning = _warning(_category(module, name), message)
            warnings.warn_explicit(warning, type(warning), filename, lineno, registry=registry)


def _warning(category: type[Warning], message: str) -> Warning:
    """A warning of a class, or of the next class above it that can be made of the message and then says it."""
    for kind in category.__mro__:
        for make in (kind, partial(kind.__new__, kind)):  # its constructor may want something else
            try:
                warning = make(message)
                if isinstance(warning, Warning) and str(warning) == message:
                    return warning
            except Exception:  # of the user's class
                continue
    return UserWarning(message)


def _category(module: str, name: str) -> type[Warning]:
    """The class of a warning, if this process has it."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning
