"""The other one of a pair, as a scheduler's process reaches it: over a connection from here, or over one from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.common.loop import Loop
from scaler.protocol.messages import PartnerReport
from scaler.scheduler.pairing import AboutJournals, Pairing
from scaler.scheduler.succession import Succession
from scaler.transport import Security

if TYPE_CHECKING:
    from scaler.scheduler.partner_link import PartnerLink


class Partner:
    """At most one at a time, and maybe none. One thread; `close` blocks for a moment, nothing else does."""

    def __init__(self, succession: Succession, pairing: Pairing, security: Security, limit: int, loop: Loop) -> None:
        """`limit`: bytes of a message."""
        self._succession = succession
        self._pairing = pairing
        self._security = security
        self._limit = limit
        self._loop = loop
        #: what it has said of its journal over the connection from here
        self._said: list[AboutJournals] = []
        self._link: PartnerLink | None = None
        if succession.partner:
            self._link = self._new_link()

    def _new_link(self) -> PartnerLink:
        from scaler.scheduler.partner_link import PartnerLink  # here, as few have a partner and all would load it

        return PartnerLink(self._succession.address, self._security, self._limit, self._loop)

    @property
    def address(self) -> str:
        """Where it is looked for."""
        return self._succession.partner

    @property
    def route(self) -> tuple[str, int] | None:
        """Over what it is spoken to: something else after each loss of a connection; None: it can't be."""
        link = None if self._link is None else self._link.route
        if link is not None:
            return "link", link
        return None if self._pairing.partner is None else ("peer", self._pairing.partner)

    def attend(self, now: float) -> None:
        """Hear it, and see that there is a connection to it."""
        succession = self._succession
        if self._link is not None:
            messages, is_lost = self._link.receive(now)
            for said in messages:
                if isinstance(said, PartnerReport):
                    succession.hear_partner(said, now)
                else:
                    self._said.append(said)
            if is_lost:
                succession.lose_partner(now, said_goodbye=False)
        address = succession.seeks(now)
        if address:
            self._link = self._link or self._new_link()
            self._link.dial(address, now)

    def take_about_journals(self) -> list[AboutJournals]:
        """What it has said of its journal."""
        said, self._said = [*self._said, *self._pairing.take_about_journals()], []
        return said

    def report(self, report: PartnerReport) -> None:
        """Tell it how things are here, over each connection that there is."""
        if self._link is not None:
            self._link.send(report)
        self._pairing.tell(report)

    def tell(self, message: AboutJournals) -> None:
        """Say something of the journal here, over one connection."""
        if self._link is not None and self._link.route is not None:
            self._link.send(message)
        else:
            self._pairing.tell(message)

    def reject(self, reason: str, now: float) -> None:
        """What it said makes no sense: both connections begin anew."""
        if self._link is not None:
            self._link.reject(reason)
        self._pairing.reject_partner(reason, now)
        self._succession.lose_partner(now, said_goodbye=False)

    def close(self, says_goodbye: bool) -> None:
        """Leave it, when the loop has ended."""
        if self._link is not None:
            self._link.close(says_goodbye)
