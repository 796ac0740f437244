"""Clients inside tasks, and the default one: `get_client`, `worker_client` and their kin.

A task that waits for tasks of its own keeps its worker useful: the engine sees to that. So seceding means nothing here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from scaler import Client as Engine
from scaler.extension import is_inside_task, shared_client, surrounding_address
from scaler_dask import defaults
from scaler_dask.client import Client, clients

#: this process's own, by process and address
_of_tasks: dict[tuple[int, str], Client] = {}


def get_client(address: str | None = None, timeout: Any = None, resolve_address: bool = True) -> Client:
    """Inside a task: the client of the cluster around it, one for each process. Elsewhere: the default client.

    Waiting for its futures inside a task never deadlocks. Raises ValueError if there is none.
    """
    if address is None:
        if not is_inside_task() and defaults.current() is not None:
            return Client.current()
        address = surrounding_address()
        if address is None:
            raise ValueError("No global client found and no address provided: make a scaler_dask.Client first")
    client = _of_tasks.get((os.getpid(), address))
    if client is None or client.engine.closed:
        client = _of_tasks[os.getpid(), address] = _SharedClient(shared_client(address))
    return client


class _SharedClient(Client):
    """A client of this process's connection, which others use too: closing it does nothing."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(asynchronous=True, set_as_default=False)  # which does not connect
        self.asynchronous = False
        self._engine = engine
        self._status = "running"
        clients.add(self)

    def _close(self) -> None:
        """Others use it."""


def default_client() -> Client:
    """The default client. Raises ValueError if there is none."""
    return Client.current()


@contextlib.contextmanager
def worker_client(timeout: Any = None, separate_thread: bool = True) -> Iterator[Client]:
    """Inside a task: the client of the cluster around it, dask's default scheduler meanwhile."""
    client = get_client()
    defaults.enter(client)
    try:
        yield client
    finally:
        defaults.leave(client)


local_client = worker_client


def secede() -> None:
    """Do nothing: a task that waits for others gives its worker's place away by itself."""


def rejoin() -> None:
    """Do nothing; see `secede`."""
