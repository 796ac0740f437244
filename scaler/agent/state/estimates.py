"""What rows take, as far as seen: microseconds, and bytes of stored results, by client and name of the function."""

from dataclasses import field

from scaler.common.records import entity

#: a function: its client's number, and its name
Function = tuple[int, str]

#: functions of which it is known, at most: of more the half is forgotten of which nothing was seen for the longest time
MOST = 4096
#: what a new figure counts for
_WEIGHT = 0.3
#: microseconds that a row takes at least
_LEAST = 0.05


@entity
class Estimates:
    """Averages that follow the last figures; functions of which nothing was seen are not in them."""

    #: microseconds that a row takes
    durations: dict[Function, float] = field(default_factory=dict)
    #: microseconds of that in which its worker did not count as blocked; only of functions with rows that were
    running: dict[Function, float] = field(default_factory=dict)
    #: bytes of the stored result of a row; only of functions that have made one
    sizes: dict[Function, float] = field(default_factory=dict)

    def note_duration(self, function: Function, microseconds: float) -> None:
        """A row took so long."""
        _average(self.durations, function, max(microseconds, _LEAST))

    def note_running(self, function: Function, microseconds: float) -> None:
        """A row ran for so long, without what it waited for others."""
        _average(self.running, function, max(microseconds, _LEAST))

    def note_size(self, function: Function, size: float) -> None:
        """The result of a row takes so many bytes in the store; 0: it isn't stored."""
        if size or function in self.sizes:
            _average(self.sizes, function, size)

    def drop_client(self, client: int) -> None:
        """Forget the functions of a client."""
        for table in (self.durations, self.running, self.sizes):
            for function in [function for function in table if function[0] == client]:
                del table[function]


def _average(table: dict[Function, float], function: Function, value: float) -> None:
    known = table.pop(function, None)
    if known is None and len(table) >= MOST:
        for other in list(table)[: MOST // 2]:
            del table[other]
    table[function] = value if known is None else known + _WEIGHT * (value - known)  # the last one from now on
