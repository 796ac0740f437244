"""Which modules another process can import, so that what they define may travel by reference.

That a module is in `sys.modules` proves nothing: it may be `__main__`, or made by hand with `types.ModuleType`, or
loaded from a file that is on no path. So a finder of `sys.meta_path` has to find it again, and find the same file.
A positive answer is kept as long as `sys.modules` holds the same module object; negative ones are not kept, since
`sys.path` may grow.

A module of the user's own that was loaded again (`importlib.reload`, `%autoreload`) is not the one that workers have
imported: what it defines travels by value from then on.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from cloudpickle import cloudpickle

#: modules found once, and what they were loaded by, which is another one after `importlib.reload`; by name
_found: dict[str, tuple[ModuleType, object]] = {}
#: what is in the paths of modules that are nobody's own
_INSTALLED = ("/site-packages/", "/dist-packages/", os.path.dirname(os.__file__) + os.sep)
_NOWHERE = (None, None)
#: names of those that the user wants to travel by value, as `cloudpickle` has them: to ask for a copy takes longer
registered: set[str] = cloudpickle._PICKLE_BY_VALUE_MODULES


def is_importable(name: object) -> bool:
    """Say whether what a module of this name defines may travel by reference.

    That is, another process can import the module, and the user has not asked cloudpickle to send it by value.
    """
    return can_be_imported(name) and not (registered and _is_registered(str(name)))


def can_be_imported(name: object) -> bool:
    """Say whether a module of this name is loaded here and another process can import the same one."""
    if not isinstance(name, str):
        return False
    module = sys.modules.get(name)
    if module is None:
        return False
    spec = getattr(module, "__spec__", None)
    found, loaded_by = _found.get(name, _NOWHERE)
    if found is not module:
        if name == "__main__" or not _can_be_found(name, module):
            return False
    elif loaded_by is spec:
        return True
    elif isinstance(spec, ModuleSpec) and spec.has_location and not _is_installed(spec.origin or ""):
        registered.add(name)
    _found[name] = module, spec
    return True


def _is_installed(path: str) -> bool:
    return any(part in path for part in _INSTALLED)


def _is_registered(name: str) -> bool:
    """Say whether the user wants this module, or a package around it, to travel by value."""
    while name not in registered:
        name, dot, _ = name.rpartition(".")
        if not dot:
            return False
    return True


def _can_be_found(name: str, module: ModuleType) -> bool:
    if name in sys.builtin_module_names:
        return True
    parent, _, _ = name.rpartition(".")
    path = None
    if parent:
        parent_module = sys.modules.get(parent)
        if parent_module is None or not can_be_imported(parent):
            return False
        path = getattr(parent_module, "__path__", None)
    for finder in list(sys.meta_path):
        try:
            found = finder.find_spec(name, path)
        except Exception:  # a finder of somebody else: what it cannot find may be found by the next
            continue
        if found is not None:
            return _same_file(getattr(module, "__spec__", None), found)
    return False


def _same_file(loaded: ModuleSpec | None, found: ModuleSpec) -> bool:
    """Say whether a loaded module came from where a finder would take it again; yes if there is no file to compare."""
    if loaded is None or not loaded.has_location or not found.has_location:
        return True
    return os.path.realpath(loaded.origin or "") == os.path.realpath(found.origin or "")
