"""Hosts from HTCondor: a cluster of jobs for each request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

from scaler.provisioning.batch import BatchProvider, System, said_of
from scaler.provisioning.provider import Job, JobState, ProviderError

#: the command is a line of its own in a shell, so that it may hold any character but a newline
TEMPLATE = """\
universe = vanilla
executable = /bin/sh
transfer_executable = false
arguments = "-c 'exec $condor --job $$(ClusterId).$$(ProcId)'"
batch_name = $name
+ScalerName = "$name"
request_cpus = $workers
output = $log
error = $log
getenv = true
periodic_remove = NumJobStarts > 1
$directives
queue $n
"""

_STATES = {1: JobState.PENDING, 2: JobState.RUNNING, 5: JobState.PENDING, 6: JobState.RUNNING, 7: JobState.RUNNING}
_ATTRIBUTES = "ClusterId,ProcId,JobStatus,ScalerName,RemoteHost,HoldReason,ExitCode"


def ids(out: str, n: int) -> list[str]:
    """What `condor_submit -terse` printed, expanded.

    >>> ids("31.0 - 31.1\\n", 2)
    ['31.0', '31.1']
    """
    found = re.search(r"(?m)^(\d+)\.\d+", out)
    if not found:
        raise ValueError(out)
    return [f"{found[1]}.{index}" for index in range(n)]


def jobs(out: str) -> Iterator[Job]:
    """What `condor_q -json` printed: a list, or nothing at all if there is no job."""
    try:
        found = json.loads(out) if out.strip() else []
    except ValueError as error:
        raise ProviderError(f"condor_q printed no JSON: {error}") from error
    for job in found:
        state = _STATES.get(job.get("JobStatus"), JobState.ENDED)
        host = str(job.get("RemoteHost", "")).rpartition("@")[2]
        code = job.get("ExitCode", 0)
        reason = f"exit code {code}" if state is JobState.ENDED and code else str(job.get("HoldReason", ""))
        name = f"{job.get('ClusterId')}.{job.get('ProcId')}"
        yield Job(name, str(job.get("ScalerName", "")), state, host, said_of(state, reason))


SYSTEM = System(
    "htcondor", "HTCondor", TEMPLATE, "", "+Queue = \"{}\"", "accounting_group = {}", "request_memory = {}",
    "allowed_job_duration = {seconds}",
    ("condor_submit", "-terse", "-"), True, ids, ("condor_q", "-json", "-attributes", _ATTRIBUTES), jobs,
    ("condor_rm",), ("not found", "already marked for removal", "Couldn't find"), ("condor_version",),
)  # fmt: skip
#: a provider from the options of a configuration file; raises `OptionError`
make = partial(BatchProvider, SYSTEM)
