"""The client that code should use where it is: that of the surrounding task, or the default one.

A task that waits for tasks of its own keeps its worker useful: the engine sees to that. So seceding means nothing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from scaler.extension import is_inside_task, surrounding_address, surrounding_serializer
from scaler_dask import default_scheduler
from scaler_dask.client import Client, client_of_process


def get_client(address: str | None = None, timeout: Any = None, resolve_address: bool = True) -> Client:
    """Inside a task: the client of the cluster around it, one for each process. Elsewhere: the default client.

    With an `address`: the one for that in this process. Waiting for its futures inside a task never deadlocks. Any
    thread; blocks until there is a connection. Raises ValueError if there is no client, and like `scaler.Client`.
    """
    serializer = None
    if address is None:
        if not is_inside_task() and default_scheduler.current() is not None:
            return Client.current()
        address = surrounding_address()
        if address is None:
            raise ValueError("No global client found and no address provided: make a scaler_dask.Client first")
        serializer = surrounding_serializer()
    return client_of_process(address, serializer)


def default_client() -> Client:
    """The default client. Does not block. Raises ValueError if there is none."""
    return Client.current()


@contextlib.contextmanager
def worker_client(timeout: Any = None, separate_thread: bool = True) -> Iterator[Client]:
    """Inside a task: the client of the cluster around it, dask's default scheduler within this context.

    Blocks and raises like `get_client`; other arguments are ignored.
    """
    client = get_client()
    default_scheduler.enter(client)
    try:
        yield client
    finally:
        default_scheduler.leave(client)


local_client = worker_client


def secede() -> None:
    """Do nothing: a task that waits for others gives its worker's place away by itself."""


def rejoin() -> None:
    """Do nothing; see `secede`."""
