"""What stands for a value that is in the cluster, or will be."""

from __future__ import annotations

from typing import Any


class RemoteValue:
    """Base of futures and of references to objects: what needs such a value is given it where it runs."""

    __slots__ = ()

    #: the value's; 0 until it is known
    id: int
    #: what stands for the client that it belongs to: only that one's tasks can use it
    owner: Any

    def value_or_self(self) -> Any:
        """The value if it has come here, else what stands for it."""
        return self
