"""Hosts from PBS: OpenPBS, PBS Pro, Torque, and Slurm's own commands of these names.

A job for each host, no arrays: each of these has arrays of another dialect. Where output goes is said on the command
line: Slurm's qsub heeds no directive about it, and leaves files where it was called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from scaler.provisioning.batch import BatchProvider, System, is_ours, said_of
from scaler.provisioning.provider import Job, JobState

TEMPLATE = """\
#!/bin/sh
#PBS -N $name
#PBS -l nodes=1:ppn=$workers
#PBS -r n
#PBS -V
$directives
exec $command --job "$$PBS_JOBID"
"""

_STATES = {
    **dict.fromkeys("QHWTS", JobState.PENDING),
    **dict.fromkeys("RBE", JobState.RUNNING),
    **dict.fromkeys("CFX", JobState.ENDED),
}


def ids(out: str, n: int) -> list[str]:
    """The last line that looks like a job's id.

    >>> ids("12.head.example\\n", 1)
    ['12.head.example']
    """
    words = [line.strip() for line in out.splitlines() if re.fullmatch(r"\d+(\.\S*)?", line.strip())]
    if not words:
        raise ValueError(out)
    return words[-1:]


def jobs(out: str) -> Iterator[Job]:
    """What `qstat -f` printed of this user's jobs: a paragraph for each.

    A line with a tab and no fact goes on with the one before.
    """
    for paragraph in re.split(r"(?m)^Job Id:", re.sub(r"\n\t(?![\w.]+ = )", "", out))[1:]:
        first, *lines = paragraph.splitlines()
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(" = ") for line in lines)}
        if not is_ours(facts.get("Job_Owner", "")):
            continue
        state = _STATES.get(facts.get("job_state", "Q")[:1], JobState.PENDING)
        host = re.split(r"[/+:*]", facts.get("exec_host", ""))[0]
        code = facts.get("Exit_status", facts.get("exit_status", "0"))
        reason = facts.get("comment", "")
        if state is JobState.ENDED:
            reason = f"exit code {code}" if code not in ("0", "") else ""
        yield Job(first.strip(), facts.get("Job_Name", ""), state, host, said_of(state, reason))


SYSTEM = System(
    "pbs", "PBS", TEMPLATE, "#PBS ", "-q {}", "-A {}", "-l mem={}", "-l walltime={clock}",
    ("qsub",), False, ids, ("qstat", "-f"), jobs, ("qdel",),
    ("Unknown Job", "nvalid job id", "has finished", "invalid state for job", "failed with 2 and no word"), (),
    # of Slurm's qstat, when there are no jobs
    ("failed with 153 and no word",), True, ("-o", "{log}", "-j", "oe"),
)  # fmt: skip
#: a provider from the options of a configuration file; raises `OptionError`
make = partial(BatchProvider, SYSTEM)
