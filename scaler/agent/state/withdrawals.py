"""Rows that are wanted back from workers: by whom, and what is to be done with them when they come."""

from dataclasses import field

from scaler.common.records import entity
from scaler.protocol.codes import WithdrawalKind
from scaler.store.layout import Key

#: client, batch, row
Row = tuple[int, int, int]


@entity
class WithdrawalTable:
    """What workers were asked for."""

    #: rows that workers have, and what becomes of each as soon as it is given back
    withdrawing: dict[Row, WithdrawalKind] = field(default_factory=dict)
    #: slots of workers asked for rows that end even if they run -> when to look what they do, seconds
    look_at: dict[int, float] = field(default_factory=dict)
    #: rows that the scheduler wants back and that workers have been asked for
    rows_to_return: int = 0
    #: the batches from which it wants them; empty: any
    to_return_of: frozenset[Key] = frozenset()

    def drop_client(self, client: int) -> None:
        """Nobody asks for rows of a client any more."""
        for row in [row for row in self.withdrawing if row[0] == client]:
            del self.withdrawing[row]
