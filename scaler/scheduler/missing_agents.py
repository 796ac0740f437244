"""Whether agents that have not come to this scheduler from the last one still listen where they did.

The process of an agent listens, for others that fetch objects, for as long as it lives. So one has ended if its host
refuses a connection there. A host that does not answer says nothing: it may be slow, or cut off.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from typing import NamedTuple

from scaler.common.host import boot_id
from scaler.common.side_thread import SideThread
from scaler.errors import AddressError, ConnectionFailed
from scaler.transport import Address

logger = logging.getLogger("scaler.scheduler")

#: seconds that answers are waited for
PATIENCE = 0.8
#: agents that are looked for at a time, at most
MOST = 100


class Missing(NamedTuple):
    """An agent that has not come."""

    number: int
    #: where it has listened, and the boot id of its host
    whereabouts: str


class MissingAgents:
    """A thread looks for them. For one thread beside that."""

    def __init__(self) -> None:
        self._thread: SideThread[list[Missing], Missing] = SideThread("scaler-missing-agents", self._look, self._fail)

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._thread.fileno()

    def look_for(self, agents: list[tuple[int, str]]) -> None:
        """See where these are. Does not block; without a thread nothing is seen."""
        try:
            self._thread.put([Missing(*each) for each in agents[:MOST]])
        except RuntimeError as error:
            logger.warning("nobody looks for agents that are missing: %s", error)

    def take(self) -> list[Missing]:
        """Those that have surely ended."""
        return self._thread.take()

    def close(self) -> None:
        """Look for nobody any more. Blocks for a moment."""
        self._thread.close(2 * PATIENCE)

    def _look(self, missing: list[Missing]) -> None:
        for each in refused(missing, PATIENCE):
            self._thread.tell(each)

    def _fail(self, missing: list[Missing], error: Exception) -> None:
        logger.warning("can't look for agents that are missing: %s", error, exc_info=error)


def refused(missing: list[Missing], patience: float) -> list[Missing]:
    """Those whose hosts say that nothing listens there any more. Blocks for `patience` seconds, and for look-ups."""
    under_way: dict[int, tuple[socket.socket, Missing]] = {}
    found: list[Missing] = []
    poll = select.poll()
    try:
        for each in missing:
            made = _connect(each.whereabouts)
            if isinstance(made, socket.socket):
                under_way[made.fileno()] = made, each
                poll.register(made.fileno(), select.POLLOUT)
            elif made == errno.ECONNREFUSED:
                found.append(each)
        until = time.monotonic() + patience
        while under_way and (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                poll.unregister(fd)
                made, each = under_way.pop(fd)
                with made:
                    if made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
                        found.append(each)
    finally:
        for made, _ in under_way.values():
            made.close()
    return found


def _connect(whereabouts: str) -> socket.socket | int:
    """A connection that is being made, or the error number that it has failed with; 0: nobody can say.

    A loopback address means something on its own host alone.
    """
    text, _, boot = whereabouts.partition(" ")
    try:
        address = Address.parse(text)
        if address.is_loopback and boot != boot_id():
            return 0
        address = address.resolve()[0]
    except (AddressError, ConnectionFailed):
        return 0
    made = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)
    made.setblocking(False)
    number = made.connect_ex((address.host, address.port))
    if number == errno.EINPROGRESS:
        return made
    made.close()
    return number
