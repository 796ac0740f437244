"""Click parameters: those made of the settings of a configuration class, and `--config`, which names a file of them."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from scaler.cli.file import FileError, read_options, user_file
from scaler.compatibility.log_levels import level_name
from scaler.config import Config, Setting

#: under this name a context keeps which configuration file was read
_FILE = "scaler.configuration_file"


def names(value: object) -> tuple[str, ...]:
    """A tuple of names without blanks: a list in a configuration file, separated by commas elsewhere.

    As in the original an amount may stand behind each, which has no meaning.

    >>> names("gpu=1, big")
    ('gpu', 'big')
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise click.BadParameter(f"{value!r} is not a list of names.")
    bare = [part.partition("=")[0].strip() for part in parts]
    return tuple(name for name in bare if name)


class _Level(click.Choice[str]):
    """A level of the log, by our names or by others that mean one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(level_name(value), param, ctx)


class _Amount(click.types.StringParamType):
    """A size or a time; what it may be the configuration class knows."""

    def __init__(self, name: str) -> None:
        #: what stands for it in the help
        self.name = name


def parameter(setting: Setting) -> click.Parameter:
    """The flag, or the argument when there is no default, that sets one field."""
    kind: Any = setting.kind
    if setting.choices:
        kind = (_Level if setting.name == "log_level" else click.Choice)(setting.choices, case_sensitive=False)
    if setting.kind is tuple:
        kind = names
    if setting.is_amount:
        kind = _Amount("size" if setting.option.is_size else "seconds")
    if setting.default is MISSING:
        return click.Argument([setting.name], type=kind, envvar=setting.env_name)
    flag = f"--{setting.name.replace('_', '-')}"
    is_switch = setting.kind is bool
    return click.Option(
        [setting.name, flag + (f"/--no-{flag[2:]}" if is_switch else ""), *setting.option.others],
        type=kind,
        default=setting.default,
        envvar=setting.env_name,
        show_envvar=True,
        show_default=setting.default not in (None, ()),
        help=setting.option.help,
    )


def config_option(config: type[Config], section: str = "") -> click.Option:
    """`--config`: the file with options of a program; those under its `section`, if it has one, go before others."""

    def load(context: click.Context, _parameter: click.Parameter, path: str | None) -> None:
        file = Path(path) if path else user_file()
        try:
            context.default_map = read_options(file, config, section, bool(path))
        except FileError as error:
            raise click.UsageError(str(error)) from error
        context.meta[_FILE] = file

    usual = user_file() or "none"
    own = f", and for this one under [{section}]" if section else ""
    return click.Option(
        ["--config"],
        envvar="SCALER_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=load,
        metavar="FILE",
        help=f"TOML file with options for every program{own}  [default: {usual}]",
    )


def source_of(option: str, context: click.Context) -> str:
    """Where a bad value came from, when that is not the command line that the user sees in front of him."""
    source = context.get_parameter_source(option)
    if source is ParameterSource.ENVIRONMENT:
        return f" (from the environment: SCALER_{option.upper()})"
    if source is ParameterSource.DEFAULT_MAP:
        return f" (from the configuration file {context.meta[_FILE]})"
    return ""
