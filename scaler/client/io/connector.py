"""Making connections to the scheduler, and making them again when they are lost."""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from scaler.client.io.driver import SessionDriver
from scaler.client.io.line import Line
from scaler.client.io.polling import ConnectionPoller
from scaler.common import local_clusters
from scaler.common.attempts import Attempts
from scaler.errors import ConnectionFailed, ConnectionTimeout, HandshakeRefused, ProtocolError, SchedulerStandsBy
from scaler.protocol.initiator import FIRST_TIMEOUT, Established, Rejected
from scaler.transport import Address, Candidates, Connection, Security, connect

#: so many connections that the scheduler ends within so many seconds for what was said over them are enough
REFUSALS, REFUSALS_SECONDS = 3, 30.0
#: seconds that a scheduler is given to take a connection and to answer; then it is tried anew, if there is time
TRY = FIRST_TIMEOUT
#: seconds between looks whether a lost connection is still wanted
LOOK = 0.05


class Connector:
    """Connects, and shakes hands. One thread at a time."""

    def __init__(
        self,
        address: Address,
        security: Security,
        patience: float,
        line: Line,
        driver: SessionDriver,
        poller: ConnectionPoller,
    ) -> None:
        self.address = address
        self._candidates = Candidates(address)
        self._security = security
        #: seconds for which a lost scheduler is looked for
        self._patience = patience
        self._line = line
        self._driver = driver
        self._poller = poller
        #: when the last connections were refused, seconds
        self._refused: deque[float] = deque(maxlen=REFUSALS)

    @property
    def current(self) -> Address:
        """Which of the addresses the scheduler is at, or is looked for next. Any thread."""
        return self._candidates.current

    def connect(self, deadline: float, waits: bool = False) -> None:
        """Connect and shake hands, and have the connection watched. Blocks; raises ConnectionFailed and its kinds.

        If it `waits`, nobody at the address is no failure before the deadline, nor is somebody who is just ending. The
        second of two schedulers, which may be about to lead, is waited for in any case.
        """
        patience = max(0.0, deadline - time.monotonic())
        attempts = Attempts(time.monotonic(), patience, self._candidates.longest_pause)
        while True:
            try:
                self._try_once(deadline, waits and not self._candidates.others)
                return
            except HandshakeRefused:
                raise
            except ConnectionFailed:
                if not (waits or self._candidates.one_stands_by) or attempts.are_over(time.monotonic()):
                    raise
            time.sleep(attempts.next_pause(time.monotonic()))

    def _try_once(self, deadline: float, waits: bool = False) -> None:
        attempt = partial(self._connect_to, waits=waits)
        self._candidates.find(attempt, min(deadline, time.monotonic() + TRY))

    def _connect_to(self, address: Address, reached_by: float, deadline: float, waits: bool) -> None:
        left = max(0.1, reached_by - time.monotonic())
        had_ended = local_clusters.end_of(self.address.url) is not None
        connection = connect(address, self._security, timeout=left, retry=waits)
        try:
            with self._driver.lock:
                hello = self._line.greet()
            connection.send(hello)
            self._await_welcome(connection, deadline)
            if had_ended:
                local_clusters.forget(self.address.url)
            self._watch(connection, address)
        except BaseException as error:
            with self._driver.lock:
                self._line.disconnect(str(error))
            connection.close(0)
            raise

    def reconnect(self, is_wanted: Callable[[], bool]) -> None:
        """The connection is lost: make it anew, as long as it `is_wanted`. Blocks for as long as the patience lasts.

        Raises ConnectionFailed when that is over, or when the scheduler refuses what this client says, for good or
        again and again, which a new connection does not mend; `HandshakeRefused`.
        """
        attempts = Attempts(time.monotonic(), self._patience, self._candidates.longest_pause)
        connection = self._line.connection
        assert connection is not None
        with self._driver.lock:
            reason = self._line.disconnect(connection.trouble() or "it was closed")
        with contextlib.suppress(ValueError):  # closed on this side, and so forgotten already
            self._poller.remove(connection.fileno())
        connection.close(0)
        if self._line.initiator.is_elsewhere or self._line.initiator.is_silent:
            self._candidates.turn(time.monotonic(), self._line.initiator.is_silent)
        self._note_refusal()
        while is_wanted():
            try:
                self._try_once(attempts.deadline)
            except ConnectionFailed as error:
                ended = local_clusters.end_of(self.address.url)
                if ended is not None:
                    raise ConnectionFailed(f"the local cluster at {self.address} {ended}") from error
                if attempts.are_over(time.monotonic()):
                    if isinstance(error, HandshakeRefused):  # not at once: the one that is wanted may follow
                        raise
                    gone = f"the scheduler at {self.address} is gone ({reason})"
                    raise ConnectionFailed(f"{gone} and did not come back within {self._patience:g} s") from error
                _sleep_while(is_wanted, attempts.next_pause(time.monotonic()))
                continue
            return

    def _note_refusal(self) -> None:
        refusal = self._line.initiator.refusal
        if refusal is None or self._line.initiator.is_elsewhere:
            return
        now = time.monotonic()
        self._refused.append(now)
        again = len(self._refused) == REFUSALS and now - self._refused[0] < REFUSALS_SECONDS
        if again or self._line.initiator.is_final:
            raise ConnectionFailed(f"the scheduler at {self.address} refuses what this client says: {refusal}")

    def _watch(self, connection: Connection, address: Address) -> None:
        try:
            self._poller.add(connection.fileno())
        except ValueError:  # what came behind the Welcome has closed it, as from a scheduler that steps down just then
            trouble = connection.trouble()
            raise ConnectionFailed(f"the scheduler at {address} did not go on behind its welcome: {trouble}") from None

    def _await_welcome(self, connection: Connection, deadline: float) -> None:
        poll, address = select.poll(), self._candidates.current
        poll.register(connection.fileno(), select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                trouble = connection.trouble()
                why = f": {trouble}" if trouble else ""
                raise ConnectionTimeout(f"the scheduler at {address} did not answer in time{why}")
            poll.poll(min(left, 0.1) * 1000)
            with self._driver.lock:  # nothing may be said between the welcome and what it means to the session
                if self._is_welcome(connection):
                    return
            if connection.is_closed:
                raise ConnectionFailed(connection.trouble() or f"the scheduler at {address} closed the connection")

    def _is_welcome(self, connection: Connection) -> bool:
        """Take in what the scheduler answers; whether the session goes on."""
        arrived = iter(connection.receive())
        for frames in arrived:
            try:
                said = self._line.hear(frames)
            except ProtocolError as error:
                raise HandshakeRefused(
                    f"what answers at {self._candidates.current} is no scheduler of this version: {error}"
                ) from None
            if isinstance(said, Rejected):
                kind = SchedulerStandsBy if said.elsewhere else HandshakeRefused
                raise kind(f"the scheduler at {self._candidates.current} refused: {said.reason}")
            if isinstance(said, Established):
                self._driver.establish(connection, said, list(arrived))
                return True
        return False


def _sleep_while(is_wanted: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while is_wanted() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LOOK))
