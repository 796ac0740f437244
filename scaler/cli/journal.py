"""`scaler journal check|show DIR`: what a journal holds, and whether all of it can be believed. Changes nothing."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from scaler.cli.asking import JSON, SETTINGS, quietly


def _check(directory: str) -> int:
    """Look at each byte; the exit code says whether all can be believed."""
    from scaler.journal.directory import Directory  # `-h` and mistakes are answered without loading the engine

    journal, records, size = Directory(directory), 0, 0
    _look_for_journal(directory)

    def take(record: Any, _place: Any) -> None:
        nonlocal records, size
        records += 1
        size += sum(map(len, record.frames))

    damage = journal.replay(take)

    def write() -> None:
        print(f"{directory}: {len(journal.segments())} segments, {records:,} records, {size:,} bytes in them")
        if damage is not None:
            print(f"{damage}" + (", as when its writer was killed" if damage.is_cut else ""))
        if not is_history_believed:
            print(
                f"{directory}/history: it can't be read: nobody knows who has written here, and a scheduler begins anew"
            )

    is_history_believed = journal.is_history_believed()
    quietly(write)
    return int(damage is not None or not is_history_believed)


def _show(directory: str, as_json: bool) -> int:
    """A line for each record."""
    from scaler.journal.directory import Directory
    from scaler.scheduler.jobs.job_records import Kind

    def line(record: Any, place: Any) -> None:
        kind = Kind(record.kind).name.lower() if record.kind in list(Kind) else str(record.kind)
        about = bytes(record.frames[0]).decode(errors="replace") if kind in TEXTS else ""
        size = sum(map(len, record.frames))
        if as_json:
            said = {"segment": place.segment, "offset": place.offset, "kind": kind, "job": record.owner}
            print(json.dumps({"v": 1, **said, "term": record.term, "bytes": size, "about": about}))
        else:
            print(f"{place.segment:>8} {place.offset:>12,} {kind:<8} job {record.owner:<8} {size:>12,} {about[:120]}")

    _look_for_journal(directory)

    damage: object = None

    def write() -> None:
        nonlocal damage
        damage = Directory(directory).replay(line)
        if damage is not None:
            sys.stdout.flush()
            print(damage, file=sys.stderr if as_json else sys.stdout)

    return quietly(write) or int(damage is not None)


def _look_for_journal(directory: str) -> None:
    """Raise `JournalError` where there is none (an empty one would seem to be all right), or where a file is a pipe."""
    from scaler.journal.directory import Directory, JournalError, no_file

    journal = Directory(directory)
    if not journal.is_there():
        raise JournalError(f"there is no journal in {directory}: name what a scheduler was given as --journal")
    for path in (journal.path / "history", *map(journal.segment, journal.segments())):
        if path.exists() and not path.is_file():
            raise no_file(path)


#: kinds of records that begin with text
TEXTS = frozenset({"opened", "part", "state", "agents"})

DIRECTORY = click.Argument(["directory"], type=click.Path(exists=True, file_okay=False))

journal = click.Group(
    "journal",
    commands={
        "check": click.Command(
            "check", callback=_check, params=[DIRECTORY], context_settings=SETTINGS,
            help="Say whether all of a journal can be believed, and where it ends to be.",
        ),
        "show": click.Command(
            "show", callback=_show, params=[DIRECTORY, JSON], context_settings=SETTINGS,
            help="Print a line for each record of a journal.",
        ),
    },
    help="Look at a journal; a scheduler may be writing it.",
    short_help="Look at a journal.",
    context_settings=SETTINGS,
)  # fmt: skip
