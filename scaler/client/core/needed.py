"""The tokens of values that batches need, by id of the value: for schedulers that ask for such values."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any


class NeededTokens:
    """A token stays for as long as one of those who need it is left."""

    def __init__(self) -> None:
        #: id of a value -> its token
        self._tokens: dict[int, Any] = {}
        #: id of a value -> how often it is needed, at least once
        self._times: Counter[int] = Counter()

    def add(self, values: Collection[int], tokens: Iterable[Any]) -> None:
        """These values are needed; one that is named twice is so twice. A token for each of them."""
        self._tokens.update(zip(values, tokens, strict=True))
        self._times.update(iter(values))  # a mapping would be taken for counts

    def remove(self, values: Iterable[int]) -> None:
        """They were added, and are needed once less."""
        for value in values:
            self._times[value] -= 1
            if not self._times[value]:
                del self._tokens[value], self._times[value]

    def clear(self) -> None:
        """Nothing is needed."""
        self._tokens.clear()
        self._times.clear()

    def get(self, value: int) -> Any:
        """The token of a value; None if nobody needs it."""
        return self._tokens.get(value)
