"""`scaler_provision CONFIG.toml`: provides hosts for a cluster until it is told to end."""

from __future__ import annotations

import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from scaler.cli.asking import quietly
from scaler.cli.command import call, with_version
from scaler.cli.file import nearest
from scaler.cli.logs import set_up
from scaler.common.unexpected_end import told_in_log
from scaler.config import OptionError, ProvisionConfig, from_plain_values, settings
from scaler.errors import ScalerError


def read(path: Path) -> tuple[ProvisionConfig, dict[str, Any]]:
    """The configuration, and the options of its provider. Raises `click.UsageError` in one line."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, ValueError) as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise click.UsageError(f"cannot read {path}: {error}") from error
    options = content.pop("options", {})
    known = [setting.name for setting in settings(ProvisionConfig)]
    for name in content:
        if name not in known:
            hint = nearest(name, [*known, "options"]) or f", only {', '.join(known)}, and the table options"
            raise click.UsageError(f"{path}: there is no option {name!r}{hint}")
    for name in ("address", "provider"):
        if name not in content:
            raise click.UsageError(f"{path}: {name} is missing")
    if not isinstance(options, dict):
        raise click.UsageError(f"{path}: options must be a table, [options]")
    try:
        return from_plain_values(ProvisionConfig, content), options
    except OptionError as error:
        raise click.UsageError(f"{path}: {error}") from error


@with_version
@click.command(
    "provision",
    short_help="Provide hosts for a cluster, as a file says.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--print", "is_print", is_flag=True, help="print what hosts would be asked for with, and end")
@click.option("--keep", is_flag=True, help="leave the jobs as they are when this ends")
def command(config: Path, is_print: bool, keep: bool) -> int:
    """Provide hosts for a cluster, as CONFIG says: a TOML file (docs/provisioning.md)."""
    from dataclasses import replace

    from scaler.common.loop import ending_signals, ignore_ending_signals
    from scaler.provisioning.asking import template_of
    from scaler.provisioning.core import events as ev
    from scaler.provisioning.provider import ProviderError
    from scaler.provisioning.provisioner import Provisioner
    from scaler.provisioning.registry import make_provider
    from scaler.transport import Address, joining_security

    wanted, options = read(config)
    wanted = replace(wanted, address=Address.parse(wanted.address).url, keep=wanted.keep or keep)
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
        raise click.UsageError(f"{config}: {error}") from error
    except ImportError as error:  # what a provider needs is not installed
        raise ProviderError(str(error)) from error
    import logging

    logging.getLogger("scaler.provision").info("hosts of %s, tag %s", provider.describe(), wanted.tag)
    for number in ending_signals():
        signal.signal(number, lambda _number, _frame: provisioner.tell(ev.End()))
    with told_in_log("Provisioner: it", ScalerError):
        code = provisioner.run()
    ignore_ending_signals()
    return code


def main() -> None:
    """The program `scaler_provision`."""
    sys.exit(call(command, "scaler_provision"))
