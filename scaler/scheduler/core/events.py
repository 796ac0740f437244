"""What the scheduler's core hears, and what it answers; its entry point is `handle(events, now) -> effects`."""

from typing import TYPE_CHECKING

from scaler.common.effects import Log as Log
from scaler.common.effects import Stop as Stop
from scaler.common.effects import Tick as Tick
from scaler.common.effects import WakeAt as WakeAt
from scaler.common.records import record
from scaler.protocol.acceptor import Joined as Joined
from scaler.protocol.acceptor import Lost as Lost
from scaler.protocol.acceptor import Moved as Moved
from scaler.protocol.acceptor import Received as Received
from scaler.protocol.acceptor import Stirred as Stirred
from scaler.protocol.acceptor import Unread as Unread
from scaler.protocol.messages import Message
from scaler.scheduler.succession_wishes import Announce as Announce
from scaler.scheduler.succession_wishes import HandOut as HandOut

if TYPE_CHECKING:
    from scaler.protocol.messages.cluster_view import ClusterView


@record
class Vanished:
    """The answer to a `LookFor`: nothing listens there."""

    number: int
    whereabouts: str


@record
class AwaitResidents:
    """Clients that live beside the core, durable jobs, can't come yet, or need not be waited for any more."""

    are_due: bool


Event = Joined | Moved | Received | Lost | Stirred | Unread | HandOut | Announce | Vanished | AwaitResidents | Tick


@record
class Send:
    """Send this message to a peer."""

    number: int
    message: Message


@record
class Forget:
    """The peer's session is over: what still comes from it is refused."""

    number: int
    reason: str
    #: it is told why: it said what can't be
    is_told: bool = False
    #: it is told, too, that to say the same again does not help
    is_final: bool = False


@record
class LookFor:
    """See whether these agents still listen where they did; answer with `Vanished` for those that surely don't."""

    #: their numbers, and where each has listened: its address, and the boot id of its host
    agents: list[tuple[int, str]]


@record
class StartStore:
    """Start the standalone store: a client needs it."""


@record
class Publish:
    """Send these monitors a `Snapshot` of this number; what the core can't know of the scheduler is to be added."""

    monitors: list[int]
    number: int
    view: "ClusterView"
    #: the frame of the workers' columns
    workers: bytes


Effect = Send | Publish | Forget | LookFor | StartStore | WakeAt | Stop | Log
