"""`ObjectReference`, as the original calls what `Client.send_object` returns."""

from scaler.client.reference import ObjectRef as ObjectReference

__all__ = ["ObjectReference"]
