"""The functions that a client's tasks call: captured when they are submitted, sent once, and forgotten in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from scaler.client.core.options import Options, with_root
from scaler.client.core.task_template import TaskTemplate, check_size
from scaler.client.io.driver import SessionDriver
from scaler.client.liveness import Liveness
from scaler.client.values.uploads import Uploads
from scaler.protocol.messages import INLINE_LIMIT
from scaler.serialize.call import AnySerializer
from scaler.serialize.function import Captured, FunctionCache

#: templates remembered; each keeps its function at the scheduler, and so does one that a call has in hand
MOST = 1_024
#: bytes of the functions of those
MOST_BYTES = 16 << 20
#: bytes of functions that are sent before those are forgotten that nobody has any more: one that is made anew for each
#: call, always the same, is sent again so much later
SENT_BYTES = 2 << 20


class Templates:
    """Of one client and all its views. Any thread."""

    def __init__(
        self,
        driver: SessionDriver,
        liveness: Liveness,
        uploads: Uploads,
        serializer: AnySerializer | None,
        root: Callable[[], int] | None = None,
    ) -> None:
        """`root` of a client inside a worker: says for which root's sake it is asked for something now."""
        self._driver = driver
        self._liveness = liveness
        self._uploads = uploads
        self._root = root
        self._functions = FunctionCache(serializer, large=INLINE_LIMIT)
        self._capture = self._functions.capture
        #: by token of the captured function, the one used last: found in half the time
        self._last: dict[int, TaskTemplate] = {}
        #: held while one is added; the collector may run anybody's code meanwhile
        self._making = threading.RLock()
        #: by token of the captured function, the oldest first
        self._known: dict[tuple[int, Options], TaskTemplate] = {}
        #: bytes of their functions; of those added since it was last looked which of them somebody has
        self._bytes = self._added = 0
        #: of large functions, by object id: no longer than calls or the remembered values need them
        self._stored: WeakValueDictionary[tuple[int, Options], TaskTemplate] = WeakValueDictionary()

    def of(self, function: Callable[..., Any], options: Options) -> TaskTemplate:
        """The template of a function as it is now. Blocks only while a large one is written to a store.

        Raises TypeError for what can't be called, `SerializationError`, `StoreFull`, `ObjectTooLarge`, and what
        `Liveness.check` raises.
        """
        if self._root is not None:
            options = self.rooted(options)
        captured = self._capture(function)
        last = self._last.get(captured.token)
        if last is not None and last.options is options:
            return last
        template = self._known.get((captured.token, options)) or self._make(captured, function, options)
        if not template.keeps:
            self._last[template.captured.token] = template
        return template

    def rooted(self, options: Options) -> Options:
        """The options that a task which is made now has."""
        return options if self._root is None else with_root(options, self._root())

    def _make(self, captured: Captured, function: Callable[..., Any], options: Options) -> TaskTemplate:
        self._liveness.check()
        limit, what = self._driver.welcome.limit, f"the function {captured.name}"
        if captured.packed is not None:
            stored = self._uploads.keep(function, captured.packed, self._functions.pack, what)
            if stored is not None:
                captured.packed = None
                kept = self._stored.get((stored.id, options))
                if kept is None:
                    kept = self._stored[stored.id, options] = TaskTemplate(
                        captured, function, options, stored.id, stored
                    )
                return kept
            check_size(captured.packed.size, limit, what)
            captured = self._functions.in_message(captured, function)
            known = self._known.get((captured.token, options))
            if known is not None:
                return known
        check_size(len(captured.payload), limit, what)
        template = TaskTemplate(captured, function, options, release=self._driver.release)
        size = len(captured.payload)
        with self._making:
            self._added += size
            if self._added > SENT_BYTES:
                self._added = size
                for key, known in list(self._known.items()):
                    if not known.is_alive:
                        self._forget(key)
            while self._known and (len(self._known) >= MOST or self._bytes + size > MOST_BYTES):
                self._forget(next(iter(self._known)))
            found = self._known.setdefault((captured.token, options), template)
            if found is template:
                self._bytes += size
            return found

    def _forget(self, key: tuple[int, Options]) -> None:
        """A template is a call's that has it in hand, or nobody's."""
        template = self._known.pop(key, None)
        if template is not None:
            self._bytes = max(0, self._bytes - len(template.captured.payload))  # `forget` may be at work
            self._last.pop(key[0], None)

    def forget(self) -> None:
        """The scheduler forgets all: what a call has in hand is sent anew. To be called under the session's lock."""
        for template in list(self._known.values()):
            template.object_id = 0
        self._last.clear()
        self._known.clear()
        self._bytes = self._added = 0
        self._stored.clear()
