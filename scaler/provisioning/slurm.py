"""Hosts from Slurm, by its own commands: `sbatch` of a job array for each request, `squeue`, `scancel`.

The script is made from a template that users can see (`scaler provision --print`) and replace by a file of their own.
Slurm's commands have variables for nearly all of their options. Those of `squeue` and `scancel` would hide jobs of this
cluster, so they do not count. Those of `sbatch` count where the script says nothing; Slurm itself lets them go before
the script, and jobs of another name or number would not be known again.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from scaler.config import LONGEST_LOOK
from scaler.provisioning.asking import job_environment
from scaler.provisioning.batch import ask, filled, template_text
from scaler.provisioning.provider import (
    HostTemplate,
    Job,
    JobState,
    ProviderError,
    WrongRequest,
    WrongSetup,
    request_of,
)
from scaler.provisioning.registry import Known, take

TEMPLATE = """\
#!/bin/sh
#SBATCH --job-name=$name
#SBATCH --array=0-$last
#SBATCH --nodes=1 --ntasks=1
#SBATCH --cpus-per-task=$workers
#SBATCH --output=$log
#SBATCH --open-mode=append
#SBATCH --no-requeue
$directives
exec $command --job "$${SLURM_ARRAY_JOB_ID}_$${SLURM_ARRAY_TASK_ID}"
"""

#: what the states that squeue knows mean; others are over
_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"), JobState.PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"), JobState.RUNNING),
}
#: what sbatch says of options that it will never take; of others (no credential, say) it may the next time
_REFUSED = re.compile(
    r"(?i)invalid (partition|account|qos|feature|wckey|numeric value|generic resource|trackable resource)"
    r"|invalid .*specification|(unrecognized|invalid) option"
    r"|requested (time limit is invalid|node configuration is not available)"
)
#: variables SBATCH_... of options of sbatch that have another name than these; those of others have theirs
_VARIABLES = {
    "array": ("ARRAY_INX",), "time": ("TIMELIMIT",), "no-requeue": ("REQUEUE",), "requeue": ("NO_REQUEUE",),
    "mem": ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"),
}  # fmt: skip
OPTIONS: dict[str, Known] = {
    "partition": (str, ""), "account": (str, ""), "qos": (str, ""), "constraint": (str, ""), "memory": (str, ""),
    "directives": (list, []), "log": (str, "/dev/null"), "template": (str, ""),
    "timeout": (float, 20.0, 0.05, LONGEST_LOOK),
}  # fmt: skip

Jobs = list[Job]


def make(options: dict[str, Any]) -> SlurmProvider:
    """A provider from the options of a configuration file. Raises `OptionError`."""
    return SlurmProvider(take(options, OPTIONS, "slurm"))


class SlurmProvider:
    """Slurm as the commands of this host reach it. The job's id is ARRAY_INDEX, as squeue shows it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._template = template_text(options["template"], TEMPLATE, [("last", "n")])

    def script(self, n: int, template: HostTemplate) -> str:
        """The batch script of a request for `n` hosts. Raises `OptionError` for a name that a template can't have."""
        log = self._options["log"]
        return filled(
            self._template,
            name=template.job_name,
            n=n,
            last=n - 1,
            workers=template.workers,
            log=log if len(log.split()) == 1 else f'"{log}"',
            command=shlex.join(template.command),
            directives="\n".join(f"#SBATCH {line}" for line in self._directives(template)),
        )

    def _directives(self, template: HostTemplate) -> Sequence[str]:
        options = self._options
        lines = [f"--{name}={options[name]}" for name in ("partition", "account", "qos", "constraint") if options[name]]
        if options["memory"]:
            lines.append(f"--mem={options['memory']}")
        if template.walltime is not None:
            minutes, seconds = divmod(max(1, round(template.walltime)), 60)
            lines.append(f"--time={minutes}:{seconds:02d}")
        return [*lines, *options["directives"]]

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """One array of `n` jobs."""
        script = self.script(n, template)
        try:
            out = self._run(["sbatch", "--parsable"], script, unsaid(script, job_environment(template)))
        except WrongSetup:
            raise
        except ProviderError as error:
            raise (WrongRequest if _REFUSED.search(str(error)) else ProviderError)(str(error)) from None
        array = out.strip().splitlines()[-1].partition(";")[0] if out.strip() else ""
        if not array.isdigit():
            raise ProviderError(f"sbatch said no number of a job, but {out.strip()[:200]!r}")
        return [f"{array}_{index}" for index in range(n)]

    def list(self, tag: str) -> Jobs:
        """The jobs of this user with that tag, and for as long as Slurm knows them those that have ended."""
        form = "%i|%T|%N|%r|%j"
        out = self._run(
            ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", f"--format={form}"]
        )
        jobs = []
        for line in out.splitlines():
            parts = line.split("|", 4)
            if len(parts) != 5 or request_of(parts[4], tag) is None:
                continue
            job, state, host, reason, name = parts
            said = "" if reason == "None" else reason
            found = _STATES.get(state, JobState.ENDED)
            if found is JobState.ENDED and state not in ("COMPLETED", "CANCELLED"):
                said = f"{state} {said}".strip()
            jobs.append(Job(job, name, found, host, said))
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that Slurm has forgotten have ended."""
        try:
            self._run(["scancel", *ids])
        except ProviderError as error:
            if "Invalid job id" not in str(error) and "already completing" not in str(error):
                raise

    def describe(self) -> str:
        """Version, and where jobs go."""
        version = self._run(["squeue", "--version"]).strip().replace("slurm", "Slurm").replace("-wlm", "")
        return f"{version}, partition {self._options['partition'] or '(default)'}"

    def preview(self, n: int, template: HostTemplate) -> str:
        """The script as `sbatch` gets it."""
        return f"# sbatch --parsable, with this as its input:\n{self.script(n, template)}"

    def _run(self, command: Sequence[str], text: str = "", environment: dict[str, str] | None = None) -> str:
        if environment is None:
            hiding = ("SQUEUE_", "SCANCEL_")
            environment = {name: value for name, value in os.environ.items() if not name.startswith(hiding)}
        return ask(command, "Slurm", self._options["timeout"], text, environment)


def unsaid(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of sbatch for what the script says, and the one that has it wait for its jobs.

    >>> unsaid("#SBATCH --time=5:00\\n", {"SBATCH_TIMELIMIT": "1", "SBATCH_ACCOUNT": "lab", "SBATCH_WAIT": "1"})
    {'SBATCH_ACCOUNT': 'lab'}
    """
    said = {"WAIT"}
    for line in re.findall(r"(?m)^#SBATCH\s(.*)", script):
        for option in re.findall(r"(?:^|\s)--([a-z-]+)", line):
            said.update(_VARIABLES.get(option, (option.upper().replace("-", "_"),)))
    dropped = {f"SBATCH_{name}" for name in said}
    return {name: value for name, value in environment.items() if name not in dropped}
