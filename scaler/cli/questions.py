"""`scaler tasks`, `scaler explain`, `scaler story`: what a cluster answers, as text or as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from scaler.monitor.questions import Questions

#: tasks that are shown unless more are asked for
SHOWN = 1_000

ADDRESS = click.Argument(["address"], envvar="SCALER_ADDRESS")
COMMON = (
    click.Option(["as_json", "--json"], is_flag=True, help="lines of JSON, an object each"),
    click.Option(["--key-file"], envvar="SCALER_KEY_FILE", help="the cluster's key, if it is not your own"),
    click.Option(["--insecure"], is_flag=True, help="connect without keys and in the clear"),
)
STATES = click.Choice(["waiting", "queued", "agent", "done"])
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def _questions(address: str, key_file: str | None, insecure: bool) -> Questions:
    from scaler.monitor.questions import Questions  # `-h` and mistakes are answered without loading the engine
    from scaler.transport import security_of

    return Questions(address, security=security_of(key_file, insecure) if key_file or insecure else None)


def quietly(write: Callable[[], None]) -> int:
    """Write; whoever read it may have enough of it."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


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
        with _questions(address, key_file, insecure) as questions:
            lines = questions.task_lines(state or "", function, client, None if everything else limit)
            if not as_json:
                print(f"{'task':<20} {'state':<8} {'where':<20} function")
            for line in lines:
                print(line if as_json else _row(json.loads(line)))

    return quietly(write)


def _row(task: dict[str, Any]) -> str:
    from scaler.monitor.formats import inert

    host = inert(str(task.get("host", "")))
    return f"{task['task']:<20} {task['state']:<8} {host:<20} {inert(task['function'])}"


def _about(kind: str) -> Callable[..., int]:
    def run(task: str, address: str, as_json: bool, key_file: str | None, insecure: bool) -> int:
        with _questions(address, key_file, insecure) as questions:
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


def _command(name: str, text: str, run: Callable[..., int], *parameters: click.Parameter) -> click.Command:
    return click.Command(
        name, callback=run, params=[*parameters, *COMMON], help=text, context_settings=SETTINGS,
        epilog="ADDRESS: the scheduler's, or the monitor address that its log names. [SCALER_ADDRESS]",
    )  # fmt: skip


tasks = _command(
    "tasks", "List the tasks of a cluster.", _tasks, ADDRESS,
    click.Option(["--state"], type=STATES, help="only tasks that are in this state"),
    click.Option(["--function"], default="", help="only tasks of the function with this name"),
    click.Option(["--client"], type=click.IntRange(0, 2**31), default=0, help="only tasks of this client, a number"),
    click.Option(["--limit"], type=click.IntRange(1), default=SHOWN, show_default=True, help="so many at most"),
    click.Option(["everything", "--all"], is_flag=True, help="all, however many"),
)  # fmt: skip
explain = _command(
    "explain", "Say why a task has not run, or where it runs.", _about("explain"), click.Argument(["task"]), ADDRESS
)
story = _command(
    "story", "Tell what has happened to a task, as far as the scheduler remembers.", _about("story"),
    click.Argument(["task"]), ADDRESS,
)  # fmt: skip
