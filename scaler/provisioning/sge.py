"""Hosts from Grid Engine (SGE, Son of Grid Engine, Univa, Altair): array jobs, listed as XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from xml.etree import ElementTree

from scaler.provisioning.batch import BatchProvider, System, is_ours, said_of
from scaler.provisioning.provider import Job, JobState, ProviderError

TEMPLATE = """\
#!/bin/sh
#$$ -N $name
#$$ -t 1-$n
#$$ -S /bin/sh
#$$ -cwd
#$$ -o $log
#$$ -j y
#$$ -r n
#$$ -notify
#$$ -V
$directives
exec $command --job "$$JOB_ID.$$SGE_TASK_ID" --preemption-signal SIGUSR2
"""


def ids(out: str, n: int) -> list[str]:
    """What `qsub -terse` printed, expanded.

    >>> ids("7.1-2:1\\n", 2)
    ['7.1', '7.2']
    """
    found = re.findall(r"(?m)^(\d+)(?:\.\d.*)?$", out)
    if not found:
        raise ValueError(out)
    return [f"{found[-1]}.{index}" for index in range(1, n + 1)]


def jobs(out: str) -> Iterator[Job]:
    """What `qstat -xml` printed of this user's jobs, with a line for each task of an array (`-g d`)."""
    try:
        root = ElementTree.fromstring(out) if out.strip() else None
    except ElementTree.ParseError as error:
        raise ProviderError(f"qstat printed no XML: {error}") from error
    for found in root.iter("job_list") if root is not None else ():
        if not is_ours(found.findtext("JB_owner", "")):
            continue
        letters = found.findtext("state", "")
        number, task = found.findtext("JB_job_number", ""), found.findtext("tasks", "")
        if "q" in letters or "w" in letters:
            state, reason = JobState.PENDING, letters if letters != "qw" else ""
        else:
            state, reason = JobState.RUNNING, letters
        host = found.findtext("queue_name", "").partition("@")[2]
        yield Job(f"{number}.{task or 1}", found.findtext("JB_name", ""), state, host, said_of(state, reason))


SYSTEM = System(
    "sge", "Grid Engine", TEMPLATE, "#$ ", "-q {}", "-P {}", "-l h_vmem={}", "-l h_rt={seconds}",
    ("qsub", "-terse"), True, ids, ("qstat", "-xml", "-g", "d", "-u", "*"), jobs, ("qdel",),
    ("does not exist", "is already in deletion", "has registered the job"), ("qstat", "-help"),
)  # fmt: skip
#: a provider from the options of a configuration file; raises `OptionError`
make = partial(BatchProvider, SYSTEM)
