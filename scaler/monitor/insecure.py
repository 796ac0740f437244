"""What monitors say of a scheduler without keys (`--insecure`): one line, loud where other hosts reach it."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.monitor.formats import inert, width
from scaler.protocol.messages.cluster_view import SchedulerView
from scaler.transport import Address

_DO = "start it without --insecure (docs/running.md, Keys)"
#: the same in fewer words; the last ones fit the smallest screen
_LOUD = (
    "who reaches {address} can run code; start without --insecure",
    "whoever reaches it can run code; start without --insecure",
    "anybody may run code; start without --insecure",
)
_QUIET = (
    "who is on its machine can run code; start without --insecure",
    "open to all on its host; start without --insecure",
)


@dataclass(frozen=True)
class Exposure:
    """Whom a scheduler takes in that has no keys."""

    #: only programs of its own machine reach it: worth a word, not a warning
    is_quiet: bool
    #: who can do what there, where, and what to do; a terminal may have it
    words: str
    #: the same in fewer words, longest first
    shorter: tuple[str, ...]

    def line(self, columns: int) -> str:
        """As much as so many columns have room for, from 60 on without being cut."""
        lines = [f"insecure: {words}" for words in (self.words, *self.shorter)]
        return next((line for line in lines if width(line) <= columns), lines[-1])


def exposure_of(scheduler: SchedulerView) -> Exposure | None:
    """Whom this one takes in; None if it has keys."""
    return exposure_at(scheduler.address) if scheduler.insecure else None


def exposure_at(address: str) -> Exposure:
    """Whom one without keys takes in that listens there; where that is may be unknown, then it is empty."""
    named = inert(address) or "it"
    if _is_loopback(address):
        return Exposure(True, f"whoever is on its machine can run code as its user through {named}; {_DO}", _QUIET)
    words = f"whoever reaches {named} can run code as its user; {_DO}"
    return Exposure(False, words, tuple(each.format(address=named) for each in _LOUD))


def _is_loopback(address: str) -> bool:
    """Other hosts can't reach it; what is no address may be anywhere."""
    try:
        return Address.parse(address).is_loopback
    except ValueError:  # `AddressError` is one, and so is a port of thousands of digits
        return False
