"""Segments that this process has written and keeps mapped: the next object in one of them is a mere copy in memory.

Writing through a mapping that is there takes a third of the time of `pwrite`, and several threads can do it at once; to
make the mapping costs as much as it saves. So mappings are kept for a moment, in the hope that a segment that was freed
comes back (see `segments`). One keeps the memory of its file even when that was removed by others, which is noticed and
ended within a second.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence

from scaler.common.buffers import address_of, copy_all, populate
from scaler.common.interrupts import Uninterrupted
from scaler.common.records import entity
from scaler.store.segments import Draft, write_all
from scaler.transport.stream import forget_in_children

#: objects of fewer bytes are written with `pwrite`
MAPPED_FROM = 4 << 20
#: bytes that are kept mapped, at most
KEEP_BYTES = 1 << 30
#: seconds for which a mapping is kept that is not used, and between two looks at all of them
_KEEP_SECONDS, _LOOK_SECONDS = 2.0, 0.5


@entity
class _Mapping:
    memory: mmap.mmap
    #: of the same file, to see whether it was removed
    fd: int
    #: when it was used last
    used: float
    busy: bool = False

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


class WarmSegments:
    """See the module's text. Any thread; one of its own runs while there are mappings."""

    def __init__(self) -> None:
        #: a handler of a signal may send a large value, too
        self._lock = threading.RLock()
        #: by device and inode, which no other file can have while it is mapped
        self._mappings: dict[tuple[int, int], _Mapping] = {}
        #: files to be mapped: descriptor and bytes
        self._wanted: list[tuple[int, int]] = []
        self._keeper: threading.Thread | None = None
        self._is_due = threading.Event()
        forget_in_children(self)

    def __len__(self) -> int:
        return len(self._mappings)

    def write(self, draft: Draft, parts: Sequence[bytes | memoryview]) -> None:
        """Write the parts of an object one behind the other. Raises OSError."""
        with Uninterrupted():  # no handler leaves a mapping marked as busy
            mapping = self._take(draft)
            if mapping is not None:
                try:
                    copy_all(address_of(mapping.memory), parts)
                finally:
                    mapping.used = time.monotonic()
                    mapping.busy = False
                return
        write_all(draft.fd, parts)

    def clear(self) -> None:
        """Drop all mappings that are not in use."""
        self._drop(lambda mapping: True)

    def abandon(self) -> None:
        """In a forked child: the mappings are the parent's, and end here."""
        self._lock = threading.RLock()
        mappings, self._mappings = self._mappings, {}
        wanted, self._wanted = self._wanted, []
        self._keeper = None
        for mapping in mappings.values():
            mapping.close()
        for fd, _ in wanted:
            os.close(fd)

    def _take(self, draft: Draft) -> _Mapping | None:
        """The mapping of this segment, now busy; None if there is none to be had, and one may be wanted."""
        if not (draft.is_reserved and MAPPED_FROM <= draft.size <= KEEP_BYTES):
            return None
        status = os.fstat(draft.fd)
        with self._lock:
            mapping = self._mappings.get((status.st_dev, status.st_ino))
            if mapping is None or mapping.busy or len(mapping.memory) < draft.size:
                self._want(draft)
                return None
            mapping.busy = True
            return mapping

    def _want(self, draft: Draft) -> None:
        if self._keeper is None:
            keeper = threading.Thread(target=self._keep, name="scaler-warm-segments", daemon=True)
            try:
                keeper.start()
            except RuntimeError:  # there may be no more threads: then there is no mapping
                return
            self._keeper = keeper
        self._wanted.append((os.dup(draft.fd), draft.size))
        self._is_due.set()

    def _keep(self) -> None:
        """Map what is wanted, which takes milliseconds, and drop what was not used for long."""
        while True:
            self._is_due.wait(_LOOK_SECONDS)
            self._is_due.clear()
            with self._lock:
                wanted, self._wanted = self._wanted, []
            for fd, size in wanted:
                self._map(fd, size)
            before = time.monotonic() - _KEEP_SECONDS
            self._drop(lambda mapping: mapping.used < before or not os.fstat(mapping.fd).st_nlink)  # noqa: B023
            with self._lock:
                if not (self._mappings or self._wanted):
                    self._keeper = None
                    return

    def _map(self, fd: int, size: int) -> None:
        status = os.fstat(fd)
        try:
            memory = mmap.mmap(fd, size)
        except (OSError, ValueError):  # too many mappings, or the file is a smaller one already
            os.close(fd)
            return
        populate(memory)
        mapping, name = _Mapping(memory, fd, time.monotonic()), (status.st_dev, status.st_ino)
        with self._lock:
            mappings = self._mappings
            busy = name in mappings and mappings[name].busy
            dropped = [mapping] if busy else [mappings.pop(name)] if name in mappings else []
            if not busy:
                mappings[name] = mapping
            excess = sum(len(other.memory) for other in mappings.values()) - KEEP_BYTES
            for oldest in sorted(mappings, key=lambda name: mappings[name].used):
                if excess > 0 and not mappings[oldest].busy:
                    excess -= len(mappings[oldest].memory)
                    dropped.append(mappings.pop(oldest))
        for old in dropped:
            old.close()

    def _drop(self, is_dropped: Callable[[_Mapping], bool]) -> None:
        with self._lock:
            names = [name for name, mapping in self._mappings.items() if not mapping.busy and is_dropped(mapping)]
            dropped = [self._mappings.pop(name) for name in names]
        for mapping in dropped:
            mapping.close()
