"""Agents that were refused, and would come: they say which of two schedulers leads when the other one is silent.

Pure. An agent that looks for a scheduler asks a few times a second, and each time is a vote for a moment.
"""

from collections.abc import Set
from typing import NamedTuple

#: seconds for which an agent that was refused counts as wanting to come
VOTE_AGE = 1.5


class _Vote(NamedTuple):
    when: float
    #: of the last scheduler that it heard
    term: int
    #: how many agents counted there; 0 if that had no partner
    roster: int


class Claim(NamedTuple):
    """What agents say of the pair that they come from."""

    #: the highest that it has had; -1: they come from none
    term: int
    #: how many agents counted there
    roster: int
    #: how many would come that may be of those
    there: int


class Votes:
    """As one of a pair that does not lead has them."""

    def __init__(self) -> None:
        self._votes: dict[int, _Vote] = {}

    def add(self, session: int, term: int, roster: int, now: float) -> None:
        """This agent would come, from a scheduler of this term where so many counted."""
        self._votes[session] = _Vote(now, term, roster)

    def drop_old(self, now: float) -> None:
        """Who has not asked for a while is with another scheduler, or gone."""
        self._votes = {session: vote for session, vote in self._votes.items() if now - vote.when <= VOTE_AGE}

    def clear(self) -> None:
        """Agents are welcome from now on."""
        self._votes.clear()

    @property
    def sessions(self) -> Set[int]:
        """The agents that would come."""
        return self._votes.keys()

    @property
    def highest_term(self) -> int:
        """Of the pairs that they come from; -1: from none."""
        return max((vote.term for vote in self._votes.values() if vote.roster), default=-1)

    @property
    def claim(self) -> Claim:
        """The pair of the highest term, and who would come from it."""
        votes, top = self._votes.values(), self.highest_term
        counted = max((vote.roster for vote in votes if vote.term == top), default=0)
        return Claim(top, counted, sum(bool(vote.roster) or vote.term >= top for vote in votes))

    def electors(self) -> int:
        """How many agents counted at the pair of the highest term, if more than half of as many would come; else 0."""
        claim = self.claim
        return claim.roster if 2 * claim.there > claim.roster else 0
