"""What the two schedulers of a pair tell each other: one leads, the other stands by."""

from array import array

from scaler.common.records import record
from scaler.protocol.messages.columns import column, u64
from scaler.protocol.messages.message import Message, require

#: characters of an address, at most
MAX_ADDRESS = 300
#: agents that count, at most; and versions of a roster, which is another one with each agent that comes or goes
MAX_ROSTER, MAX_VERSION = 1 << 17, 1 << 62


@record
class PartnerReport(Message):
    """Who leads, and which agents count: said twice a second, and when that changes."""

    #: its own if it leads, else the highest that it has heard of
    epoch: int
    leading: bool
    #: where it listens
    address: str
    #: of the roster that it has; 0: it has none
    version: int
    #: the roster is in this report, as the other has another one
    changed: bool = False
    #: sessions of the agents that count
    roster: "array[int]" = column(u64)
    #: it leads, and asks the other to lead from now on
    yields: bool = False

    def validate(self) -> None:
        require(0 < len(self.address) <= MAX_ADDRESS, f"an address has 1 to {MAX_ADDRESS} characters")
        require(self.version < MAX_VERSION, f"versions of a roster are below {MAX_VERSION:,}")
        require(len(self.roster) <= MAX_ROSTER, f"at most {MAX_ROSTER:,} agents count")
        require(self.changed or not self.roster, "a roster that has not changed is not said")
        require(self.leading or not self.yields, "only who leads can yield")
