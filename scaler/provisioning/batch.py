"""What providers of batch systems have in common: commands that are asked, scripts from a template, jobs by name.

What a system is like stands in a `System`: data, and two functions that read what its commands print.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import string
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaler.config import LONGEST_LOOK, OptionError
from scaler.provisioning.asking import job_environment
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError, WrongSetup, request_of
from scaler.provisioning.registry import Known, take

#: options that all of these have
OPTIONS: dict[str, Known] = {
    "queue": (str, ""), "account": (str, ""), "memory": (str, ""), "directives": (list, []),
    "log": (str, "/dev/null"), "template": (str, ""), "timeout": (float, 20.0, 0.05, LONGEST_LOOK),
}  # fmt: skip

#: what stands for something in a template
_NAMES = ("name", "n", "last", "workers", "log", "command", "condor", "directives")

Jobs = list[Job]


@dataclass(frozen=True)
class System:
    """A batch system, as its commands show it."""

    #: as users write it, and as people do
    name: str
    title: str
    #: the script of a request; `$directives` is a line for each of what follows, after `prefix`
    template: str
    prefix: str
    #: directives for options, with `{}` for the value; for the walltime, with `{seconds}`, `{minutes}` and `{clock}`
    queue: str
    account: str
    memory: str
    walltime: str
    submit: tuple[str, ...]
    #: one call makes all jobs of a request
    has_arrays: bool
    #: what `submit` printed for so many jobs -> their ids; a ValueError for what can't be read
    ids: Callable[[str, int], list[str]]
    listing: tuple[str, ...]
    #: what `listing` printed -> all jobs, also of others
    jobs: Callable[[str], Iterable[Job]]
    cancel: tuple[str, ...]
    #: what `cancel` says, among other words, of jobs that have ended
    ended: tuple[str, ...]
    #: prints in its first line what the system is, though not always whether it is there; nothing if none does
    version: tuple[str, ...]
    #: what `listing` says and fails with when there are no jobs
    none: tuple[str, ...] = ()
    #: `submit` gets the script as a file, not as its input
    takes_file: bool = False
    #: further words of `submit`, with `{log}` for where output goes: for commands that heed no directive about it
    output: tuple[str, ...] = ()


class NoAnswer(ProviderError):
    """A command did not end in time: nobody knows what it has done."""


class BatchProvider:
    """The jobs of a batch system, as the commands of this host reach it."""

    def __init__(self, system: System, options: dict[str, Any]) -> None:
        """Raises `OptionError`."""
        self._system = system
        self._options = take(options, OPTIONS, system.name)
        arrays = [("n", "last")] if system.has_arrays else []
        self._template = template_text(self._options["template"], system.template, arrays)

    def script(self, n: int, template: HostTemplate) -> str:
        """The script of a request for `n` hosts. Raises `OptionError` for a name that a template can't have."""
        return filled(
            self._template,
            name=template.job_name, n=n, last=n - 1, workers=template.workers, log=self._options["log"],
            command=shlex.join(template.command), condor=in_quotes(shlex.join(template.command)),
            directives="\n".join(f"{self._system.prefix}{line}" for line in self._directives(template)),
        )  # fmt: skip

    def _directives(self, template: HostTemplate) -> list[str]:
        system, options = self._system, self._options
        lines = [
            getattr(system, name).format(options[name]) for name in ("queue", "account", "memory") if options[name]
        ]
        if template.walltime is not None:
            seconds = max(1, round(template.walltime))
            clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            lines.append(system.walltime.format(seconds=seconds, minutes=-(-seconds // 60), clock=clock))
        return [*lines, *options["directives"]]

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """One array of `n` jobs, or so many jobs where there are no arrays."""
        system, environment = self._system, job_environment(template)
        each, calls = (n, 1) if system.has_arrays else (1, n)
        script, found = self.script(each, template), list[str]()
        for _ in range(calls):
            try:
                out = self._submit(script, environment)
                found += system.ids(out, each)
            except ValueError:
                raise ProviderError(f"{system.submit[0]} said no number of a job, but {out.strip()[:200]!r}") from None
            except NoAnswer:
                raise  # it may have been taken: lists will tell which were
            except ProviderError:
                if not found:
                    raise
                break  # what was taken counts; the rest will be asked for again
        return found

    def _submit(self, script: str, environment: dict[str, str]) -> str:
        system, timeout, command = self._system, self._options["timeout"], self._submit_command()
        if not system.takes_file:
            return ask(command, system.title, timeout, script, environment)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="scaler-", suffix=".sh") as file:
            file.write(script)
            file.flush()
            return ask((*command, file.name), system.title, timeout, "", environment)

    def _submit_command(self) -> tuple[str, ...]:
        return (*self._system.submit, *(word.format(log=self._options["log"]) for word in self._system.output))

    def list(self, tag: str) -> Jobs:
        """The jobs with that tag; of those that have ended what the system still knows."""
        out = self._ask(self._system.listing, self._system.none)
        return [job for job in self._system.jobs(out) if request_of(job.name, tag) is not None]

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended are no error."""
        for at in range(0, len(ids), 100):
            self._ask((*self._system.cancel, *ids[at : at + 100]), self._system.ended)

    def describe(self) -> str:
        """What the system says of itself, and where jobs go. Raises `ProviderError` if it does not list its jobs."""
        system = self._system
        self._ask(system.listing, system.none)
        said = self._ask(system.version, ()).strip().splitlines() if system.version else []
        first = f" ({said[0].strip()})" if said else ""
        return f"{system.title}{first}, queue {self._options['queue'] or '(default)'}"

    def _ask(self, command: Sequence[str], harmless: Sequence[str]) -> str:
        """What a command printed; nothing if it failed with words that are no failure."""
        try:
            return ask(command, self._system.title, self._options["timeout"])
        except ProviderError as error:
            if not any(words in str(error) for words in harmless):
                raise
            return ""

    def preview(self, n: int, template: HostTemplate) -> str:
        """The script as the system gets it."""
        each, times = (n, "") if self._system.has_arrays else (1, f", {n} times")
        given = "a file with this" if self._system.takes_file else "this as its input"
        return f"# {shlex.join(self._submit_command())}, with {given}{times}:\n{self.script(each, template)}"


def in_quotes(command: str) -> str:
    """A command line within both kinds of quotes of a submit description.

    >>> print(in_quotes("say 'a b'"))
    say ''a b''
    """
    return command.replace("'", "''").replace('"', '""')


def template_text(path: str, default: str, needed: Iterable[tuple[str, ...]]) -> str:
    """The user's template, if there is one. Raises `OptionError`, also if jobs made of it could not be known again.

    `needed`: of each of these names it has to have one, besides those of the job, of the command and its `--job`.
    """
    if not path:
        return default
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise OptionError("template", f"cannot be read: {error}") from error
    filled(text, **dict.fromkeys(_NAMES, ""))
    found = string.Template(text).get_identifiers()
    for names in [("name",), ("command", "condor"), *needed]:
        if not set(names) & set(found):
            raise OptionError("template", f"{path} has no ${names[0]}, without which its jobs cannot be counted")
    if "--job" not in text:
        raise OptionError("template", f"{path} does not say --job and the job's id behind $command: see --print")
    return text


def filled(template: str, **names: object) -> str:
    """A template with its names filled in; `$$` is a dollar. Raises `OptionError`."""
    try:
        return string.Template(template).substitute(names)
    except (KeyError, ValueError) as error:
        raise OptionError("template", f"has a name that is not known, or a $ that is not $$: {error}") from error


def ask(
    command: Sequence[str], title: str, timeout: float, text: str = "", environment: dict[str, str] | None = None
) -> str:
    """Run a command of the batch system `title`; what it printed. Blocks. Raises `ProviderError` in its own words.

    `WrongSetup` if it cannot be run at all.
    """
    name = command[0]
    try:
        code, out, complaints = _run(command, text, environment, timeout)
    except FileNotFoundError:
        raise WrongSetup(
            f"there is no command {name} here: run this where {title}'s commands are, like its login node"
        ) from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{name} did not answer within {timeout:g} s") from None
    except OSError as error:
        raise WrongSetup(f"cannot run {name}: {error}") from error
    if code:
        words = " ".join((complaints or out).split()) or f"failed with {code} and no word"
        raise ProviderError(f"{name}: {words[:300]}")
    return out


def _run(command: Sequence[str], text: str, environment: dict[str, str] | None, timeout: float) -> tuple[int, str, str]:
    """Its exit code, what it printed and what it complained of. If it takes too long all that it has started goes."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        errors="replace", env=environment, process_group=0,
    ) as process:  # fmt: skip
        try:
            out, complaints = process.communicate(text, timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, out, complaints


def is_ours(owner: str) -> bool:
    """A job of this user, as far as that is known; `owner` may be USER@HOST. Others' may have the same tag."""
    try:
        return owner.partition("@")[0] in ("", pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:  # as in a container: nobody knows what this user is called
        return True


def said_of(state: JobState, reason: str) -> str:
    """A reason for a job that runs as it should is none."""
    return "" if state is JobState.RUNNING else reason
