"""What `typing` makes with a name, of a module that others can't import: it travels by value, as functions there do.

Annotations are part of a function: one that is annotated with a `ParamSpec` of the script takes that along.
`cloudpickle` knows `TypeVar` alone; the others pickle as a name, which nobody finds elsewhere.
"""

from __future__ import annotations

import sys
import typing
from typing import Any

from cloudpickle import cloudpickle

from scaler.serialize.importable import is_importable

#: which kinds, of those that this Python has: of `type X = ...` since 3.12
KINDS: tuple[type, ...] = tuple(
    getattr(typing, kind) for kind in ("NewType", "ParamSpec", "TypeVarTuple", "TypeAliasType") if hasattr(typing, kind)
)


def reduced(obj: Any) -> Any:
    """What one of these kinds is made of on arrival, for a pickler; NotImplemented if it can be imported there."""
    module = obj.__module__
    if is_importable(module) and module != "typing":  # that of those in brackets: `def f[**P](...)`
        return NotImplemented
    keywords: dict[str, Any] = {}
    arguments: tuple[Any, ...] = ()
    if isinstance(obj, typing.NewType):
        arguments = (obj.__supertype__,)
    elif isinstance(obj, (typing.ParamSpec, typing.TypeVarTuple)):
        if isinstance(obj, typing.ParamSpec):
            names = (
                "bound",
                "covariant",
                "contravariant",
                *(["infer_variance"] if sys.version_info >= (3, 12) else []),
            )
            keywords = {name: getattr(obj, f"__{name}__") for name in names}
        if sys.version_info >= (3, 13):
            keywords["default"] = obj.__default__
    else:
        arguments, keywords = (obj.__value__,), {"type_params": obj.__type_params__}
        return _made, (module, type(obj), (obj.__name__, *arguments), keywords, None)
    return _made, (module, type(obj), (obj.__name__, *arguments), keywords, cloudpickle._get_or_create_tracker_id(obj))


def _made(module: str, kind: type, arguments: tuple[Any, ...], keywords: dict[str, Any], tracker: str | None) -> Any:
    # They take for their module that of the frame which calls them, and some can't be told another one.
    names = {"__name__": module, "kind": kind, "arguments": arguments, "keywords": keywords}
    made = eval("kind(*arguments, **keywords)", names)
    return cloudpickle._lookup_class_or_track(tracker, made)
