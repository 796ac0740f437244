"""Makes the moves that decisions return, one after the other; what follows from one is made before the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from scaler.scheduler.core import finishing, placement, reading, recomputing, routing
from scaler.scheduler.core.moves import AskClient, Fail, Hold, Move, Place, Queue, Remake, Reread, Route
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state import transitions
from scaler.scheduler.state.cluster import ClusterState


class Worklist:
    """Applies moves to the state.

    `read_tries`: how often a lost value is made again for a client that reads it; with 0 no row runs a second time.
    """

    def __init__(self, state: ClusterState, out: Outgoing, read_tries: int) -> None:
        self._state = state
        self._out = out
        self._apply: dict[type, Callable[[Any], list[Move] | None]] = {
            Route: self._route,
            Queue: lambda move: transitions.queue(state, *move),
            Place: self._place,
            Hold: partial(recomputing.hold, state),
            Fail: partial(finishing.fail, state, out),
            Remake: lambda move: recomputing.remake(state, move, read_tries > 0),
            AskClient: self._ask_client,
            Reread: lambda move: reading.read_again(state, out, move.client, move.value, read_tries),
        }

    def run(self, moves: list[Move]) -> None:
        """Make all moves and what follows from them, depth first. Raises `IllegalMove`; the rest is not made then."""
        todo, apply = moves[::-1], self._apply
        while todo:
            move = todo.pop()
            more = apply[type(move)](move)
            if more:
                todo += more[::-1]

    def share_out(self) -> None:
        """Give queued rows to agents until either runs out."""
        state = self._state
        for give in placement.share_out(state):
            transitions.place_queued(state, *give)

    def _route(self, move: Route) -> list[Move] | None:
        batch, lo, hi, cause, front = move
        if routing.is_special(self._state, batch, cause):
            return routing.route(self._state, move)
        transitions.queue(self._state, batch, lo, hi, cause, front)
        return None

    def _place(self, move: Place) -> None:
        if not self._state.hands_out:
            transitions.queue(self._state, move.batch, move.lo, move.hi, move.cause, True)
            return
        transitions.place(self._state, move.batch, move.lo, move.hi, move.agent, move.cause)
        placement.rotate(self._state, move.agent)

    def _ask_client(self, move: AskClient) -> None:
        move.client.values.asked.update(move.values)
        self._out.ask_for(move.client, move.values)
