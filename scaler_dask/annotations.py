"""What `dask.annotate` says of a graph's tasks, as options of Scaler's.

Resources become capabilities that the host must have; amounts are ignored. So is what names workers: the engine knows
hosts, and places by data, which `allow_other_workers` allows anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph


def options_of(graph: Any) -> dict[Any, dict[str, Any]]:
    """By key, the options for `Client.submit_nodes`; without the keys of which the graph says nothing."""
    found: dict[Any, dict[str, Any]] = {}
    for kind, of_keys in _annotations(graph).items():
        for key, value in of_keys.items():
            option = _option(kind, value)
            if option is not None:
                found.setdefault(key, {}).update([option])
    return found


class Annotated(dict[Any, Any]):
    """A graph with the annotations of another one."""

    def __init__(self, nodes: Mapping[Any, Any], other: Any) -> None:
        super().__init__(nodes)
        self._annotations = _annotations(other)

    def __dask_annotations__(self) -> dict[str, dict[Any, Any]]:
        return self._annotations


def _option(kind: str, value: Any) -> tuple[str, Any] | None:
    if kind in ("priority", "retries") and value:
        return kind, math.ceil(value)
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
