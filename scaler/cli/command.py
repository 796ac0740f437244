"""Makes a command line from a configuration class.

Click reads the four sources of an option in the order that we promise: flag, environment, configuration file (its
"default map"), default. All that is said about an option is in `scaler.config`; nothing is repeated here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from typing import Any, TypeVar

import click

from scaler.cli.asking import unwritable
from scaler.cli.parameters import config_option, parameter, source_of
from scaler.common import early_interrupts, first_process, standard_descriptors
from scaler.compatibility.flags import IGNORED, TASK_TIMEOUT, TASK_TIMEOUT_ADVICE
from scaler.config import Config, OptionError, settings
from scaler.errors import AddressError, ScalerError
from scaler.version import __version__

#: what a program returns when it was called wrongly, failed, or was interrupted
WRONG_USE, FAILURE, INTERRUPTED = 2, 1, 130

C = TypeVar("C", bound=Config)


def with_version(command: click.Command) -> click.Command:
    """The command, which takes `--version` now."""
    return click.version_option(__version__)(command)


def make_command(name: str, config: type[C], help_text: str, run: Callable[[C], int]) -> click.Command:
    """A click command that makes a `config` and calls `run` with it; `name` is its section in a configuration file."""
    parameters = [parameter(setting) for setting in settings(config)]
    parameters += [_ignored(flags, is_switch) for flags, is_switch in IGNORED.get(name, ())]
    arguments = [setting for setting in settings(config) if setting.default is MISSING]
    described = [f"{setting.name.upper()}: {setting.option.help}. [{setting.env_name}]" for setting in arguments]

    epilog = "A flag goes before the environment, the environment before the configuration file."
    if any(setting.option.is_size for setting in settings(config)):
        epilog += (
            " A SIZE is a number of bytes, or has a unit: 2GB, 512MiB. SECONDS may have one, too: 250ms, 5min, 2h."
        )

    def collect(**values: Any) -> int:
        try:
            return run(config(**values))
        except OptionError as error:
            source = source_of(error.option, click.get_current_context())
            raise click.UsageError(f"{error}{source}") from error

    command = click.Command(
        name,
        params=[*parameters, config_option(config, name)],
        callback=collect,
        help="\n\n".join([help_text, *described]),
        short_help=help_text,
        epilog=epilog,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    return with_version(command)


def call(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns what the program exits with; whatever goes wrong is one line on standard error."""
    try:
        early_interrupts.end()
        standard_descriptors.complete()
        first_process.run_in_child()
        return int(command.main(arguments, prog_name=program, standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return WRONG_USE
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        where = context.command_path if context else program
        option = error.param.name if isinstance(error, click.BadParameter) and error.param else None
        source = source_of(option, context) if context and option else ""
        said = f"{_sentence(error.format_message())}{source}"
        return _complain(program, f"{said} ({where} -h lists the options)", WRONG_USE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except AddressError as error:
        return _complain(program, str(error), WRONG_USE)
    except ScalerError as error:
        return _complain(program, str(error) or type(error).__name__, FAILURE)
    except OSError as error:
        if not _is_echo(error):
            raise
        return _complain(program, str(unwritable(error)), FAILURE)


def _ignored(flags: tuple[str, ...], is_switch: bool) -> click.Parameter:
    """A flag of the original that has no meaning here."""
    advise = _advise if flags is TASK_TIMEOUT else None
    return click.Option(list(flags), is_flag=is_switch or None, expose_value=False, hidden=True, callback=advise)


def _advise(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value not in (None, "0"):
        print(TASK_TIMEOUT_ADVICE, file=sys.stderr)


def _is_echo(error: OSError) -> bool:
    """It comes from writing what click says: help, or a version."""
    *_, (innermost, _line) = traceback.walk_tb(error.__traceback__)
    return innermost.f_code is click.echo.__code__


def _sentence(text: str) -> str:
    """Click's message as part of one line."""
    return " ".join(text.split()).rstrip(".")


def _complain(program: str, text: str, exit_code: int) -> int:
    print(f"{program}: {text}", file=sys.stderr)
    return exit_code
