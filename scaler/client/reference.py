"""References to objects that were sent."""

from __future__ import annotations

from typing import Any, Protocol

from scaler.graph import RemoteValue


class ObjectOwner(Protocol):
    """What a reference asks of the client that sent the object."""

    def release(self, object_id: int) -> None:
        """The object is not needed. Called by the garbage collector, at any point: must not take a lock."""


class ObjectRef(RemoteValue):
    """Stands for an object sent by `Client.send_object`: pass it to tasks as an argument, positional or by keyword.

    The object is kept by the cluster for as long as this, or a task that needs it, lives.
    """

    __slots__ = ("__weakref__", "id", "name", "owner", "size")

    def __init__(self, owner: ObjectOwner, object_id: int, size: int, name: str | None) -> None:
        self.id = object_id
        #: bytes it takes when serialised
        self.size = size
        self.name = name
        #: the client's; only its tasks can use the object
        self.owner = owner

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<ObjectRef{name} {self.id}, {self.size:,} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("an ObjectRef can't be inside another value: pass it to a task as an argument of its own")

    def __del__(self) -> None:
        if hasattr(self, "owner"):  # a signal's handler may have raised while this was made
            self.owner.release(self.id)
