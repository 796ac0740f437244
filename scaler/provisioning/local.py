"""Processes of this machine as hosts: for laptops, and for tests of all that is not a batch system.

They end with the process that started them, whatever ends it, so there is nothing to find again after that.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO, Any

from scaler.common.interpreter import command
from scaler.provisioning.asking import job_environment
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError
from scaler.provisioning.registry import take

#: seconds that a process has to end in order after it was cancelled
GRACE = 5.0
#: seconds for which a job that has ended is listed
REMEMBERED = 60.0

_STARTER = (
    "import os; from scaler.common.children import die_with_parent; die_with_parent(int(sys.argv[1])); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)

Jobs = list[Job]
Ids = list[str]


def make(options: dict[str, Any]) -> LocalProvider:
    """A provider from its options: `log`, a file that the output of all processes is appended to."""
    return LocalProvider(**take(options, {"log": (str, "")}, "local"))


class LocalProvider:
    """See the module. The job's id is that of the process, and of when it began."""

    def __init__(self, log: str = "") -> None:
        self._log = log
        self._processes: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        #: when each was cancelled, and when it was seen to have ended
        self._cancelled: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """Start processes."""
        ids: Ids = []
        if shutil.which(template.command[0]) is None:
            raise ProviderError(f"there is no program {template.command[0]} here")
        environment = job_environment(template)
        with self._output() as output:
            for _ in range(n):
                job = f"local-{os.getpid()}-{template.request}-{len(ids)}"
                try:
                    process = subprocess.Popen(
                        [*command(_STARTER), str(os.getpid()), *template.command, "--job", job],
                        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment,
                        start_new_session=True,
                    )  # fmt: skip
                except OSError as error:
                    if not ids:
                        raise ProviderError(f"cannot start a process: {error}") from error
                    break
                self._processes[job] = (template.job_name, process)
                ids.append(job)
        return ids

    def list(self, tag: str) -> Jobs:
        """What became of them."""
        now = time.monotonic()
        found = []
        for job, (name, process) in list(self._processes.items()):
            code = process.poll()
            if code is None:
                if now - self._cancelled.get(job, now) > GRACE:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                found.append(Job(job, name, JobState.RUNNING, os.uname().nodename))
                continue
            if now - self._ended.setdefault(job, now) > REMEMBERED:
                del self._processes[job], self._ended[job]
                continue
            found.append(Job(job, name, JobState.ENDED, os.uname().nodename, f"exit code {code}" if code else ""))
        return [job for job in found if job.name.startswith(f"{tag}-")]

    def cancel(self, ids: Sequence[str]) -> None:
        """Ask them to end; those that do not are killed later, when the list is asked for."""
        for job in ids:
            if job in self._processes and self._processes[job][1].poll() is None:
                self._cancelled.setdefault(job, time.monotonic())
                self._processes[job][1].terminate()

    def describe(self) -> str:
        """Where that is."""
        return f"processes of this machine, {os.uname().nodename}"

    def preview(self, n: int, template: HostTemplate) -> str:
        """What would be run."""
        return f"# {n} times\n{shlex.join([*template.command, '--job', 'ID'])}"

    def close(self) -> None:
        """Kill what is left."""
        for _, process in self._processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _output(self) -> IO[bytes]:
        try:
            return open(self._log or os.devnull, "ab")
        except OSError as error:
            raise ProviderError(f"cannot write the log {self._log}: {error.strerror}") from error
