"""What is said of tasks in dask's words, by `dask.annotate` or as arguments of a client, as options of Scaler's.

`threads` is no word of dask's: `dask.annotate(threads=4)` means what `Client.with_options` does by it. Resources become
capabilities that the host must have; amounts are ignored. So is what names workers: the engine knows hosts, and places
by data, which `allow_other_workers` allows anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph


def options_of_keys(graph: Any) -> dict[Any, dict[str, Any]]:
    """By key, what the annotations of a graph say; without the keys of which they say nothing."""
    found: dict[Any, dict[str, Any]] = {}
    for kind, of_keys in _annotations(graph).items():
        for key, value in of_keys.items():
            option = _option(kind, value)
            if option is not None:
                found.setdefault(key, {}).update([option])
    return found


def _whole(value: Any) -> Any:
    """The engine's whole number for one of dask's: away from 0, so that what is more than the default stays so.

    What is no number stays what it is: the engine says so.
    """
    try:
        return math.ceil(value) if value > 0 else math.floor(value)
    except TypeError:
        return value


def options_of_call(resources: Any, retries: Any, priority: Any) -> dict[str, Any]:
    """What arguments of `Client.submit` and its kin say; of those that are given for each key the highest counts."""
    options: dict[str, Any] = {}
    if resources:
        options["capabilities"] = sorted(map(str, resources))
    if retries:
        options["retries"] = _whole(max(retries.values()) if isinstance(retries, Mapping) else retries)
    if priority:
        options["priority"] = _whole(max(priority.values()) if isinstance(priority, Mapping) else priority)
    return options


class AnnotatedGraph(dict[Any, Any]):
    """A graph with the annotations of another one."""

    def __init__(self, nodes: Mapping[Any, Any], other: Any) -> None:
        super().__init__(nodes)
        self._annotations = _annotations(other)

    def __dask_annotations__(self) -> dict[str, dict[Any, Any]]:
        return self._annotations


def _option(kind: str, value: Any) -> tuple[str, Any] | None:
    if kind in ("priority", "retries") and value:
        return kind, _whole(value)
    if kind == "threads" and value:
        return kind, value
    if kind == "resources" and isinstance(value, Mapping) and value:
        return "capabilities", sorted(map(str, value))
    return None


def _annotations(graph: Any) -> dict[str, dict[Any, Any]]:
    """By kind and key."""
    if hasattr(graph, "__dask_annotations__"):  # expressions, since 2025
        found: dict[str, dict[Any, Any]] = graph.__dask_annotations__()
        return found
    found = {}
    if isinstance(graph, HighLevelGraph):
        for layer in graph.layers.values():
            for kind, value in (layer.annotations or {}).items():
                found.setdefault(kind, {}).update(_of_keys(layer, value))
    return found


def _of_keys(keys: Iterable[Any], value: Any) -> dict[Any, Any]:
    return {key: value(key) if callable(value) else value for key in keys}
