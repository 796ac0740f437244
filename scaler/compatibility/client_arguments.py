"""What the original's arguments of `Client` mean here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from scaler.compatibility.signatures import refuse_unknown


class ClientArguments(TypedDict, total=False):
    """Arguments of the original's `Client`, beside ours."""

    #: seconds for which a lost scheduler is looked for: `reconnect`
    timeout_seconds: float | None
    #: the scheduler says how often: no effect
    heartbeat_interval_seconds: float | None
    #: stores have addresses of their own, which agents tell: no effect
    object_storage_address: str | None


class MapArguments(TypedDict, total=False):
    """Arguments of the original's `Client.map`, beside ours."""

    #: the only one of `iterables`, by its name
    iterable: Iterable[Any]


#: the original's arguments as they may stand without their names
IN_ORDER: tuple[str, ...] = (
    "address",
    "profiling",
    "timeout_seconds",
    "heartbeat_interval_seconds",
    "serializer",
    "stream_output",
    "object_storage_address",
)


def reconnect_of(who: Callable[..., Any], originals: ClientArguments, reconnect: float | None) -> float | None:
    """`reconnect` as these arguments have it. Raises TypeError for one that the original does not have either."""
    given: dict[str, Any] = dict(originals)
    if "n_workers" in given:
        raise TypeError(
            "Client() starts no workers: SchedulerClusterCombo(n_workers=...) does, and Client(cluster) connects to "
            "it; scaler_dask.Client(n_workers=...) is both"
        )
    refuse_unknown(who, given, ClientArguments)
    seconds = given.get("timeout_seconds")
    return reconnect if seconds is None else float(seconds)


def iterables_of(
    who: Callable[..., Any], originals: MapArguments, iterables: tuple[Iterable[Any], ...]
) -> tuple[Iterable[Any], ...]:
    """`iterables` as these arguments have it. Raises TypeError for one that the original does not have either."""
    refuse_unknown(who, dict(originals), MapArguments)
    if iterables:
        raise TypeError("map() got multiple values for argument 'iterable'")
    return (originals["iterable"],)
