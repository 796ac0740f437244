"""Names of a package that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib


def imported(module: str, name: str) -> object:
    """What has this name in a module. Raises ImportError.

    For the `__getattr__` of a package. An AttributeError in something that the module imports (a `socket.py`
    of the user's is taken for Python's own, say) would become "cannot import name", without what went wrong.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ImportError(f"{module}.{name} can't be imported: {error}", name=module) from error
