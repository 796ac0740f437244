"""Two schedulers of a run: one leads, the other stands by. Each is at a site of its own, and may be cut off from it."""

from collections.abc import Callable
from typing import Any

from scaler.errors import ProtocolError
from scaler.protocol.channel import Envelope
from scaler.protocol.codes import Role
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Broken, Initiator, Rejected
from scaler.protocol.messages import DisconnectRequest, PartnerReport
from scaler.scheduler.pairing import AboutJournals
from scaler.scheduler.roster import LEASE
from scaler.scheduler.succession import SUSPECT, Succession
from scaler.transport import Address
from simulator.checks import require
from simulator.network import Connection, Network, decoded

#: where peers look for a scheduler, and each one's own address
BOTH = Address.parse("tcp://first:1,tcp://second:2")
SITES = tuple(each.url for each in BOTH.each)
#: seconds for which two may hand out: one that is not heard any more has not noticed that it is not
OVERLAP = LEASE + 1.0
#: seconds in which one that is not stopped does something
AT_WORK = 0.5


class PartnerLine:
    """Like the shell's `PartnerLink`."""

    def __init__(self, server: Any, network: Network, site: int) -> None:
        self._server = server
        self._network = network
        self._site = site
        self._connection: Connection | None = None
        self._heard = 0.0
        self._made = 0
        #: what the other one has said of its journal over this connection
        self.said: list[AboutJournals] = []
        #: of its scheduler, for what is said over the connection that the other one has made
        self.composition: Any = None
        self._begin()

    def _begin(self) -> None:
        hello = hello_of(Role.SCHEDULER, SITES[self._site], self._server.world.random.getrandbits(63) | 1)
        self._initiator = Initiator(hello)

    def dial(self) -> None:
        """Connect to the other one, unless there is a connection."""
        if self._connection is not None:
            return
        kind = self._server.world.random.choice(("unix", "tcp"))
        self._connection = self._network.connect(self._server, kind, f"site-{self._site}", 1 - self._site)
        if self._connection is not None:
            self._made += 1
            self._begin()
            self._heard = self._server.world.now
            self._send(self._initiator.greet(self._heard))

    # ---- like `Partner` of the shell -------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        """What is said over this connection is sent."""
        return self._connection is not None and self._initiator.is_open

    @property
    def address(self) -> str:
        """Where the other one is."""
        return str(self._server.succession.partner)

    @property
    def route(self) -> tuple[str, int] | None:
        """Over what the other one is spoken to."""
        if self.is_open:
            return "link", self._made
        return None if self.composition.pairing.partner is None else ("peer", self.composition.pairing.partner)

    def take_about_journals(self) -> list[AboutJournals]:
        """What the other one has said of its journal."""
        said, self.said = [*self.said, *self.composition.pairing.take_about_journals()], []
        return said

    def tell(self, message: AboutJournals) -> None:
        """Say something of the journal, over one connection."""
        if self.is_open:
            self.send(message)
        else:
            self.composition.pairing.tell(message)

    def receive(self, items: list[Any]) -> tuple[list[PartnerReport | AboutJournals], bool]:
        """What the other one has said; whether the connection was lost."""
        now = self._server.world.now
        reports: list[PartnerReport | AboutJournals] = []
        lost = False
        for item in items:
            if self._connection is None or item[0] not in ("frames", "eof") or item[1] is not self._connection:
                continue
            lost = item[0] == "eof"
            if not lost:
                self._heard = now
                try:
                    said = self._initiator.receive(decoded(item[2]), now)
                except ProtocolError as error:
                    said = self._initiator.reject(str(error))
                lost = isinstance(said, (Rejected, Broken))
                is_gap = isinstance(said, Broken) and "came after" in said.reason
                require(not is_gap, f"{self._server.name} misses what the other one said before: {said}", "scheduler-")
                if isinstance(said, PartnerReport | AboutJournals):
                    reports.append(said)
            if lost:
                break
        self._send(self._initiator.take_ack())
        if self._connection is not None and (lost or now - self._heard > SUSPECT):
            self.close()
            lost = True
        return reports, lost

    def send(self, report: PartnerReport | AboutJournals) -> None:
        """Say this, if there is a session."""
        if isinstance(report, AboutJournals):
            self._server.world.note(self._server.name, report)
        if self._connection is not None and self._initiator.is_open:
            self._send(self._initiator.send(report))

    def _send(self, envelope: Envelope | None) -> None:
        if envelope is not None and self._connection is not None:
            self._connection.up(self._network.encoded(envelope))

    def reject(self, reason: str, now: float) -> None:
        """What was said makes no sense: both connections begin anew."""
        self.close()
        self.composition.pairing.reject_partner(reason, now)
        self._server.succession.lose_partner(now, said_goodbye=False)

    def close(self, says_goodbye: bool = False) -> None:
        """It is over."""
        if self._connection is not None:
            if says_goodbye and self._initiator.is_open:
                self._send(self._initiator.send(DisconnectRequest()))
            self._connection.close_by_peer()
            self._connection = None
            self._initiator.disconnect("closed")


class Pair:
    """Both sites of a run: who is there, and that they do not both hand out."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.servers: list[Any] = [None, None]
        self._both_since: float | None = None
        #: when the one at each site has last done something
        self._stepped = [float("-inf"), float("-inf")]
        #: sites whose hosts were lost with their disks: those are started as standbys of the other one
        self.replaced: set[int] = set()
        #: is told of the next that comes to lead
        self.on_lead: Callable[[Any], None] | None = None
        #: when somebody has last been told that jobs and results may be missing
        self.warned = float("-inf")

    def succession_at(self, site: int) -> Succession:
        """Of a scheduler that is started as people would: the first is given its address alone."""
        lot = self._world.random.getrandbits(40)
        stands_by = bool(site) or site in self.replaced
        return Succession(SITES[site], lot, SITES[1 - site] if stands_by else "", stands_by=stands_by)

    @property
    def leader(self) -> Any:
        """The one that leads, or would if there were one."""
        there = [server for server in self.servers if server is not None]
        leading = [server for server in there if server.alive and server.succession.leads]
        return max(leading or there, key=lambda server: (server.alive, server.succession.term))

    def check(self, site: int) -> None:
        """Those that count some agents, and hear enough of them, are not two for long.

        The one at a site has done a step. One that was stopped meanwhile is no exception when it goes on.
        """
        now = self._stepped[site] = self._world.now
        handing = [
            server
            for server in self.servers
            if server is not None and server.alive and server.succession.hands_out and server.succession.leads
            and server.succession.roster
        ]  # fmt: skip
        if len(handing) < 2:
            self._both_since = None
            return
        self._both_since = self._both_since or now
        if now - min(self._stepped) < AT_WORK:
            require(now - self._both_since < OVERLAP, "both schedulers hand out rows", "scheduler-")
