"""Providers by name: those that come along, and those of third parties by the entry point group `scaler.providers`.

A name stands for a function, `module:function`, that makes a provider from a dict of options: the keys of the table
`[options]` of a configuration file. It raises `OptionError` for one that it does not know. Modules are imported when
their provider is asked for, so that a provider may need libraries that are not always there.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, TypeAlias

from scaler.config import OptionError, ProvisionConfig, check_number, kind_of, settings
from scaler.errors import ScalerError
from scaler.provisioning.provider import Provider

#: of an option: the type, the default, and of a number the least and the greatest value
Known: TypeAlias = tuple[type, Any] | tuple[type, Any, float, float]

#: where third parties say what theirs are called
GROUP = "scaler.providers"

#: what comes along
BUILT_IN = {
    "local": "scaler.provisioning.local:make",
    "slurm": "scaler.provisioning.slurm:make",
    "ssh": "scaler.provisioning.ssh:make",
    "pbs": "scaler.provisioning.pbs:make",
    "sge": "scaler.provisioning.sge:make",
    "lsf": "scaler.provisioning.lsf:make",
    "htcondor": "scaler.provisioning.htcondor:make",
    "kubernetes": "scaler.provisioning.kubernetes:make",
}


class UnknownProvider(ScalerError):
    """No provider has this name; the text has those that there are."""


def names() -> list[str]:
    """All providers that can be asked for."""
    return sorted({*BUILT_IN, *(found.name for found in metadata.entry_points(group=GROUP))})


def make_provider(name: str, options: Mapping[str, Any] | None = None) -> Provider:
    """The provider of this name. Raises `UnknownProvider`, `OptionError` for bad options, ImportError for its needs."""
    if name in BUILT_IN:
        module, _, function = BUILT_IN[name].partition(":")
        make: Callable[[dict[str, Any]], Provider] = getattr(importlib.import_module(module), function)
    else:
        found = [point for point in metadata.entry_points(group=GROUP) if point.name == name]
        if not found:
            near = difflib.get_close_matches(name, names(), 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UnknownProvider(f"there is no provider {name!r}: {hint}there are {', '.join(names())}")
        make = found[0].load()
    return make(dict(options or {}))


def take(options: dict[str, Any], known: Mapping[str, Known], provider: str) -> dict[str, Any]:
    """Options checked. Raises `OptionError` for those that are not known, and for values that they don't take.

    >>> take({"partition": "debug"}, {"partition": (str, ""), "cores": (int, 1, 1, 100)}, "slurm")
    {'partition': 'debug', 'cores': 1}
    """
    for name, value in options.items():
        if name not in known:
            of_all = [setting.name for setting in settings(ProvisionConfig)]
            near = difflib.get_close_matches(name, [*known, *of_all], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(name, f"is no option of the provider {provider!r}, which has {', '.join(known)}{hint}")
        option = known[name]
        kind = option[0]
        if (isinstance(value, bool) and kind is not bool) or not isinstance(
            value, (int, float) if kind is float else kind
        ):
            raise OptionError(name, f"must be {kind_of(kind, value)}, not {value!r}")
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            raise OptionError(name, f"must be a list of texts, not {value!r}")
        if len(option) == 4 and isinstance(value, int | float):
            check_number(name, value, option[2], option[3])
    return {name: options.get(name, default) for name, (_, default, *_) in known.items()}
