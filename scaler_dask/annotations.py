"""What `dask.annotate` says of a graph's tasks, as options of Scaler's.

A graph is submitted with one set of options, so the strictest of what its tasks say holds for all of them: the highest
priority, the most retries, and every resource that any of them asks for. To have tasks with resources kept apart from
others, compute them apart. What names workers is ignored: the engine knows hosts, and places by data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dask.highlevelgraph import HighLevelGraph


def options_of(graph: Any) -> dict[str, Any]:
    """The options for `Client.with_options`; empty if the graph says nothing."""
    said = _annotations(graph)
    options: dict[str, Any] = {}
    for name in ("priority", "retries"):
        if said.get(name):
            options[name] = math.ceil(max(said[name].values()))
    wanted: set[str] = set()
    for resources in said.get("resources", {}).values():
        wanted.update(resources if isinstance(resources, Mapping) else ())
    if wanted:
        options["capabilities"] = sorted(wanted)
    return options


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
