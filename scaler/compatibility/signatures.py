"""Signatures that show the original's arguments beside a class's own."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from typing import Any


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


def refuse_unknown(who: str, given: dict[str, Any], known: type) -> None:
    """Raise TypeError as Python does for an argument that neither we nor the original know."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{who}() got an unexpected keyword argument {name!r}")
