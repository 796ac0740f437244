"""Files that are read: what is done with the bytes of each, and for which monitors they are."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

#: takes the bytes of a file, or what is the matter with it
Done = Callable[[bytes, str], None]


@dataclass
class FileReads:
    """Those that are under way."""

    #: monitor -> files that are read for it
    of: Counter[int] = field(default_factory=Counter)
    _done: dict[int, Done] = field(default_factory=dict)
    _last: int = 0

    def begin(self, done: Done) -> int:
        """Another one; its number."""
        self._last += 1
        self._done[self._last] = done
        return self._last

    def end(self, number: int, data: bytes, trouble: str) -> None:
        """One is read, or can't be."""
        done = self._done.pop(number, None)
        if done is not None:
            done(data, trouble)
