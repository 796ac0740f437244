"""Hosts from LSF: job arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from scaler.provisioning.batch import BatchProvider, System, said_of
from scaler.provisioning.provider import Job, JobState

TEMPLATE = """\
#!/bin/sh
#BSUB -J "$name[1-$n]"
#BSUB -n $workers
#BSUB -R "span[hosts=1]"
#BSUB -o $log
#BSUB -rn
$directives
exec $command --job "$${LSB_JOBID}[$${LSB_JOBINDEX}]"
"""

_STATES = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT"), JobState.PENDING),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP", "PROV"), JobState.RUNNING),
}


def ids(out: str, n: int) -> list[str]:
    """What `bsub` printed, expanded.

    >>> ids("Job <93> is submitted to queue <normal>.\\n", 2)
    ['93[1]', '93[2]']
    """
    found = re.search(r"Job <(\d+)> is submitted", out)
    if not found:
        raise ValueError(out)
    return [f"{found[1]}[{index}]" for index in range(1, n + 1)]


def jobs(out: str) -> Iterator[Job]:
    """What `bjobs` printed in the form that it was asked for."""
    for line in out.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) < 6 or not parts[0].isdigit():
            continue
        number, index, word, hosts, name = parts[:5]
        state = _STATES.get(word, JobState.ENDED)
        reason = "|".join(parts[5:]).strip().rstrip(";")
        if reason == "-":
            reason = ""
        if state is JobState.ENDED:
            reason = word if word != "DONE" else ""
        host = "" if hosts == "-" else hosts.rpartition("*")[2].partition(":")[0]
        yield Job(f"{number}[{index}]", name.partition("[")[0], state, host, said_of(state, reason))


SYSTEM = System(
    "lsf", "LSF", TEMPLATE, "#BSUB ", "-q {}", "-P {}", "-M {}", "-W {minutes}",
    ("bsub",), True, ids,
    ("bjobs", "-a", "-noheader", "-o", "jobid jobindex stat exec_host job_name pend_reason delimiter='|'"), jobs,
    ("bkill",), ("Job has already finished", "No matching job found", "is not found"), ("lsid",),
    ("No unfinished job found", "No job found"),
)  # fmt: skip
#: a provider from the options of a configuration file; raises `OptionError`
make = partial(BatchProvider, SYSTEM)
