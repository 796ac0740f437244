"""A reader of snapshots: a thread that keeps a session with the scheduler, and makes it anew when it is lost.

The thread owns the connection. It asks for the next snapshot when it has taken one, so that a slow reader gets fewer
snapshots and never old ones; what others see of it is the last `Seen`, replaced as a whole.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scaler.errors import ConnectionFailed, HandshakeRefused, ProtocolError
from scaler.monitor.link import Link
from scaler.monitor.output import LastOutput, output_of
from scaler.monitor.reading import decoded
from scaler.monitor.snapshot import Snapshot
from scaler.protocol.messages import Message, Query, QueryResult, Watch
from scaler.protocol.messages import Snapshot as SnapshotMessage
from scaler.transport import Security

#: seconds before each attempt to find a scheduler that is gone
_PAUSE = 0.25
#: seconds after which a worker that has not answered is asked again: it may have ended
_PATIENCE = 5.0
#: seconds that a snapshot, or the answer to a heartbeat, may come late before that is said. A snapshot is made 1.5
#: intervals after the last at the latest
LATE = 1.5
#: workers whose output is asked for at once
MOST = 16


@dataclass(frozen=True)
class Seen:
    """What a watcher knows at one moment."""

    #: the last snapshot, of a scheduler that is gone if not `is_connected`; None before the first
    snapshot: Snapshot | None
    is_connected: bool
    #: when that began, seconds since 1970: "no scheduler since ..."; of one that fell silent when it was last heard
    since: float
    #: why there is no scheduler, in one line; empty while there is
    reason: str
    #: counts all that was seen, from 1
    version: int = 1
    #: the last lines of output of workers that somebody looks at, by agent and slot
    outputs: Mapping[tuple[int, int], LastOutput] = field(default_factory=dict)
    #: whole seconds without a snapshot if one should have come, or without any word where heartbeats are not answered,
    #: told each second; 0 as long as all comes in time
    silence: int = 0


class Watcher:
    """Watches a cluster until it is closed. Any thread may ask it."""

    def __init__(
        self,
        address: str,
        interval: float = 1.0,
        *,
        security: Security | None = None,
        if_refused: Callable[[], Security] | None = None,
        timeout: float = 5.0,
        name: str = "monitor",
        on_change: Callable[[Seen], None] | None = None,
        waits: bool = False,
    ) -> None:
        """Connect to where a scheduler's log says monitors connect (ipc://...), or to its own address (tcp://...).

        `interval` in seconds. Blocks for at most `timeout` seconds; raises `ConnectionFailed` (nobody is there, or it
        is another user's), `HandshakeRefused` (another key, another version) and `AddressError`, each in one line.
        `if_refused` is asked for other keys where a scheduler does not accept `security`.
        With `waits` it begins without a scheduler as well, and looks for one.
        `on_change` is called in the watcher's thread with all that is seen; it should be quick, and not raise.
        """
        self._link = Link(address, security, name, if_refused)
        self._interval = max(1, round(1000 * interval))
        #: seconds after which a snapshot should have come, and when the last one did, by the monotonic clock
        self._late = 1.5 * interval + LATE
        self._came = time.monotonic()
        self._on_change = on_change
        self._changed = threading.Condition()
        self._is_closed = False
        #: workers whose output is looked at, and the questions under way
        self._looked_at: frozenset[tuple[int, int]] = frozenset()
        self._asked: dict[int, tuple[tuple[int, int], float]] = {}
        self._numbers = itertools.count(1)
        self._wake_end, self._waking_end = os.pipe()
        reason = ""
        try:
            self._link.connect(timeout)
        except BaseException as error:
            reason = str(error)
            if not waits or isinstance(error, HandshakeRefused) or not isinstance(error, ConnectionFailed):
                self._close_pipe()
                raise
        self._seen = Seen(None, not reason, time.time(), reason, 0)
        if not reason:
            self._link.say(Watch(self._interval))
        self._thread = threading.Thread(target=self._run, name="scaler-watcher", daemon=True)
        self._thread.start()

    # ---- for readers -----------------------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        """What is watched."""
        return self._link.url

    @property
    def seen(self) -> Seen:
        """What is known now. Does not block."""
        return self._seen

    def wait(self, after: int = 0, timeout: float | None = None) -> Seen | None:
        """What was seen after this `version`; blocks until there is such. None: time is over, or the watcher closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._seen.version > after or self._is_closed, timeout)
            return self._seen if self._seen.version > after else None

    def __iter__(self) -> Iterator[Seen]:
        version = 0
        while not self._is_closed:
            seen = self.wait(version)
            if seen is None:
                return
            version = seen.version
            yield seen

    def look_at(self, workers: Iterable[tuple[int, int]]) -> None:
        """Ask for the last lines of output of these workers, by agent and slot, at once and with each snapshot.

        They come in `Seen.outputs`. Nobody is asked for anything once it is said that none is looked at.
        """
        wanted = frozenset(itertools.islice(workers, MOST))
        with self._changed:
            if wanted != self._looked_at and not self._is_closed:
                self._looked_at = wanted
                os.write(self._waking_end, b"x")

    def close(self) -> None:
        """Watch no more; whoever waits is told. Blocks for a moment; a second call does nothing."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            os.write(self._waking_end, b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join(5.0)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            if not self._seen.is_connected:
                self._show(None, False, self._seen.reason)
                self._find_again()
            while not self._is_closed:
                reason = self._serve()
                if not self._is_closed:
                    self._show(self._seen.snapshot, False, reason)
                    self._find_again()
        finally:
            self._link.leave()
            self._close_pipe()

    def _serve(self) -> str:
        """Take what comes until the connection is lost; why it was."""
        poll = select.poll()
        poll.register(self._wake_end, select.POLLIN)
        poll.register(self._link.fileno(), select.POLLIN)
        self._came = time.monotonic()
        while not self._is_closed:
            wait = 1000 * max(0.0, min(self._link.beat(), self._silence()[1]))
            if any(fd == self._wake_end for fd, _ in poll.poll(wait)) and not self._is_closed:
                os.read(self._wake_end, 4096)
                self._ask()
            messages, trouble = self._link.receive()
            for message in messages:
                try:
                    self._take(message)
                except ProtocolError as error:
                    return str(error)
            if trouble is not None:
                return trouble
            silence = int(self._silence()[0])
            if silence != self._seen.silence:
                self._show(self._seen.snapshot, True, "", silence=silence)
        return ""

    def _silence(self) -> tuple[float, float]:
        """Seconds for which it is silent, 0 if nothing is late; and seconds until that is to be said, or said anew."""
        link, since = self._link, time.monotonic() - self._came
        waits = self._late, 1.5 * link.heartbeat + LATE
        for silence, late in zip((since, link.quiet), waits, strict=True):
            if silence >= late:
                return silence, 1.0 - silence % 1.0
        return 0.0, min(waits[0] - since, waits[1] - link.quiet)

    def _take(self, message: Message) -> None:
        if type(message) is SnapshotMessage:
            snapshot = decoded(message)
            self._came = time.monotonic()
            self._link.say(Watch(self._interval, message.number))
            self._show(snapshot, True, "")
            self._ask()
        elif type(message) is QueryResult:
            place, _ = self._asked.pop(message.number, (None, 0.0))
            if place is not None and place in self._looked_at:
                outputs = {at: told for at, told in self._seen.outputs.items() if at in self._looked_at}
                told = output_of(message)
                if outputs.get(place) != told:
                    outputs |= {place: told}
                    self._show(self._seen.snapshot, True, "", outputs, silence=self._seen.silence)

    def _ask(self) -> None:
        """Ask for what is looked at, unless the last question about it may still be answered."""
        now = time.monotonic()
        self._asked = {number: asked for number, asked in self._asked.items() if now - asked[1] < _PATIENCE}
        for agent, slot in self._looked_at.difference(place for place, _ in self._asked.values()):
            number = next(self._numbers)
            self._asked[number] = (agent, slot), now
            self._link.say(Query(number, "output", agent=agent, slot=slot))

    def _find_again(self) -> None:
        while not self._is_closed:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closed, _PAUSE):
                    return
            try:
                self._link.connect(5.0)
            except ConnectionFailed as error:
                if str(error) != self._seen.reason:
                    self._show(self._seen.snapshot, False, str(error))
            else:
                self._asked.clear()
                self._link.say(Watch(self._interval))
                return

    def _show(
        self,
        snapshot: Snapshot | None,
        is_connected: bool,
        reason: str,
        outputs: Mapping[tuple[int, int], LastOutput] | None = None,
        silence: int = 0,
    ) -> None:
        before = self._seen
        if outputs is None:
            outputs = before.outputs
        if is_connected == before.is_connected:
            since = before.since
        else:
            since = time.time() - (0.0 if is_connected else self._link.silence)
        seen = Seen(snapshot, is_connected, since, reason, before.version + 1, outputs, silence)
        with self._changed:
            self._seen = seen
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change(seen)

    def _close_pipe(self) -> None:
        with self._changed, contextlib.suppress(OSError):
            os.close(self._wake_end)
            os.close(self._waking_end)
            self._waking_end = -1
