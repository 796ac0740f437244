"""The configuration file: where it is and what it may say.

    log_level = "WARNING"          # for every program that has such an option

    [scheduler]                    # for one program
    address = "tcp://0.0.0.0:2345"

    [cluster]
    workers = 8

A file in the current directory is never read by itself: whoever can write there could otherwise switch off the keys of
a program that is started there.
"""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scaler.common.home import config_directory
from scaler.config import (
    AgentConfig,
    Config,
    DashboardConfig,
    MetricsConfig,
    SchedulerConfig,
    Setting,
    SymphonyConfig,
    TopConfig,
    settings,
)

#: a section of the file and whose options it holds
SECTIONS: dict[str, type[Config]] = {
    "scheduler": SchedulerConfig,
    "cluster": AgentConfig,
    "symphony": SymphonyConfig,
    "top": TopConfig,
    "ui": DashboardConfig,
    "metrics": MetricsConfig,
}


#: what values of an option may be in a file, and how that is said; what is in lists is looked at elsewhere
_TAKEN: dict[type, tuple[type, ...]] = {
    bool: (bool, str), int: (int, str), float: (int, float, str), str: (str,), tuple: (list, str),
}  # fmt: skip
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts"}


class FileError(Exception):
    """A configuration file that cannot be read or says something unknown; the message is one line."""


def user_file() -> Path | None:
    """The user's own configuration file, read when no other is named; it need not exist. None without a home."""
    directory = config_directory()
    return None if directory is None else Path(directory) / "scaler" / "config.toml"


def read_options(path: Path | None, config: type[Config], section: str, must_exist: bool) -> dict[str, Any]:
    """The options that the file holds for one program, those of its section before those for every program.

    `section` is empty for a program that has none; no path holds nothing. Raises `FileError` when the file is missing
    although it `must_exist`, is no TOML, or names an unknown option.
    """
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        if must_exist:
            raise FileError(f"there is no configuration file {path}") from None
        return {}
    except RecursionError:
        raise FileError(f"cannot read the configuration file {path}: its values are nested too deep") from None
    except (OSError, ValueError) as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise FileError(f"cannot read the configuration file {path}: {error}") from error
    known = {name: [setting.name for setting in settings(each)] for name, each in SECTIONS.items()}
    every = sorted({name for names in known.values() for name in names})
    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for name, value in content.items():
        if name in SECTIONS:
            own[name] = _refuse_unknown(path, f" under [{name}]", value, known[name])
        elif isinstance(value, dict) and name not in every:
            hint = nearest(name, SECTIONS, "[{}]") or f", only {', '.join(f'[{each}]' for each in SECTIONS)}"
            raise FileError(f"{path}: there is no section [{name}]{hint}")
        else:
            common[name] = value
    _refuse_unknown(path, "", common, every)
    wanted = {setting.name: setting for setting in settings(config)}
    values = {name: value for name, value in common.items() if name in wanted} | own.get(section, {})
    for name, value in values.items():
        _refuse_kind(path, wanted[name], value)
    return values


def _refuse_kind(path: Path, setting: Setting, value: object) -> None:
    """Click reads texts, and numbers as if they were; what else TOML has is a traceback there, or another number.

    And a number in the place of a text is seldom the one that was meant, as `key_file = 1`, or one with _ in it.
    """
    if setting.choices and not isinstance(value, str):
        raise FileError(f"{path}: {setting.name} must be one of {', '.join(setting.choices)}, not {value!r}")
    taken = _TAKEN[float if setting.is_amount else setting.kind]  # 4e9 bytes
    if not isinstance(value, taken) or (isinstance(value, bool) and setting.kind is not bool):
        quotes = f': "{value}"' if setting.kind is str and type(value) in (int, float) else ""
        raise FileError(f"{path}: {setting.name} must be {_WORDS[setting.kind]}, not {value!r}{quotes}")
    if any(isinstance(each, str) and "\0" in each for each in (value if isinstance(value, list) else [value])):
        raise FileError(f"{path}: {setting.name} has a character that no text of an option may have, {value!r}")
    if setting.kind is float and isinstance(value, int) and abs(value) > sys.float_info.max:
        raise FileError(f"{path}: {setting.name} must be {_WORDS[setting.kind]}, not one as large as this")


def _refuse_unknown(path: Path, where: str, values: object, known: list[str]) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise FileError(f"{path}: expected a table{where}, not {values!r}")
    for name in values:
        if name not in known:
            hint = nearest(name, known) or f", only {', '.join(known)}"
            raise FileError(f"{path}: there is no option {name!r}{where}{hint}")
    return values


def nearest(name: str, known: Iterable[str], form: str = "{!r}") -> str:
    """A question after what may have been meant; empty if nothing is like it.

    >>> nearest("wokers", ["workers", "address"]), nearest("x", ["workers"])
    (", did you mean 'workers'?", '')
    """
    found = difflib.get_close_matches(name, known, 1)
    return f", did you mean {form.format(found[0])}?" if found else ""
