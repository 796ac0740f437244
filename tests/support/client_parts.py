"""What tests look at inside of a client."""

from typing import Any

from scaler import Client
from scaler.client.client import parts_of


def store_place(client: Client) -> Any:
    """Where it writes large values; None before it has found out."""
    return parts_of(client)[0].uploads._stores._place


def connection_of(client: Client) -> Any:
    """Its connection to the scheduler."""
    return parts_of(client)[0].driver._line.connection


def remembered_entries(client: Client) -> list[Any]:
    """What it remembers of large values that it was given."""
    return list(parts_of(client)[0].uploads._remembered._entries.values())


def forget_stores(client: Client) -> None:
    """Have it know of no store."""
    stores = parts_of(client)[0].uploads._stores
    stores._place, stores._readable = None, {}
