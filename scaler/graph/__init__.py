"""Graphs of calls, and planning them: what becomes one task, in which order, and what travels with each.

Adapters describe another library's graph with this, and give its nodes to `Client.submit_nodes`:

- `Node` is what a graph's keys lead to: a `Call`, a `Constant`, an `Alias`, or any object with `dependencies` that is
  called with their values.
- `from_tuples` reads graphs `{"a": 2, "c": (inc, "a")}`; `build_call` and `call_from_tuple` make a `Call` of one call
  that was read, in which a `KeyReference` stands for a key's value and a `NestedCall` for a call among the arguments.
- `plan` says which rows a graph becomes: a `Plan` of `Run`s. Pure: nothing is sent.
- `as_list`, `as_tuple`, `as_set`, `as_frozenset`, `as_dict`, `itself`, `with_keywords` and `call_node` are functions
  that workers know, for calls that the user did not write.
- `collector_paused` keeps the garbage collector from looking at a graph while a function makes it.
"""

from scaler.common.collector import collector_paused
from scaler.graph.culling import depth_first
from scaler.graph.nodes import LARGE, Alias, Call, Constant, Key, Node, is_large
from scaler.graph.planning import Order, Plan, Run, plan
from scaler.graph.reading import (
    COLLECTION_BUILDERS,
    KeyReference,
    NestedCall,
    UnsupportedKind,
    build_call,
    call_from_tuple,
    from_tuples,
)
from scaler.graph.remote_value import RemoteValue
from scaler.serialize.entry import as_dict, as_frozenset, as_list, as_set, as_tuple, call_node, itself, with_keywords

__all__ = [
    "COLLECTION_BUILDERS",
    "LARGE",
    "Alias",
    "Call",
    "Constant",
    "Key",
    "KeyReference",
    "NestedCall",
    "Node",
    "Order",
    "Plan",
    "RemoteValue",
    "Run",
    "UnsupportedKind",
    "as_dict",
    "as_frozenset",
    "as_list",
    "as_set",
    "as_tuple",
    "build_call",
    "call_from_tuple",
    "call_node",
    "collector_paused",
    "depth_first",
    "from_tuples",
    "is_large",
    "itself",
    "plan",
    "with_keywords",
]
