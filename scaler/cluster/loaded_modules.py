"""Which modules this program's tasks are likely to need: what its own code names of the packages that are installed.

The program's own code is its script and the modules of it that are not installed. The packages that it names, those
that they name, and so on, are what its tasks will load; that leaves out what only the program that runs it has loaded:
a notebook's kernel, a test runner. Its own modules are left out, too: loading one may do anything.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType

_INSTALLED = ("/site-packages/", "/dist-packages/")
#: what runs programs, and what workers have
_LEFT_OUT = frozenset(
    {"IPython", "ipykernel", "pytest", "_pytest", "hypothesis", "scaler", "scaler_dask", "__mp_main__"}
)
_STANDARD = frozenset(sys.stdlib_module_names)


def needed_by_tasks(modules: Mapping[str, ModuleType] | None = None, named: Iterable[str] = ()) -> list[str]:
    """The names of loaded modules that tasks of this program are likely to need, in the order of their loading.

    `modules` stands for `sys.modules`; packages that are `named` are needed in any case.
    """
    modules = dict(sys.modules) if modules is None else modules
    of_package: dict[str, list[ModuleType]] = {}
    own: list[ModuleType] = []
    for name, module in modules.items():
        package = name.partition(".")[0]
        if type(module) is not ModuleType or package in _STANDARD or package in _LEFT_OUT:
            if name == "__main__":
                own.append(module)
        elif is_installed(getattr(module, "__file__", None)):
            of_package.setdefault(package, []).append(module)
        else:
            own.append(module)
    packages: set[str] = set()
    fresh = {*_named(own, everything=True), *named} & of_package.keys()
    while fresh:
        packages |= fresh
        of_fresh = [module for package in fresh for module in of_package[package]]
        fresh = (set(_named(of_fresh, everything=False)) & of_package.keys()) - packages
    return [name for name in modules if name.partition(".")[0] in packages and not name.endswith(".__main__")]


def is_installed(file: object) -> bool:
    """Say whether a module's file belongs to a package that is installed.

    >>> is_installed("/usr/lib/python3/dist-packages/numpy/__init__.py"), is_installed("analysis.py")
    (True, False)
    """
    return isinstance(file, str) and any(part in file for part in _INSTALLED)


def _named(modules: Iterable[ModuleType], everything: bool) -> Iterable[str]:
    """The packages of the modules that are among the globals of these; with `everything`, of all globals."""
    for module in modules:
        for value in list(vars(module).values()):
            name = None
            with contextlib.suppress(Exception):  # one may do anything when it is asked for its name
                if type(value) is ModuleType:
                    name = value.__name__
                elif everything:
                    is_named = issubclass(type(value), (FunctionType, BuiltinFunctionType, type))
                    name = (value if is_named else type(value)).__module__
            if type(name) is str:
                yield name.partition(".")[0]
