"""Queues of spans: rows waiting for a place, by priority, fair among roots, without a cost per row.

The spans of a client are in their order in a *line* (`span_lines.py`). What tasks submit belongs to the root at whose
bidding they run: a root and all that submit for it have one share, or whose tasks submit tasks would have a turn for
each worker. Within a share what is nested deeper goes first, so that trees are worked off depth first; among equals
those share who submit.

Fair is what takes as long (fair queueing, which networks have for packets: Demers, Keshav, Shenker 1989): whoever's
rows have taken the least time so far, as far as known, has its turn. By turns alone a client with one map of a million
rows had many times what one had that submits them one by one; by rows, one whose rows are long.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Generic

from scaler.common.span_lines import B, Line, Share, by_rank, remove_ranked

#: what a row takes of which nothing is known, and for how long one that is long counts at most, microseconds: what was
#: thought of a client's rows keeps it waiting for no longer than that
UNKNOWN_US, MOST_US = 10_000.0, 1e6
#: shares without rows that are remembered since theirs have taken more than others' have
MOST_PAST = 64


class SpanQueue(Generic[B]):
    """Spans (batch, lo, hi) of one class of rows; roots share the time, the rows of each line go in their order.

    A client may have a line for each of its rows, and each may be of another root: none is looked for among all.
    """

    __slots__ = ("_clients", "_number", "_past", "_shares", "_turns", "rows")

    def __init__(self) -> None:
        #: the lines of each client by share and nesting: several if it submits for several roots, or inside tasks; no
        #: empty dicts
        self._clients: dict[int, dict[tuple[int, int], Line[B]]] = {}
        #: the last part of the rank that was given last
        self._number = 0
        self._shares: dict[int, Share[B]] = {}
        #: exactly the values of `_shares`, those that have used least first, then those whose last turn is longest ago
        self._turns: list[Share[B]] = []
        #: what the rows of shares have taken that have none now, if that is more than what those of others have
        self._past: dict[int, float] = {}
        #: rows queued
        self.rows = 0

    def _of(self, batch: B) -> Line[B]:
        lines = self._clients.get(batch.client)
        if lines is not None:
            line = lines.get((batch.share, batch.nesting))
            if line is not None:
                return line
        line = Line(batch.client, batch.nesting, self._share_of(batch.share))
        self._take_in(line)
        return line

    def _share_of(self, key: int) -> Share[B]:
        share, turns = self._shares.get(key), self._turns
        if share is None:
            share = self._shares[key] = Share(key, turns[0].used if turns else 0.0)
            if self._past:
                share.used = max(share.used, self._past.pop(key, 0.0))
            self._give_turn(share)
        return share

    def _take_in(self, line: Line[B]) -> None:
        """A line that is new here: it has used as much as the one of its nesting that has used least."""
        lines, nesting, line.used = line.share.lines, line.nesting, 0.0
        at = bisect_left(lines, (-nesting,), key=by_rank) if lines else 0
        if at < len(lines) and lines[at].nesting == nesting:
            line.used = lines[at].used
        self._put(line)

    def _put(self, line: Line[B]) -> None:
        self._clients.setdefault(line.client, {})[line.share.key, line.nesting] = line
        self._put_in_share(line)

    def _put_in_share(self, line: Line[B]) -> None:
        self._number += 1
        line.rank = -line.nesting, line.used, self._number
        insort(line.share.lines, line, key=by_rank)

    def _give_turn(self, share: Share[B]) -> None:
        """It is behind those that have used less, and behind its equals; but before those that have had turns."""
        self._number += 1
        share.rank = share.used, share.has_had_turn, self._number
        insort(self._turns, share, key=by_rank)

    def _settle(self, line: Line[B]) -> None:
        """What has no rows has no turn."""
        if line.of:
            return
        self._take_away(line)
        line.let_go()

    def _take_away(self, line: Line[B]) -> None:
        """A line is not here any more; nor its share, if that has no other."""
        of_client, share = self._clients[line.client], line.share
        del of_client[share.key, line.nesting]
        if not of_client:
            del self._clients[line.client]
        remove_ranked(share.lines, line)
        if not share.lines:
            del self._shares[share.key]
            remove_ranked(self._turns, share)
            if not self._turns:
                self._past.clear()
            elif share.used > self._turns[0].used:
                self._remember(share.key, share.used)

    @property
    def head(self) -> B:
        """The batch whose rows are taken next. Raises IndexError when empty."""
        return self._turns[0].lines[0].end.after.batch

    def head_of(self, share: int) -> B | None:
        """The batch whose rows are next of this share, whoever's turn it is; None if it has none."""
        found = self._shares.get(share)
        return found.lines[0].end.after.batch if found is not None else None

    def heads(self, most: int) -> list[B]:
        """The batches whose rows are next of each share, in the order of their turns, at most so many."""
        return [share.lines[0].end.after.batch for share in islice(self._turns, most)]

    @property
    def are_several(self) -> bool:
        """There are rows of several shares."""
        return len(self._turns) > 1

    def shares(self, most: int) -> list[int]:
        """Those whose turn is next, at most so many."""
        return [share.key for share in islice(self._turns, most)]

    def append(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows behind the others of their line."""
        line = self._of(batch)
        last = line.end.before
        if last is not line.end and last.batch is batch and last.hi == lo:
            last.hi = hi
        else:
            line.insert(last, batch, lo, hi)
        line.rows += hi - lo
        self.rows += hi - lo

    def prepend(self, batch: B, lo: int, hi: int) -> None:
        """Queue rows before the others of their line: they had a place and lost it."""
        line = self._of(batch)
        line.insert(line.end, batch, lo, hi)
        line.rows += hi - lo
        self.rows += hi - lo

    def take(self, rows: int, us: float | None = None, share: int | None = None) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch, of the share whose turn it is, or of that one. IndexError when empty.

        Each of them takes `us` microseconds of each of its slots; None: nothing is known of that.
        """
        turns = self._turns
        whose = turns[0] if share is None else self._shares[share]
        line = whose.lines[0]
        span = line.end.after
        batch, lo, hi = span.batch, span.lo, span.hi
        if hi - lo > rows:
            hi = span.lo = lo + rows
        else:
            line.remove(span)
        line.rows -= hi - lo
        self.rows -= hi - lo
        is_first, whose.has_had_turn = not whose.has_had_turn, True
        if len(turns) > 1 or len(whose.lines) > 1 or self._past:
            used = (hi - lo) * (UNKNOWN_US if us is None else min(us * batch.slots, MOST_US))
            self._charge(whose, line, used)
        elif is_first:
            whose.rank = whose.used, True, whose.rank[2]
        if not line.of:
            self._settle(line)
        return batch, lo, hi

    def charge(self, share: int, us: float) -> None:
        """Workers have run something else for a share than rows that were taken here, and others waited meanwhile."""
        found = self._shares.get(share)
        if found is not None:
            self._note_used(found, min(us, MOST_US))
        elif self._turns:
            used = max(self._past.get(share, 0.0), self._turns[0].used)
            self._remember(share, used + min(us, MOST_US))

    def may_go_first(self, share: int) -> bool:
        """Say whether rows that a share has elsewhere may go before all that are here: none of these has used less."""
        if not self._turns:
            return True
        found = self._shares.get(share)
        used = self._past.get(share, 0.0) if found is None else found.used
        return used <= self._turns[0].used

    def _remember(self, share: int, used: float) -> None:
        self._past[share] = used
        if len(self._past) > MOST_PAST:
            del self._past[next(iter(self._past))]

    def _note_used(self, share: Share[B], used: float) -> None:
        remove_ranked(self._turns, share)
        share.used += used
        self._give_turn(share)

    def _charge(self, share: Share[B], line: Line[B], used: float) -> None:
        turns, lines = self._turns, share.lines
        self._note_used(share, used)
        if self._past:
            least = turns[0].used
            self._past = {key: past for key, past in self._past.items() if past > least}
        if len(lines) > 1:
            line.used += used
            del lines[0]
            self._put_in_share(line)

    def take_last(self, rows: int) -> tuple[B, int, int]:
        """Take at most `rows` rows of one batch from the far end. Raises IndexError when empty."""
        line = self._turns[-1].lines[-1]
        span = line.end.before
        batch, lo, hi = span.batch, span.lo, span.hi
        if hi - lo > rows:
            lo = span.hi = hi - rows
        else:
            line.remove(span)
        line.rows -= hi - lo
        self.rows -= hi - lo
        self._settle(line)
        return batch, lo, hi

    def has_others(self, share: int) -> bool:
        """Say whether there are rows of others than this share."""
        return len(self._shares) > (share in self._shares)

    def drop_client(self, client: int) -> None:
        """Forget all rows of a client."""
        for line in [*self._clients.get(client, {}).values()]:
            self.rows -= line.rows
            line.clear()
            self._settle(line)

    def take_over(self, other: "SpanQueue[B]", client: int) -> None:
        """All rows of a client that are in another queue are here from now on, at the price of its lines alone."""
        for (key, nesting), line in [*other._clients.get(client, {}).items()]:
            other.rows -= line.rows
            other._take_away(line)
            if (key, nesting) in self._clients.get(client, {}):
                for span in line:
                    self.append(*span)
                line.clear()
                line.let_go()
            else:
                self.rows += line.rows
                line.share = self._share_of(key)
                self._take_in(line)

    def has(self, client: int) -> bool:
        """There are rows of a client."""
        return client in self._clients

    def let_go(self) -> None:
        """Forget all rows, of everybody."""
        for client in [*self._clients]:
            self.drop_client(client)

    def remove(
        self, client: int, batch: int, place: tuple[int, int], spans: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Take out rows of a batch that are queued for this share, with this nesting; the parts that were here.

        Spans and parts ascend, and have no row in common.
        """
        line = self._clients.get(client, {}).get(place)
        if line is None or batch not in line.of:
            return []
        before = line.rows
        found = line.take_out(batch, spans)
        self.rows -= before - line.rows
        self._settle(line)
        return found

    def __iter__(self) -> Iterator[tuple[B, int, int]]:
        for share in self._turns:  # the first span is that whose rows are taken next
            for line in share.lines:
                yield from line
