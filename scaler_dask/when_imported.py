"""Something is done to a module of another library: now, or as soon as it is imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, act: Callable[[Any], None]) -> None:
    """Call `act` with the module of this name when it is there. Imports nothing. Raises what `act` does."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    else:
        sys.meta_path.insert(0, _WhenImported(name, act))


class _WhenImported(MetaPathFinder):
    """Sees to one module when it is imported, and to nothing else."""

    def __init__(self, name: str, act: Callable[[Any], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, but for that module: as others find it."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec, act = importlib.util.find_spec(fullname), self._act
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                act(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
