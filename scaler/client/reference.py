"""References to objects that were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scaler.graph import RemoteValue

if TYPE_CHECKING:
    from scaler.client.client import Client


class ObjectRef(RemoteValue):
    """Stands for an object sent by `Client.send_object`: pass it to tasks as an argument, positional or by keyword.

    The object is kept by the cluster for as long as this, or a task that needs it, lives.
    """

    __slots__ = ("__weakref__", "_client", "id", "name", "size")

    def __init__(self, client: Client, object_id: int, size: int, name: str | None) -> None:
        self._client = client
        self.id = object_id
        #: bytes it takes when serialised
        self.size = size
        self.name = name

    @property
    def client(self) -> Client:
        """The client that sent it; only its tasks can use it."""
        return self._client

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<ObjectRef{name} {self.id}, {self.size:,} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("an ObjectRef can't be inside another value: pass it to a task as an argument of its own")

    def __del__(self) -> None:
        self._client.release_object(self.id)
