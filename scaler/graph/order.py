"""In which order the calls of a graph are best made: so that few values have to be kept at a time.

Calls have numbers here, and `needs` says of each the numbers of those whose values it needs, all of them smaller than
its own: depth first, as `scaler.graph.culling` finds them. An order is a list of all numbers; in it, too, a call comes
after those it needs. All of this takes time in proportion to the number of dependencies. Plain code, no I/O.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable, Sequence

Needs = Sequence[Sequence[int]]

#: more users than any value has: it is never let go of
_KEPT = 1 << 60
#: of so many calls one value is kept at a time: there is little to be won by another order
_SPARSE = 32
#: calls that are made earlier than they are numbered, to let go of one value; and the needs of a call that is looked at
_FEW, _WIDE = 4, 64


def heaviest_first(needs: Needs) -> list[int] | None:
    """Return the best order of calls whose values are each needed once at most; None if they are in it already.

    That is depth first, and of the branches of a call first the one during which most values are kept.

    >>> heaviest_first([(), (), (), (1, 2), (0, 3)])
    [1, 2, 3, 0, 4]
    """
    #: of each call, how many values are kept at once while its own is computed
    weights = [1] * len(needs)
    is_best = True
    for number, needed in enumerate(needs):
        if len(needed) > 1:
            branches = [weights[need] for need in needed]
            sorted_ = sorted(branches, reverse=True)
            is_best = is_best and branches == sorted_
            weights[number] = max(map(operator.add, sorted_, itertools.count()))
        elif needed:
            weights[number] = weights[needed[0]]
    if is_best:
        return None
    # Backwards: a call, then its lightest branch, then the others. The reverse is depth first, heaviest first.
    order: list[int] = []
    stack = sorted(set(range(len(needs))).difference(itertools.chain.from_iterable(needs)))
    while stack:
        number = stack.pop()
        order.append(number)
        stack += sorted(needs[number], key=lambda need: -weights[need])
    order.reverse()
    return order


def fewest_kept(needs: Needs, kept: Collection[int]) -> list[int]:
    """Return the better one of two orders: `releasing_first`, and where that keeps many values `completing_first`.

    `kept` are the calls whose values are kept in any case.
    """
    order = releasing_first(needs, kept)
    most = most_kept(order, needs, kept)
    if most * _SPARSE > len(needs):
        other = completing_first(needs, kept)
        if most_kept(other, needs, kept) < most:
            return other
    return order


def most_kept(order: Iterable[int], needs: Needs, kept: Iterable[int] = ()) -> int:
    """Return how many values there are at most, at the end of a call, if one is made after the other in this order."""
    left = _uses(needs, kept)
    alive = most = 0
    for number in order:
        alive += 1
        for need in needs[number]:
            left[need] -= 1
            alive -= not left[need]
        alive -= not left[number]
        if alive > most:
            most = alive
    return most


def releasing_first(needs: Needs, kept: Iterable[int]) -> list[int]:
    """Return an order in which a call that is the last to need some value is made as soon as it can be.

    Between such calls, which never let the number of values grow, the others come as they are numbered. `kept` are the
    calls whose values are kept in any case.

    >>> releasing_first([(), (), (0, 1), (), (2, 3), (0,), (1, 5)], [])
    [0, 1, 2, 5, 6, 3, 4]
    """
    #: of each value, the calls that need it and have not been made; and the sum of their numbers
    left, rest = _uses(needs, kept), [0] * len(needs)
    for number, needed in enumerate(needs):
        for need in needed:
            rest[need] += number
    made = bytearray(len(needs))
    #: call -> those that wait for it in order to let go of something; and how many of their needs are there already
    waiting: dict[int, list[int]] = {}
    there: dict[int, int] = {}
    order: list[int] = []
    for number in range(len(needs)):
        stack = [number]
        while stack:
            number = stack.pop()
            if made[number]:
                continue
            made[number] = 1
            order.append(number)
            last = [rest[number]] if left[number] == 1 else []
            for need in needs[number]:
                left[need] -= 1
                rest[need] -= number
                if left[need] == 1:
                    last.append(rest[need])
            if there:
                last = [user for user in last if user not in there] + waiting.pop(number, [])
            for user in dict.fromkeys(last):
                needed, count = needs[user], there.get(user, 0)
                while count < len(needed) and made[needed[count]]:
                    count += 1
                if count == len(needed):
                    stack.append(user)
                else:
                    there[user] = count
                    waiting.setdefault(needed[count], []).append(user)
    return order


def completing_first(needs: Needs, kept: Iterable[int]) -> list[int]:
    """Return an order in which a call that is the last to need some value is made soon, and first what it lacks.

    That is done where it lacks few other calls. They may let the number of values grow for now, and keep it small in
    the long run: of the sums of a², b² and ab over many parts, each part is done with at once.

    >>> completing_first([(), (0,), (), (2,), (1, 3), (), (0, 5)], [])
    [0, 1, 5, 6, 2, 3, 4]
    """
    users: list[list[int]] = [[] for _ in needs]
    for number, needed in enumerate(needs):
        for need in needed:
            users[need].append(number)
    #: of each value, the calls that need it and have not been made; of each call, the values that are not there yet
    left, lacks = _uses(needs, kept), list(map(len, needs))
    made = bytearray(len(needs))
    order: list[int] = []

    def missing(user: int) -> list[int]:
        """The calls to be made for this one, the first one last, and itself; none if they are too many."""
        found = [user]
        for call in found:
            if lacks[call] > _FEW or (lacks[call] and len(needs[call]) > _WIDE):
                return []
            if lacks[call]:
                found += [need for need in needs[call] if not made[need] and need not in found]
                if len(found) > 1 + _FEW:
                    return []
        found.sort(reverse=True)
        return found

    for number in range(len(needs)):
        stack = [number]
        while stack:
            number = stack.pop()
            if made[number]:
                continue
            made[number] = 1
            order.append(number)
            for user in users[number]:
                lacks[user] -= 1
            let_go = [number] if left[number] == 1 else []
            for need in needs[number]:
                left[need] -= 1
                if left[need] == 1:
                    let_go.append(need)
            for value in let_go:
                for user in users[value]:
                    if not made[user]:
                        stack += missing(user)
                        break
    return order


def _uses(needs: Needs, kept: Iterable[int]) -> list[int]:
    """How often calls name each value; `_KEPT` for those that are kept."""
    uses = [0] * len(needs)
    for need in itertools.chain.from_iterable(needs):
        uses[need] += 1
    for number in kept:
        uses[number] = _KEPT
    return uses


def is_order(order: Sequence[int], needs: Needs) -> bool:
    """Say whether every call comes after those it needs."""
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    return all(places[need] < places[number] for number, needed in enumerate(needs) for need in needed)
