"""What runs on a host that was reached by ssh: it starts the agent, and ends it when the connection ends.

It travels as text, so it imports the standard library alone, and runs on any Python 3.7 or newer. Standard input brings
it, then a line with JSON, then nothing until its end: of the connection, or of the program at the near side, however
that came about. `near` is said on standard output when the agent begins.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

PREFIX = "scaler-ssh-"
#: what is behind it in the second line of input is what the near side tells
TOLD = "  # told: "
_PR_SET_PDEATHSIG = 1
#: by the far side: the end of input is what ends it
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)


def clean_up() -> None:
    """Remove what others of this user left that were killed on this host; other hosts may share the directory."""
    root = tempfile.gettempdir()
    for name in os.listdir(root):
        pid, _, host = name[len(PREFIX) :].rpartition("-")[0].partition("-")
        is_of_this_host = name.startswith(PREFIX) and host == os.uname().nodename
        path = os.path.join(root, name)
        if is_of_this_host and pid.isdigit() and not os.path.exists("/proc/" + pid):
            with contextlib.suppress(OSError):
                if os.lstat(path).st_uid == os.getuid():
                    shutil.rmtree(path)


def program(name: str) -> str | None:
    """The agent's program: where the near side has it, beside this interpreter, or on the path."""
    bare = os.path.basename(name)
    for path in (name, os.path.join(os.path.dirname(sys.executable), bare)):
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return shutil.which(bare)


def begin_as_usual() -> None:
    """In the child: heed signals as any program, and be told to end when this process is killed.

    That it is near is said here, since what it says itself comes after that.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.write(1, f"near {os.uname().nodename} {os.getpid()}\n".encode())


def run(told: dict[str, Any]) -> int:
    """Run the agent until it ends, or input does; what ssh returns then."""
    clean_up()
    found = program(told["command"][0])
    host = os.uname().nodename
    if found is None:
        name = os.path.basename(told["command"][0])
        sys.stderr.write(f"there is no {name} on {host} for {sys.executable}: name the Python that has it\n")
        return 127
    directory = tempfile.mkdtemp(prefix=PREFIX + str(os.getpid()) + "-" + host + "-")
    try:
        environment = dict(told["defaults"], **os.environ)
        environment.update(told["environment"])
        for variable, text in told["files"].items():
            path = os.path.join(directory, variable)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            environment[variable] = path
        try:
            agent = subprocess.Popen(
                [found, *told["command"][1:]], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True, preexec_fn=begin_as_usual,
            )  # fmt: skip
        except OSError as error:
            sys.stdout.write(f"{found} can't be run: {error.strerror}\n")
            return 126
        threading.Thread(target=end_after_input, args=(agent, told["grace"], told["walltime"]), daemon=True).start()
        code = agent.wait()
        return code if code >= 0 else 128 - code
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def end_after_input(agent: subprocess.Popen[bytes], grace: float, walltime: float | None) -> None:
    """Wait for the end of input, or of the host's time; then end the agent, at the latest after `grace` seconds."""
    reader = threading.Thread(target=sys.stdin.read, daemon=True)
    reader.start()
    reader.join(walltime)
    agent.terminate()
    try:
        agent.wait(grace)
    except subprocess.TimeoutExpired:
        agent.kill()


def main() -> None:
    """The rest of the first line of input has been run, and was this."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    told = json.loads(sys.stdin.readline().partition(TOLD)[2])
    code = run(told)
    sys.stdout.flush()
    os._exit(code)  # the thread that reads would be waited for
