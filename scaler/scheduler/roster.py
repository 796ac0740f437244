"""The agents that count when it is asked who of two schedulers may hand out: those that both know, and who is to come.

Pure. A roster has a version, and changes when the partner has the new one: until then more than half of the old and of
the new one are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from scaler.protocol.messages.succession import MAX_VERSION

#: seconds for which an agent that was heard counts as there
LEASE = 3.0
#: seconds of silence after which an agent may have gone to the other scheduler: a heartbeat is missing
QUIET = 1.5
#: seconds after which agents of the last scheduler that have not come count no more, if the partner agrees
ABSENT = 10.0


class Roster:
    """As one of a pair has it."""

    def __init__(self) -> None:
        #: what the partner has, and its version; 0: there was none
        self.settled: frozenset[int] = frozenset()
        self.version = 0
        #: what it was sent, and may have; and who is to count in the end
        self._offered: frozenset[int] | None = None
        self._members: set[int] = set()
        #: agents that are here, and when they were heard last
        self._here: dict[int, float] = {}
        #: agents that have confirmed that they listen, since they were asked to
        self._confirmed: set[int] = set()
        #: when agents that counted at the last scheduler and have not come are missed
        self._absent_from = float("inf")

    @property
    def latest(self) -> frozenset[int]:
        """What the partner is to have."""
        return self.settled if self._offered is None else self._offered

    # ---- agents ----------------------------------------------------------------------------------------------------
    def join(self, session: int) -> None:
        """An agent has come."""
        self._here.setdefault(session, float("-inf"))
        self._members.add(session)

    def hear(self, sessions: Iterable[int], now: float) -> None:
        """These have said something."""
        self._here.update(dict.fromkeys(sessions, now))

    def leave(self, session: int) -> None:
        """It is gone."""
        self._here.pop(session, None)
        self._members.discard(session)
        self._confirmed.discard(session)

    @property
    def has_agents(self) -> bool:
        """Some are here."""
        return bool(self._here)

    def ask_again(self) -> None:
        """Who listens has to be known anew."""
        self._confirmed.clear()

    def confirm_heard(self, sessions: Iterable[int]) -> None:
        """These listen, as they have confirmed since."""
        self._confirmed.update(sessions)

    def has_confirmation(self) -> bool:
        """More than half of all that count, and of those that the partner may take for that, have."""
        return all(
            2 * len(self._confirmed & roster) > len(roster) for roster in (self.settled, self._offered) if roster
        )

    # ---- who leads -------------------------------------------------------------------------------------------------
    def look(self, now: float, may_offer: bool) -> tuple[bool, str]:
        """Whether another roster is offered to the partner from now on; and why too few are heard, or nothing."""
        if now > self._absent_from:
            self._absent_from = float("inf")
            self._members &= self._here.keys()
        is_new = may_offer and self._offered is None and self.settled != self._members
        if is_new:
            self._offered = frozenset(self._members)
            self._renew()
        for there, roster in self._heard_of_each(now - LEASE):
            if 2 * there <= roster:
                return is_new, f"{there} of the {roster} agents that count are heard"
        return is_new, ""

    def _renew(self) -> None:
        self.version = self.version + 1 if self.version + 1 < MAX_VERSION else 1  # somebody may have said any

    def is_quiet(self, now: float) -> bool:
        """So many may have gone to the other scheduler that it would lead."""
        return any(2 * there <= roster for there, roster in self._heard_of_each(now - QUIET))

    def _heard_of_each(self, since: float) -> list[tuple[int, int]]:
        """How many of each roster that there is were heard since then, and how many it has."""
        heard, never = self._here, float("-inf")
        return [
            (sum(heard.get(session, never) >= since for session in roster), len(roster))
            for roster in (self.settled, self._offered)
            if roster
        ]

    def count_heard(self, now: float) -> int:
        """How many agents are here, and were heard a moment ago."""
        return sum(now - heard <= LEASE for heard in self._here.values())

    def has_majority(self, sessions: Set[int]) -> bool:
        """More than half of those that count, as far as both know, are among these."""
        return 2 * len(self.settled & sessions) > len(self.settled)

    def confirm(self, version: int) -> bool:
        """The partner has this version; whether that settles what was offered."""
        if self._offered is None or version != self.version:
            return False
        self.settled, self._offered = self._offered, None
        return True

    def lead(self, now: float) -> None:
        """This one leads from now on: who counts has yet to come."""
        self._members, self._here, self._offered = set(self.settled), {}, None
        self._absent_from = now + ABSENT

    # ---- the partner's ---------------------------------------------------------------------------------------------
    def inherit(self, sessions: Iterable[int], version: int, now: float) -> None:
        """The one that stands by has this one, maybe of a scheduler that this one knows nothing of."""
        self.settled = frozenset(sessions)
        self.version = max(self.version, version)
        if version:
            self._members |= self.settled
            self._absent_from = now + ABSENT

    def follow(self, sessions: Iterable[int], version: int) -> None:
        """The one that leads says that this is it."""
        self.settled, self.version = frozenset(sessions), version

    def dissolve(self) -> None:
        """Nobody counts any more: there is no pair."""
        self.settled, self._offered = frozenset(), None
        if self.version:
            self._renew()  # the old one is of others, and whoever had that may still say so

    def step_down(self) -> None:
        """Agents are told to look elsewhere."""
        self._here.clear()
        self._members.clear()
        self._offered = None
