"""`scaler cancel`, `drain`, `promote`, `hand-over`: telling a cluster what to do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from scaler.cli import jobs
from scaler.cli.asking import ABOUT_ADDRESS, ADDRESS, JSON, KEYS, SETTINGS, quietly

if TYPE_CHECKING:
    from scaler.monitor.commands import Cancelled, Commands


def _commands(address: str, key_file: str | None, insecure: bool) -> Commands:
    from scaler.monitor.commands import Commands  # `-h` and mistakes are answered without loading the engine
    from scaler.transport import known_security

    return Commands(address, security=known_security(key_file, insecure))


def _cancel(what: str, address: str, force: bool, as_json: bool, key_file: str | None, insecure: bool) -> int:
    from scaler.errors import ScalerError
    from scaler.scheduler.composition import NO_JOURNAL

    if not what:
        raise click.UsageError("Name a job, a task, a function or a client")
    why = jobs.cancelled(what, address, force, as_json, key_file, insecure)  # a job may be called like a task
    if not why:
        return 0
    try:
        cancelled = _cancel_tasks(what, address, force, key_file, insecure)
    except ScalerError as error:
        if why != NO_JOURNAL:
            error.args = (f"{error}; {why}",)
        raise
    if as_json:
        return _say(json.dumps({"v": 1, "cancelled": cancelled.done, "asked": cancelled.asked}))
    lines = [f"cancelled: {cancelled.done:,} tasks"]
    if cancelled.asked:
        fate = "those that run are ended" if force else "those that have begun go on (--force ends them)"
        lines.append(f"hosts were asked for {cancelled.asked:,} more: {fate}")
    return _say("\n".join(lines))


def _say(text: str) -> int:
    return quietly(lambda: print(text))


def _cancel_tasks(what: str, address: str, force: bool, key_file: str | None, insecure: bool) -> Cancelled:
    from scaler.errors import ScalerError
    from scaler.monitor.commands import CommandRefused
    from scaler.monitor.questions import parse_task

    with _commands(address, key_file, insecure) as commands:
        if what.isdecimal():
            client = _number(what)
            if not client:
                raise ScalerError(f"no client has the number {what}")
            return commands.cancel(client=client, force=force)
        if re.fullmatch(r"[0-9]+:[0-9]+", what):
            client, row, _ = parse_task(what)
            return commands.cancel(client=client, row=row, force=force)
        try:  # a function may be called like a task
            return commands.cancel(function=what, force=force)
        except CommandRefused:
            if not re.search(r"[\])]:?$|[0-9]:[0-9]+$", what):
                raise
        client, row, function = parse_task(what)
        return commands.cancel(client=client, row=row, function=function, force=force)


def _number(text: str) -> int:
    """Of a client or an agent; 0 if a text is none that one may have."""
    number = int(text) if text.isdecimal() and len(text) <= 10 else 0
    return number if number < 1 << 32 else 0


def _drain(address: str | None, which: tuple[str, ...], undo: bool, key_file: str | None, insecure: bool) -> int:
    from scaler.monitor.commands import CommandRefused

    said = [each for each in which if "://" in each]
    if len(said) > 1:
        raise click.UsageError(f"Got more than one address: {', '.join(said)}")
    address, which = said[0] if said else address, tuple(each for each in which if each not in said)
    if not address or not which:
        raise click.UsageError(f"Missing argument '{'JOB|AGENT...' if address else 'ADDRESS'}'")
    hosts, told, refusals = 0, [], []
    with _commands(address, key_file, insecure) as commands:
        for name in which:
            try:
                hosts += _drain_one(commands, name, undo)
                told.append(name)
            except CommandRefused as refusal:
                refusals.append(str(refusal))
    if not told:
        raise CommandRefused("; ".join(refusals))
    names = f" ({', '.join(told)})" if refusals else ""
    _say("; ".join([f"{'staying' if undo else 'draining'}: {hosts:,} hosts{names}", *refusals]))
    return 1 if refusals else 0


def _drain_one(commands: Commands, name: str, undo: bool) -> int:
    """Tell the hosts of a job, or an agent, by its number; how many do as they are told. Raises `CommandRefused`."""
    from scaler.monitor.commands import CommandRefused

    tell = commands.undrain if undo else commands.drain
    try:
        return tell(jobs=[name])
    except CommandRefused:
        number = _number(name)
        if not number:
            raise
        return tell(agents=[number])


def _promote(standby: str, key_file: str | None, insecure: bool) -> int:
    with _commands(standby, key_file, insecure) as commands:
        commands.promote()
    return _say(f"leads: {standby}")


def _hand_over(address: str, key_file: str | None, insecure: bool) -> int:
    with _commands(address, key_file, insecure) as commands:
        commands.hand_over()
    return _say("handed over: the other scheduler leads, and this one stands by for it")


cancel = click.Command(
    "cancel", callback=_cancel, context_settings=SETTINGS,
    short_help="Cancel a durable job, a task, or all tasks of a function or a client.",
    params=[
        click.Argument(["what"], metavar="JOB|TASK|FUNCTION|CLIENT"),
        ADDRESS,
        click.Option(["--force"], is_flag=True, help="end even those that run"),
        JSON,
        *KEYS,
    ],
    help="Cancel a durable job (its name), a task (CLIENT:TASK), all tasks of a function (its name) or of a client "
    "(its number).", epilog=ABOUT_ADDRESS,
)  # fmt: skip
drain = click.Command(
    "drain", callback=_drain, context_settings=SETTINGS,
    short_help="Have hosts finish what they run, and go.",
    params=[
        click.Option(["address", "--address"], envvar="SCALER_ADDRESS", hidden=True),
        click.Argument(["which"], nargs=-1, required=True, metavar="[ADDRESS] JOB|AGENT..."),
        click.Option(["--undo"], is_flag=True, help="let hosts stay that were told to drain"),
        *KEYS,
    ],
    help="Have hosts go in order, named by their batch system's job or by their number: they finish what runs, others "
    "take over what only they have, and they end.", epilog=ABOUT_ADDRESS,
)  # fmt: skip
promote = click.Command(
    "promote", callback=_promote, context_settings=SETTINGS,
    short_help="Have a standby lead whose scheduler is gone for good.",
    params=[click.Argument(["standby"], metavar="ADDRESS"), *KEYS],
    help="Have the standby at ADDRESS lead though it does not hear more than half of the hosts. Make sure that the "
    "other scheduler is gone: nobody else can tell when so few hosts are left.",
    epilog="ADDRESS: that of the standby itself. It has to be said: SCALER_ADDRESS may be another's.",
)  # fmt: skip
hand_over = click.Command(
    "hand-over", callback=_hand_over, context_settings=SETTINGS,
    short_help="Have scheduler and standby change places, without a pause.",
    params=[ADDRESS, *KEYS],
    help="Have the standby lead that follows the scheduler at ADDRESS, which then stands by: nobody notices a pause.",
    epilog=ABOUT_ADDRESS,
)  # fmt: skip
