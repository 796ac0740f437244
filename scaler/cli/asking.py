"""What commands that ask a cluster have in common: where it is, with which key, and how the answer is written."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from scaler.cli.parameters import config_option, parameter
from scaler.config import AskingConfig, settings
from scaler.errors import ScalerError

if TYPE_CHECKING:
    from scaler.monitor.questions import Questions

_ADDRESS, *_KEYS = settings(AskingConfig)
ADDRESS = parameter(_ADDRESS)
#: what commands say of it
ABOUT_ADDRESS = f"ADDRESS: {_ADDRESS.option.help}. [{_ADDRESS.env_name}]"
JSON = click.Option(["as_json", "--json"], is_flag=True, help="lines of JSON, an object each")
#: how to reach it: `key_file` and `insecure`, from a configuration file, too
KEYS = (*map(parameter, _KEYS), config_option(AskingConfig))


class Unwritable(ScalerError):
    """What was to be said can't be: the disk that it goes to is full, say."""


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def asking_command(name: str, text: str, run: Callable[..., int], *parameters: click.Parameter) -> click.Command:
    """A command; `run` is given its parameters and `as_json`, `key_file`, `insecure`, and returns the exit code."""
    return click.Command(
        name, callback=run, params=[*parameters, JSON, *KEYS], help=text, short_help=text, context_settings=SETTINGS,
        epilog=ABOUT_ADDRESS,
    )  # fmt: skip


def session(address: str, key_file: str | None, insecure: bool) -> Questions:
    """A session of questions. Raises `ScalerError`s in one line."""
    from scaler.monitor.questions import Questions  # `-h` and mistakes are answered without loading the engine
    from scaler.transport import known_security

    return Questions(address, security=known_security(key_file, insecure))


def say_address(line: str, warning: str | None) -> None:
    """Where something is served now, and on standard error what is to be said of that. Raises `Unwritable`."""
    quietly(lambda: print(line))
    if warning is not None:
        print(warning, file=sys.stderr)


def quietly(write: Callable[[], object]) -> int:
    """Write; whoever read it may have enough of it. What its encoding can't say is escaped. Raises `Unwritable`."""
    if sys.stdout is None:  # a shell has closed it
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it lasts as long as the process
    # the second is that of the C locale: it has bytes of names stay as they are, and no character escaped
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        _write_nowhere()
    except ScalerError:  # some are OSErrors, too
        raise
    except OSError as error:
        raise unwritable(error) from None
    return 0


def unwritable(error: OSError) -> Unwritable:
    """What to say of output that can't be written; no more of it is tried."""
    _write_nowhere()
    return Unwritable(f"the output can't be written: {error.strerror}")


def _write_nowhere() -> None:
    """Have the rest of the output go to nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
