"""Whether arguments fit a function, as far as its own code says: found out before a call is sent.

What is declared is not asked (`__signature__`, `__wrapped__`): a decorator may take other arguments than what it wraps.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

#: what other engines take beside the arguments of the function
_OPTIONS = frozenset(("capabilities", "priority", "resources", "retries", "threads", "timeout"))


def refuse_misfit(function: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that a function is known not to take; their number and names count alone.

    >>> refuse_misfit(pow, "pow", (), {})
    >>> refuse_misfit(lambda a, b=0: a, "mine", (1, 2, 3), {})
    Traceback (most recent call last):
    TypeError: mine() does not take these arguments: too many positional arguments
    """
    signature = _signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        options = "" if _OPTIONS.isdisjoint(kwargs) else "; options of tasks are given by with_options(...)"
        raise TypeError(f"{name}() does not take these arguments: {error}{options}") from None


def _signature_of(function: Any) -> inspect.Signature | None:
    """What a callable takes; None if that is not known for sure."""
    if not _is_of_code(function):
        function = _called_by(function)
        if function is None:
            return None
    try:
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # a partial that can't be called, a method without `self`
        return None


def _is_of_code(function: Any) -> bool:
    """Whether it is a Python function, or a method or a partial of one, and says nothing else of itself."""
    while True:
        kind = type(function)
        if kind not in (FunctionType, MethodType, partial) or getattr(function, "__signature__", None) is not None:
            return False
        if kind is FunctionType:
            return True
        function = function.__func__ if kind is MethodType else function.func


def _called_by(function: Any) -> Any:
    """The method that a class or an object calls with its arguments, and nothing besides; None if that isn't known."""
    kind = type(function)
    if getattr(function, "__signature__", None) is not None:
        return None
    if kind is not type:
        called = getattr(kind, "__call__", None)  # noqa: B004
    elif function.__new__ is object.__new__:
        called = function.__init__
    elif function.__init__ is object.__init__:
        called = function.__new__
    else:
        return None
    return MethodType(called, function) if type(called) is FunctionType and _is_of_code(called) else None
