"""Something is done to a module of another library: now, or as soon as it is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # workers have no other use for it
    from importlib.machinery import ModuleSpec


def when_imported(name: str, act: Callable[[Any], None]) -> None:
    """Call `act` with the module of this name when it is there. Imports nothing. Raises what `act` does."""
    module = sys.modules.get(name)
    if module is not None:
        act(module)
    else:
        sys.meta_path.insert(0, _WhenImported(name, act))


class _WhenImported:
    """Sees to one module when it is imported, and to nothing else; until then, also if an import of it fails."""

    def __init__(self, name: str, act: Callable[[Any], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, but for that module: as others find it."""
        if fullname != self._name:
            return None
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in finders)), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                # A loader may be that of other modules, too; and finders of this kind ask one another.
                if module.__name__ == self._name and self in sys.meta_path:
                    self._act(module)
                    sys.meta_path.remove(self)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
