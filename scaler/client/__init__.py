"""The user's side: clients, futures, references."""

from scaler.client.client import Client
from scaler.client.future import Future
from scaler.client.reference import ObjectRef

__all__ = ["Client", "Future", "ObjectRef"]
