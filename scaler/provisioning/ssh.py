"""Hosts by the system's `ssh`: from a list or a file, with all that `~/.ssh/config` says (ProxyJump, agents, keys).

An ssh process for each host that is in use runs `far_side` there. Its standard input is a pipe from here: the agent
over there ends when this process does, whatever ends it, so there is nothing to find again. A host is in use once.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from scaler.common import start_environment
from scaler.common.attempts import growing_pause
from scaler.provisioning import far_side
from scaler.provisioning.provider import HostTemplate, Job, JobState, ProviderError, WrongSetup
from scaler.provisioning.ssh_options import checked, command_line, hosts_of
from scaler.transport.security import KEY_FILE_VARIABLE

logger = logging.getLogger("scaler.provision")

#: seconds for which a host that failed is left alone, at first and at most: doubled with each failure in a row
REST, LONGEST_REST = 30.0, 600.0
#: seconds for which a job that has ended is listed
REMEMBERED = 60.0
#: seconds after `connect_timeout` in which Python has to have begun there: login shells and file systems may hang
START = 60.0
#: seconds after which a connection is given up that was cancelled before anything had begun there
UNBEGUN = 1.0
#: what ssh itself exits with; other codes are those of what it ran
SSH_FAILED = 255
#: why what is sent to the far side does not come there whole, and what Python says then
EATEN = "a login script there, say ~/.bashrc, reads standard input, which is for what ssh runs: give it </dev/null"
_READ_BY_OTHERS = ("SyntaxError:", "NameError:", "json.decoder.JSONDecodeError:")
Jobs = list[Job]


def make(options: dict[str, Any]) -> SshProvider:
    """A provider from the options of a configuration file. Raises `OptionError`."""
    return SshProvider(checked(options))


@dataclass
class _Started:
    """A host that was asked for. What is said of it changes in a thread of its own."""

    id: str
    name: str
    host: str
    state: JobState = JobState.PENDING
    reason: str = ""
    process: subprocess.Popen[bytes] | None = None
    is_cancelled: bool = False
    #: it was ended as nothing had begun there for so many seconds
    hung: float = 0.0
    #: when the agent began, seconds; and the last line that it has printed
    began: float | None = None
    last_line: str = ""
    #: when it ended, seconds
    ended: float | None = None
    #: of what is above
    lock: threading.Lock = field(default_factory=threading.Lock)


class SshProvider:
    """See the module. The job's id is the host's name and a number."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._hosts = hosts_of(options)
        self._jobs: dict[str, _Started] = {}
        self._count = 0
        #: of each host when it failed last, seconds, and how often in a row
        self._failed: dict[str, tuple[float, int]] = {}
        #: how many connections are being made
        self._room = threading.Semaphore(options["parallel"])

    def command(self, host: str) -> list[str]:
        """The command line that runs the far side on a host."""
        return command_line(self._options, host)

    def submit(self, n: int, template: HostTemplate) -> list[str]:
        """Start connections to hosts that are not in use; fewer than `n` if there are not so many. Does not wait."""
        now = time.monotonic()
        used = {job.host for job in self._jobs.values() if job.ended is None}
        resting = [host for host, failed in self._failed.items() if now < _again_at(*failed) and host not in used]
        free = [host for host in self._hosts if host not in used and host not in resting]
        free.sort(key=lambda host: self._failed.get(host, (0.0, 0))[0])
        if not free:
            words = f"no host is free: {len(used)} of {len(self._hosts)} are in use"
            raise ProviderError(words + (f", and could not be reached lately: {', '.join(resting)}" if resting else ""))
        text = self._first_lines(template)
        ids = []
        for host in free[:n]:
            self._count += 1
            job = _Started(f"{host}#{self._count}", template.job_name, host)
            threading.Thread(target=self._run, args=(job, text), name=f"scaler-ssh-{host}", daemon=True).start()
            self._jobs[job.id] = job
            ids.append(job.id)
        return ids

    def list(self, tag: str) -> Jobs:
        """What became of them."""
        now = time.monotonic()
        for job in list(self._jobs.values()):
            if job.ended is not None and now > job.ended + REMEMBERED:
                del self._jobs[job.id]
        jobs = [job for job in self._jobs.values() if job.name.startswith(f"{tag}-")]
        return [Job(job.id, job.name, job.state, job.host, job.reason, bool(job.reason)) for job in jobs]

    def cancel(self, ids: Sequence[str]) -> None:
        """Close the connections; the agents have `grace` seconds to end in order, connections without one `UNBEGUN`."""
        unbegun = []
        for name in ids:
            job = self._jobs.get(name)
            if job is not None:
                with job.lock:
                    job.is_cancelled = True
                    if job.process is not None:
                        _close_input(job.process)
                        if job.state is JobState.PENDING:
                            unbegun.append(job)
        if unbegun:
            timer = threading.Timer(UNBEGUN, self._abandon, (unbegun,))
            timer.daemon = True
            timer.start()

    def describe(self) -> str:
        """The version of ssh, and of how many hosts."""
        try:
            done = subprocess.run([self._options["ssh"], "-V"], capture_output=True, encoding="utf-8", timeout=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WrongSetup(f"cannot run {self._options['ssh']}: {error}") from error
        version = (done.stderr or done.stdout).strip().partition(",")[0]
        return f"{version}, {len(self._hosts)} hosts"

    def preview(self, n: int, template: HostTemplate) -> str:
        """The command for each host, and what runs there."""
        lines = [f"# for each of {n} of these hosts: {' '.join(self._hosts)}", shlex.join(self.command("HOST"))]
        return "\n".join([*lines, "# which runs there", shlex.join([*template.command, "--job", "HOST#NUMBER"])])

    def close(self) -> None:
        """End all of them; waits until the connections are closed."""
        self.cancel(list(self._jobs))
        deadline = time.monotonic() + self._options["grace"] + 5
        for job in list(self._jobs.values()):
            if job.process is not None:
                _wait(job.process, max(0.0, deadline - time.monotonic()))

    def _first_lines(self, template: HostTemplate) -> str:
        """What the far side reads; the id of the job is put in place of `JOB`."""
        environment, files = dict(template.environment), {}
        key_file = environment.pop(KEY_FILE_VARIABLE, "")
        if key_file:
            try:
                files[KEY_FILE_VARIABLE] = Path(key_file).read_text(encoding="utf-8")
            except OSError as error:
                raise ProviderError(f"the key file cannot be read: {error}") from error
        told = {
            "command": [*template.command, "--job", "JOB"], "environment": environment, "files": files,
            "grace": self._options["grace"], "walltime": template.walltime,
            # an agent that has them does not begin a second time to get them
            "defaults": start_environment.environment({}),
        }  # fmt: skip
        # who has lost the first line to a login script runs the second one
        lost = f"raise SystemExit({EATEN!r})"
        return f"{inspect.getsource(far_side)!r}\n{lost!r}{far_side.TOLD}{json.dumps(told)}\n"

    def _run(self, job: _Started, text: str) -> None:
        """One connection, from its beginning to its end."""
        try:
            with tempfile.TemporaryFile() as complaints:
                code = self._serve(job, text.replace('"JOB"', json.dumps(job.id)), complaints)
                complaints.seek(0)
                lines = complaints.read()[-4096:].decode(errors="replace").splitlines()
        except Exception as error:  # whatever it is: otherwise the host would be in use for good
            code, lines = 255, [str(error)]
            if job.process is not None:  # nobody reads what it says any more
                _close_input(job.process)
                _wait(job.process, self._options["grace"] + 5)
        words = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {code}")
        if job.began is None and not code:
            words = f"its login script ends before Python begins: a line like `exit`, say in ~/.bashrc ({words})"
        elif job.began is None and words.startswith(_READ_BY_OTHERS):
            words = f"{EATEN} ({words})"
        if job.began is not None and code != SSH_FAILED:
            words = job.last_line or f"exit code {code}"
        if job.hung:
            words = f"nothing began there within {job.hung:g} s: its login shell, or a file system, may hang, "
            words += "or a login script reads standard input"
        with job.lock:
            job.ended, job.state = time.monotonic(), JobState.ENDED
            before = self._failed.pop(job.host, (0.0, 0))[1]
            if (code or job.began is None) and not job.is_cancelled:
                job.reason = words
                is_new = job.began is not None and job.ended - job.began > LONGEST_REST
                self._failed[job.host] = job.ended, 1 if is_new else before + 1
                logger.warning("ssh: %s: %s", job.host, words)

    def _serve(self, job: _Started, text: str, complaints: IO[bytes]) -> int:
        """Connect, and read to the end; the exit code of ssh."""
        with self._room:
            is_near = self._connect(job, text, complaints)
        if is_near and job.process is not None and job.process.stdout is not None:
            self._keep_log(job, job.process.stdout)
        return job.process.wait() if job.process is not None else 0

    def _connect(self, job: _Started, text: str, complaints: IO[bytes]) -> bool:
        """Start the far side; whether it has started the agent."""
        with job.lock:
            if job.is_cancelled:
                return False
            process = job.process = subprocess.Popen(
                self.command(job.host), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
                start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        patience = self._options["connect_timeout"] + START
        timer = threading.Timer(patience, self._give_up, (job, process, patience))
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(text.encode())
                process.stdin.flush()
            for line in process.stdout:  # what a login shell says comes first
                if line.startswith(b"near "):
                    with job.lock:
                        job.state, job.began = JobState.RUNNING, time.monotonic()
                    return not job.hung
            return False
        finally:
            timer.cancel()

    def _give_up(self, job: _Started, process: subprocess.Popen[bytes], patience: float) -> None:
        """Nothing has begun over there for so long."""
        with job.lock:
            if job.state is JobState.PENDING:
                job.hung = patience
                _kill(process)

    def _abandon(self, jobs: Sequence[_Started]) -> None:
        """Nobody wants them any more: end those over which nothing has begun yet."""
        for job in jobs:
            with job.lock:
                if job.state is JobState.PENDING and job.process is not None:
                    _kill(job.process)

    def _keep_log(self, job: _Started, lines: IO[bytes]) -> None:
        """Read what the agent says, to its end; with the option `log` it is kept, each line with the host's name."""
        path = self._options["log"]
        with open(path or os.devnull, "ab", buffering=0) as log:
            for line in lines:
                log.write(job.host.encode() + b": " + line)
                job.last_line = line[-300:].decode(errors="replace").strip() or job.last_line


def _again_at(failed: float, times: int) -> float:
    """When a host may be tried again that has failed so often in a row."""
    return failed + growing_pause(times, REST, LONGEST_REST)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for its end; kill it after so many seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End ssh, with those that it goes through."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        assert process.stdin is not None
        process.stdin.close()
