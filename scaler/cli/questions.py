"""`scaler tasks`, `scaler explain`, `scaler story`: what a cluster answers, as text or as lines of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import click

from scaler.cli.asking import ADDRESS, asking_command, quietly, session
from scaler.errors import UnknownTask
from scaler.protocol.codes import TASK_STATES

#: tasks that are shown unless more are asked for
SHOWN = 1_000

STATES = click.Choice(TASK_STATES)


def _tasks(
    address: str,
    state: str | None,
    function: str,
    client: int,
    limit: int,
    everything: bool,
    as_json: bool,
    key_file: str | None,
    insecure: bool,
) -> int:
    def write() -> None:
        with session(address, key_file, insecure) as questions:
            lines = questions.task_lines(state or "", function, client, None if everything else limit + 1)
            shown = lines if everything else islice(lines, limit)
            if not as_json:
                print(f"{'task':<20} {'state':<9} {'where':<20} function")
            for line in shown if as_json else _rows(shown):
                print(line)
            if limit == SHOWN and next(lines, None) is not None:
                sys.stdout.flush()
                print(f"scaler: only {limit:,} are shown, and there are more (--limit N, or --all)", file=sys.stderr)

    return quietly(write)


def _rows(lines: Iterable[str]) -> Iterator[str]:
    from scaler.monitor.formats import filled, inert
    from scaler.monitor.sayable import sayable

    encoding = sys.stdout.encoding
    shown = lru_cache(
        lambda text: sayable(inert(text), encoding)
    )  # hosts and functions are few, and tasks may be a million
    for line in lines:
        task = json.loads(line)
        host = filled(shown(str(task.get("host", ""))), 20)
        yield f"{task['task']:<20} {task['state']:<9} {host} {shown(task['function'])}"


def _about(kind: str) -> Callable[..., int]:
    def run(task: str, address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
        from scaler.monitor.questions import parse_task

        try:
            parse_task(task)
        except UnknownTask as error:
            raise click.UsageError(str(error)) from error
        with session(address, key_file, insecure) as questions:
            found = questions.explain(task) if kind == "explain" else questions.story(task)
        return quietly(lambda: _write_about(found, as_json))

    return run


def _write_about(found: list[dict[str, Any]], as_json: bool) -> None:
    from scaler.monitor.formats import inert

    for about in found:
        if as_json:
            print(json.dumps(about))
            continue
        print(f"{inert(about['function'])} ({about['task']}): {about['state']}")
        for line in about["lines"]:
            print(f"  {inert(line)}")


tasks = asking_command(
    "tasks", "List the tasks of a cluster.", _tasks, ADDRESS,
    click.Option(["--state"], type=STATES, help="only tasks that are in this state"),
    click.Option(["--function"], default="", help="only tasks of the function with this name"),
    click.Option(["--client"], type=click.IntRange(0, 2**31), default=0, help="only tasks of this client, a number"),
    click.Option(
        ["--limit"], type=click.IntRange(1, sys.maxsize), default=SHOWN, show_default=True, help="so many at most"
    ),
    click.Option(["everything", "--all"], is_flag=True, help="all, however many"),
)  # fmt: skip
explain = asking_command(
    "explain", "Say why a task has not run, or where it runs.", _about("explain"), click.Argument(["task"]), ADDRESS
)
story = asking_command(
    "story", "Tell what has happened to a task, as far as the scheduler remembers.", _about("story"),
    click.Argument(["task"]), ADDRESS,
)  # fmt: skip
