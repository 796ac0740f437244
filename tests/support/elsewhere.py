"""Another process, as far as classes that travel by value can tell, in the process of the test."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

from cloudpickle import cloudpickle

from scaler.serialize import class_states


class Elsewhere:
    """What is unpickled within `inside` makes classes of its own, as a worker's would be."""

    def __init__(self) -> None:
        self._trackers: list[Any] = [weakref.WeakKeyDictionary(), weakref.WeakValueDictionary()]
        self.states = class_states.ClassStates()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Until the end of the block this thread is in the other process."""
        with (
            mock.patch.object(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", self._trackers[0]),
            mock.patch.object(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", self._trackers[1]),
            mock.patch.object(class_states, "here", self.states),
        ):
            yield
