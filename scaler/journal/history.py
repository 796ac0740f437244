"""Who has written a journal, and up to where: which of two copies is the newer one follows from that. Pure.

A *turn* is the time of one writer: it has a number, a lot that nobody else has drawn, and the place where it began.
Bytes at one place that were written in the same turn are the same wherever they are. So two copies are alike up to the
place where their turns part, or where one of them ends; and one that parts is never mended with what the other has.

    mine                   theirs                 mine, seen from there
    turns 1 2, to byte 90  turns 1 2, to byte 70  EXTENDS: it has all of theirs, and more
    turns 1 2 3            turns 1 2              EXTENDS, if turn 3 began where theirs ends or behind it; else
                                                  FORKED: theirs was written on behind that place
    turns 7                turns 1 2              STRANGE: another journal
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from scaler.journal.layout import Place
from scaler.journal.records import SEGMENT_HEADER

#: turns that are remembered: a copy that is farther behind counts as another journal
MOST_TURNS = 64
#: characters of an address, at most
MOST_ADDRESS = 300
#: the end of a journal without segments, and where its first record goes
NOTHING, FIRST = Place(0, 0), Place(1, SEGMENT_HEADER)


class Turn(NamedTuple):
    """The time of one writer."""

    #: one more than that of the turn before
    number: int
    #: drawn by lot
    lot: int
    #: where its first record is, or would be
    start: Place


@dataclass(frozen=True)
class History:
    """What a journal's directory says of itself beside its segments."""

    turns: tuple[Turn, ...] = ()
    #: where the next record goes at least, though no segment is left
    floor: Place = NOTHING
    #: where the scheduler with another copy is; empty: nobody has one
    partner: str = ""
    #: something may have been acknowledged that the other copy has not
    alone: bool = True
    #: it was written by a standby, from what the one that led had
    follows: bool = False
    #: two schedulers are given this directory: the one that leads writes it
    is_shared: bool = False


class Copy(NamedTuple):
    """A copy of a journal: its turns, and where what can be believed ends."""

    turns: tuple[Turn, ...]
    end: Place

    @property
    def is_empty(self) -> bool:
        """Nothing was ever written to it, whoever was about to."""
        return self.end <= FIRST and all(turn.start <= FIRST for turn in self.turns)


@dataclass(frozen=True)
class Seen:
    """What is in a directory."""

    #: it is the directory of whoever asks
    is_shared: bool = False
    copy: Copy = Copy((), NOTHING)
    segments: tuple[int, ...] = ()
    #: something in it may have been acknowledged that no other copy has
    alone: bool = False


class Relation(Enum):
    """How one copy is to another."""

    SAME = "same"
    #: it has all that the other has, and more
    EXTENDS = "extends"
    #: the other has all that it has, and more
    IS_EXTENDED = "is extended"
    #: each has something that the other has not
    FORKED = "forked"
    #: they have nothing in common
    STRANGE = "strange"


def relation(mine: Copy, theirs: Copy) -> tuple[Relation, Place]:
    """How `mine` is to `theirs`; and the place up to which both are the same.

    >>> turns = (Turn(1, 11, Place(1, 24)),)
    >>> relation(Copy(turns, Place(1, 90)), Copy(turns, Place(1, 70)))
    (<Relation.EXTENDS: 'extends'>, Place(segment=1, offset=70))
    """
    lots = {turn.lot: at for at, turn in enumerate(theirs.turns)}
    shared = [(at, lots[turn.lot]) for at, turn in enumerate(mine.turns) if turn.lot in lots]
    if not shared:
        if theirs.is_empty:
            return (Relation.SAME if mine.is_empty else Relation.EXTENDS), NOTHING
        return (Relation.IS_EXTENDED if mine.is_empty else Relation.STRANGE), NOTHING
    at, there = shared[-1]
    goes_on, they_go_on = at + 1 < len(mine.turns), there + 1 < len(theirs.turns)
    limit = mine.turns[at + 1].start if goes_on else mine.end
    their_limit = theirs.turns[there + 1].start if they_go_on else theirs.end
    common = min(limit, their_limit)
    if goes_on and they_go_on:
        return Relation.FORKED, common
    if goes_on:
        return (Relation.EXTENDS if their_limit <= limit else Relation.FORKED), common
    if they_go_on:
        return (Relation.IS_EXTENDED if limit <= their_limit else Relation.FORKED), common
    if limit == their_limit:
        return Relation.SAME, common
    return (Relation.EXTENDS if limit > their_limit else Relation.IS_EXTENDED), common


def is_newer(mine: Copy, theirs: Copy, alone: bool = True, they_alone: bool = True) -> bool:
    """`mine` is the one to keep of two that differ.

    Of two that have both been written on, the one of which alone something was acknowledged that the other one has
    not (`alone`); if that is so of both, or of neither, the one of more turns.
    """
    found, _ = relation(mine, theirs)
    if found is not Relation.FORKED:
        return found is Relation.EXTENDS
    return alone if alone != they_alone else mine.turns[-1].number > theirs.turns[-1].number


def begun(history: History, end: Place, lot: int) -> History:
    """Somebody writes from now on, behind what is there; turns that began behind that were lost.

    Whether anything counts that it writes, though the other copy has it not, is another matter.
    """
    turns = believed(history.turns, end)
    number = max((turn.number for turn in history.turns), default=0) + 1
    turns = (*turns, Turn(number, lot, max(end, FIRST)))[-MOST_TURNS:]
    return replace(history, turns=turns)


def believed(turns: Sequence[Turn], end: Place) -> tuple[Turn, ...]:
    """Those of which a copy that ends here has something, or could have."""
    at = len(turns)
    while at and turns[at - 1].start > max(end, FIRST):
        at -= 1
    return tuple(turns[:at])


# ---- as bytes --------------------------------------------------------------------------------------------------------
def to_bytes(history: History) -> bytes:
    """What stands in the directory."""
    turns = [[turn.number, turn.lot, *turn.start] for turn in history.turns]
    said = {
        "v": 1, "turns": turns, "floor": list(history.floor), "partner": history.partner,
        "alone": history.alone, "follows": history.follows, "shared": history.is_shared,
    }  # fmt: skip
    return json.dumps(said).encode() + b"\n"


def from_bytes(data: bytes) -> History | None:
    """What `to_bytes` was given; None for anything else."""
    try:
        said = json.loads(data)
        turns = tuple(Turn(_number(n), _number(lot), _place(place)) for n, lot, *place in said["turns"])
        partner, alone, follows = said["partner"], said["alone"], said["follows"]
        if said["v"] != 1 or type(partner) is not str or len(partner) > MOST_ADDRESS or len(turns) > MOST_TURNS:
            return None
        is_shared = said.get("shared") is True
        return History(turns, _place(said["floor"]), partner, alone is not False, follows is True, is_shared)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(value)
    return value


def _place(values: Sequence[object]) -> Place:
    segment, offset = values
    return Place(_number(segment), _number(offset))
