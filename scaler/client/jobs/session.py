"""Asking a scheduler about durable jobs: over a connection of its own, made again when the scheduler dies.

Whatever is asked may be asked twice: a part that was submitted is known by its key, and answers name the rows that they
are about.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from scaler.common.attempts import FIRST_PAUSE, Attempts
from scaler.errors import ConnectionFailed, HandshakeRefused, JobError
from scaler.monitor.link import Link
from scaler.protocol.messages import JobAnswer, JobQuestion, JobSubmit, Message
from scaler.transport import Security

#: seconds that an answer takes longer than it was to be waited for, at most
SLACK = 30.0
#: seconds after which a connection is made anew: nobody has said on it meanwhile that we are there
IDLE = 3.0
#: what is said to whoever waits for an answer when the session is ended
ENDED = "this session about jobs was ended"
#: seconds for one attempt to connect
TRY = 5.0


class JobSession:
    """Connections, for any thread: as many as threads ask at the same time. Blocks."""

    def __init__(self, address: str, security: Security | None, patience: float, is_known: bool = False) -> None:
        """`patience`: seconds for which a scheduler is looked for that is gone.

        It `is_known` that one at this address takes us: one that does not, or stands by, may be followed by that.
        """
        self._address = address
        self._security = security
        self._patience = patience
        self._is_known = is_known
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        #: connections that nobody asks over at the moment, and when each was used last, seconds
        self._idle: list[tuple[Link, float]] = []
        self._pid = os.getpid()
        self._is_aborted = False
        #: readable when that is so
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._wakeup)

    @property
    def limit(self) -> int:
        """Bytes of a message that the scheduler takes. Blocks while there is no connection."""
        link = self._connected(self._patience)
        self._put_back(link)
        return link.limit

    def find(self) -> None:
        """Connect, without looking for long for a scheduler that is not there. Raises `ConnectionFailed`."""
        self._put_back(self._connected(0.0))

    def submit_all(self, parts: Sequence[dict[str, Any]]) -> list[JobAnswer]:
        """Submit parts, each given as the fields of a `JobSubmit`; returns once all of them are on disk.

        Raises `JobError` and `ConnectionFailed`.
        """
        return self._ask([JobSubmit(next(self._numbers), **fields) for fields in parts], 0.0)

    def ask(self, kind: str, name: str = "", **fields: Any) -> JobAnswer:
        """Ask a question. Raises `JobError` and `ConnectionFailed`."""
        return self._ask([JobQuestion(next(self._numbers), kind, name, **fields)], fields.get("wait", 0.0))[0]

    def _ask(self, messages: Sequence[JobSubmit | JobQuestion], wait: float) -> list[JobAnswer]:
        patience = self._patience
        attempts: Attempts | None = None
        while True:
            if self._is_aborted:
                raise ConnectionFailed(ENDED)
            link = self._connected(patience)
            try:
                for message in messages:
                    link.say(message)
                answers = self._await(link, [message.number for message in messages], wait + SLACK)
            except BaseException as error:
                link.drop()
                if not isinstance(error, ConnectionFailed) or self._is_final(error):
                    raise
                now = time.monotonic()
                if attempts is None:
                    attempts = Attempts(now, self._patience)
                elif not self._is_aborted:  # a scheduler that is there refuses it again and again, maybe
                    time.sleep(attempts.next_pause(now))
                patience = attempts.deadline - now
                if patience <= 0 or self._is_aborted:
                    raise
                continue
            self._put_back(link)
            self._is_known = True
            for answer in answers:
                if answer.error:
                    raise JobError(answer.error)
            return answers

    def _put_back(self, link: Link) -> None:
        with self._lock:
            if self._pid == os.getpid():
                self._idle.append((link, time.monotonic()))

    def _connected(self, patience: float) -> Link:
        """A connection for the caller alone; a scheduler that is not there is looked for so many seconds."""
        with self._lock:
            if self._pid != os.getpid():  # the connections belong to the parent of this process
                self._idle, self._pid = [], os.getpid()
            since = time.monotonic() - IDLE
            old = [link for link, used in self._idle if used <= since]
            self._idle = [each for each in self._idle if each[1] > since]
            found = self._idle.pop()[0] if self._idle else None
        for link in old:
            link.drop()
        if found is not None:
            return found
        attempts = Attempts(time.monotonic(), patience)
        while True:
            link = Link(self._address, self._security, "scaler-jobs")
            try:
                link.connect(TRY)
            except ConnectionFailed as error:
                now = time.monotonic()
                if self._is_aborted or self._is_final(error) or attempts.are_over(now):
                    raise
                time.sleep(attempts.next_pause(now))
                continue
            return link

    def _is_final(self, error: ConnectionFailed) -> bool:
        return isinstance(error, HandshakeRefused) and not self._is_known

    def _await(self, link: Link, numbers: list[int], timeout: float) -> list[JobAnswer]:
        found: dict[int, JobAnswer] = {}

        def take(message: Message) -> bool:
            if isinstance(message, JobAnswer):
                found[message.number] = message
            return all(number in found for number in numbers)

        if not link.listen(take, timeout, self._wakeup):
            raise ConnectionFailed(ENDED)
        return [found[number] for number in numbers]

    def pause(self) -> None:
        """Wait a little before something is asked again."""
        time.sleep(FIRST_PAUSE)

    def abort(self) -> None:
        """Whoever waits for an answer is told that there is none, and so is who asks later. From any thread."""
        self._is_aborted = True
        os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """Say goodbye; blocks for a moment."""
        with self._lock:
            links, self._idle = self._idle, []
            is_ours = self._pid == os.getpid()
        for link, _ in links:
            if is_ours:
                link.leave()
