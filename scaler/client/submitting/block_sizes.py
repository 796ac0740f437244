"""How many rows of a map go into a block."""

import math

#: bytes of arguments in a block of several rows, about: whoever runs one of them has to have the whole block
BLOCK_BYTES = 8 << 20


class BlockSizes:
    """For one map: fewer rows where they are large, unless what is large is what they share."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        #: of the next block
        self.rows = most
        #: bytes a row in the block that is being made again with fewer
        self._cut = math.inf

    def fits(self, rows: int, size: int) -> bool:
        """Say whether a block of so many bytes is to be sent; if not, it is to be made again with `rows` of this."""
        each = size / rows
        if each > 1.5 * self._cut:  # fewer rows have as much to bring along
            self._least = self._most
        self._cut = math.inf
        self.rows = max(self._least, min(self._most, int(BLOCK_BYTES / each)))
        if size < 2 * BLOCK_BYTES or rows <= self.rows:
            return True
        self._cut = each
        return False
