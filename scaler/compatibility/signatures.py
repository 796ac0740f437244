"""Signatures that take and show the original's arguments beside a class's own."""

from __future__ import annotations

from functools import wraps

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec

    P = ParamSpec("P")


class WithOriginals:
    """The `__signature__` of a class whose `__init__` ends with `**originals`: these stand there by their names.

    Programs of the original look there for what they may say. Made when it is first asked for.
    """

    def __init__(self, module: str, name: str) -> None:
        """Where the originals are, a TypedDict; not loaded before somebody asks."""
        self._module = module
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        import importlib
        import inspect

        originals = getattr(importlib.import_module(self._module), self._name)
        own = [
            parameter
            for parameter in list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        others = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation.__forward_arg__)
            for name, annotation in originals.__annotations__.items()
        ]
        return inspect.Signature([*own, *others])


def takes_in_order(
    names: tuple[str, ...], where: Callable[[tuple[Any, ...]], bool]
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Let an `__init__` take its positional arguments by these names, the original's order, where `where` is so."""

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        @wraps(init)
        def taking(*args: P.args, **kwargs: P.kwargs) -> None:
            given = args[1:]
            if len(given) <= len(names) and where(given):
                for name, value in zip(names, given, strict=False):
                    if name in kwargs:
                        raise TypeError(f"{type(args[0]).__name__}() got multiple values for argument {name!r}")
                    kwargs[name] = value
                args = args[:1]  # type: ignore[assignment]
            init(*args, **kwargs)

        return taking

    return decorate


def refuse_unknown(who: Callable[..., Any], given: dict[str, Any], known: type) -> None:
    """Raise TypeError as Python does for an argument that neither we nor the original know, and say what is like it."""
    for name in given:
        if name not in known.__annotations__:
            import difflib
            import inspect

            near = difflib.get_close_matches(name, inspect.signature(who).parameters, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{who.__name__}() got an unexpected keyword argument {name!r}{hint}")
