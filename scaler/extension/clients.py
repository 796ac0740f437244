"""Where an adapter's client comes from: a given address, the surrounding task, or a local cluster of this process.

And what tasks of a client on this host may share with the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from scaler.client import Client
from scaler.client.client import client_around, parts_of
from scaler.client.lifetime import Lifetime
from scaler.client.surroundings import surrounding_address
from scaler.cluster import combo, embedded
from scaler.serialize import mapped_files
from scaler.serialize.call import AnySerializer
from scaler.transport import Address
from scaler.worker import context

_Result = TypeVar("_Result")


class FoundClient(NamedTuple):
    """What `find_client` returns."""

    client: Client
    #: it is that of this process's own local cluster, whose workers nobody else uses
    is_embedded: bool


def find_client(
    address: str | None = None,
    n_workers: Callable[[], int | None] = lambda: None,
    serializer: AnySerializer | None = None,
) -> FoundClient:
    """The client of `address`, else of `surrounding_address`, else of a local cluster, started when first needed.

    It has this `serializer`, a `scaler.Serializer`; inside a task, without an address: that of the task's client.
    The client is shared by all in this process who ask for it, or a view of that whose tasks are made in the running
    one: do not close it. The local cluster ends with the process; `n_workers` is asked only when it is started, and
    says how many workers it has (None: one for each core).
    Any thread may call this. Blocks until there is a connection, and raises like `scaler.Client` and
    `scaler.SchedulerClusterCombo`.
    """
    if not address:
        serializer = serializer or surrounding_serializer()
        address = surrounding_address()
    if address is None:
        return FoundClient(embedded.client(n_workers, serializer), True)
    return FoundClient(client_around(address, serializer), False)


def host_for_tasks(address: str | None) -> str:
    """The address of this machine by which tasks of the cluster at `address` reach this process, as far as it can tell.

    None: of one that runs here. Blocks while a name is looked up. Raises `AddressError` for what is no address.
    """
    target = Address.parse(address).for_client() if address else None
    if target is None or target.is_loopback:
        return "127.0.0.1"
    return target.reached_from()


def surrounding_serializer() -> AnySerializer | None:
    """The serializer of the running task's client; None if it has none, and outside of tasks. Does not block."""
    task = context.current()
    return task.serializer if task is not None else None


def serializer_of(client: Client) -> AnySerializer | None:
    """The serializer that a client was given; None if it pickles. Does not block."""
    parts, _ = parts_of(client)
    return parts.serializer


def lifetime_of(client: Client) -> Lifetime:
    """What ends a client: it reaches none of the functions of its tasks, so it may outlive what those hold.

    `disconnect()` is that of the client; `leave_at_once()`, after Ctrl-C, fetches no results from stores, and blocks
    for a second at most. `pass_callback()`: if a callback of the client's futures has not ended some seconds after it
    began, results come without it from now on; it blocks until one of both, and not if none is being called.
    """
    parts, _ = parts_of(client)
    return parts.lifetime


def is_inside_task() -> bool:
    """Whether the calling thread runs a task: true only in a worker's main thread. Does not block."""
    return context.current() is not None


def with_memmaps_shared(client: Client, submit: Callable[[], _Result], elsewhere: bool = False) -> _Result:
    """Call `submit`: tasks that it submits in this thread get `numpy.memmap`s, and views of them, as their files.

    So nothing of them is sent, and tasks write into the file. Only if the workers are certainly on this host: the
    cluster was started by this program, or is the local one around the calling task. Otherwise they travel by value,
    with `elsewhere` read-only if they are open for writing: nothing that was to be in the file is lost unseen. A task
    that would open another file than was meant fails. Context variables that `submit` sets are so for itself alone.
    Blocks and raises as that does.
    """
    around = context.surroundings() or {}
    # those of local clusters alone have the program's key
    is_here = ("authkey" in around and around["address"] == client.address) or combo.is_started_here(client.address)
    if is_here:
        return mapped_files.by_reference(submit)
    return mapped_files.read_only(submit) if elsewhere else submit()
