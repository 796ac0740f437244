"""`scaler_provision CONFIG.toml`: provides hosts for a cluster until it is told to end."""

from __future__ import annotations

import shlex
import signal
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from scaler.cli.asking import quietly
from scaler.cli.command import call, with_version
from scaler.cli.file import nearest
from scaler.cli.logs import set_up
from scaler.cli.parameters import config_option, parameter, source_of
from scaler.common.unexpected_end import told_in_log
from scaler.config import OptionError, ProvisionConfig, from_plain_values, settings
from scaler.errors import ScalerError

if TYPE_CHECKING:
    from scaler.provisioning.core.events import Event
    from scaler.provisioning.provider import Provider

#: words of a command line: as a list, or in one text as a shell takes them
_WORDS = "agent_options"


def read(path: Path, said: Mapping[str, Any], usual: Mapping[str, Any]) -> tuple[ProvisionConfig, dict[str, Any]]:
    """The configuration, and the options of its provider, from the file at `path`.

    What is `said`, in flags and the environment, goes before the file, and the file before what is `usual` for all
    programs. Raises `OptionError` for a value of those, and `click.UsageError` in one line for what is in the file.
    """
    try:
        with path.open("rb") as opened:
            content = tomllib.load(opened)
    except (OSError, ValueError) as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise click.UsageError(f"cannot read {path}: {error}") from error
    options = content.pop("options", {})
    known = [setting.name for setting in settings(ProvisionConfig)]
    for name in content:
        if name not in known:
            hint = nearest(name, [*known, "options"]) or f", only {', '.join(known)}, and the table options"
            raise click.UsageError(f"{path}: there is no option {name!r}{hint}")
    values = {**usual, **content, **said}
    for name in ("address", "provider"):
        if name not in values:
            raise click.UsageError(f"{path}: {name} is missing")
    if not isinstance(options, dict):
        raise click.UsageError(f"{path}: options must be a table, [options]")
    try:
        return from_plain_values(ProvisionConfig, values), options
    except OptionError as error:
        if error.option in said or error.option not in content:
            raise
        raise click.UsageError(f"{path}: {error}") from error


def _options() -> list[click.Parameter]:
    """A flag and a variable for each setting; none has to be given, as the file may say it."""
    made = []
    for setting in settings(ProvisionConfig):
        each = parameter(replace(setting, default=None) if setting.default is MISSING else setting)
        if setting.name == _WORDS:
            each.type = click.types.FuncParamType(lambda value: shlex.split(value) if isinstance(value, str) else value)
        made.append(each)
    return made


def _given(values: Mapping[str, Any], *sources: ParameterSource) -> dict[str, Any]:
    """Those that come from there."""
    context = click.get_current_context()
    return {name: value for name, value in values.items() if context.get_parameter_source(name) in sources}


def _run(file: Path, is_print: bool, **values: Any) -> int:
    said = _given(values, ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    try:
        wanted, options = read(file, said, _given(values, ParameterSource.DEFAULT_MAP))
    except OptionError as error:
        raise click.UsageError(f"{error}{source_of(error.option, click.get_current_context())}") from error
    return _provide(file, wanted, options, is_print)


def _provide(file: Path, wanted: ProvisionConfig, options: dict[str, Any], is_print: bool) -> int:
    from scaler.common.loop import ending_signals, ignore_ending_signals
    from scaler.provisioning.asking import template_of
    from scaler.provisioning.core import events as ev
    from scaler.provisioning.provider import ProviderError
    from scaler.provisioning.provisioner import Provisioner
    from scaler.provisioning.registry import make_provider
    from scaler.transport import Address, joining_security

    wanted = replace(wanted, address=Address.parse(wanted.address).url)
    try:
        provider = make_provider(wanted.provider, options)
        security = joining_security(wanted.key_file, wanted.insecure)
        if is_print:
            preview = getattr(provider, "preview", None)
            template = template_of(wanted, 1, security)
            text = preview(max(1, wanted.minimum), template) if preview else " ".join(template.command)
            return quietly(lambda: print(text))
        set_up(wanted.log_level, wanted.log_path)
        provisioner = Provisioner(wanted, provider, security)
    except OptionError as error:
        raise click.UsageError(f"{file}: {error}") from error
    except ImportError as error:  # what a provider needs is not installed
        raise ProviderError(str(error)) from error
    import logging

    described = _described(provider, wanted.provider, provisioner.tell)
    logging.getLogger("scaler.provision").info("hosts of %s, tag %s", described, wanted.tag)
    for number in ending_signals():
        signal.signal(number, lambda _number, _frame: provisioner.tell(ev.End()))
    with told_in_log("Provisioner: it", ScalerError):
        code = provisioner.run()
    ignore_ending_signals()
    return code


def _described(provider: Provider, name: str, tell: Callable[[Event], None]) -> str:
    """What a provider says of itself; one that does not answer is asked on, as after any list that fails.

    Raises `WrongSetup`.
    """
    from scaler.provisioning.core.events import ListFailed
    from scaler.provisioning.errands import line
    from scaler.provisioning.provider import ProviderError, WrongSetup

    try:
        return provider.describe()
    except WrongSetup:
        raise
    except ProviderError as error:
        tell(ListFailed(line(error)))
        return f"{name}, which is asked until it answers"


command = with_version(
    click.Command(
        "provision",
        params=[
            click.Argument(["file"], type=click.Path(path_type=Path), metavar="CONFIG"),
            click.Option(
                ["is_print", "--print"], is_flag=True, help="print what hosts would be asked for with, and end"
            ),
            *_options(),
            config_option(ProvisionConfig),
        ],
        callback=_run,
        help="Provide hosts for a cluster, as CONFIG says: a TOML file (docs/provisioning.md).",
        short_help="Provide hosts for a cluster, as a file says.",
        epilog="A flag goes before the environment, the environment before CONFIG, CONFIG before the file for every "
        "program.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
)


def main() -> None:
    """The program `scaler_provision`."""
    sys.exit(call(command, "scaler_provision"))
