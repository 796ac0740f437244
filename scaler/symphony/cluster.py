"""`scaler_symphony_cluster ADDRESS SERVICE`: the agent whose workers stand for tasks of a Symphony session."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator

from scaler.agent import daemon
from scaler.common.interpreter import command
from scaler.config import AgentConfig, SymphonyConfig
from scaler.errors import ScalerError
from scaler.transport import Address

NO_SOAMAPI = (
    "the module soamapi is not there: it comes with IBM Spectrum Symphony's Python API, whose directory has to be in "
    "PYTHONPATH (source Symphony's profile.platform first)"
)

#: connections of a worker to the session process, its own and one for a word of its row; and descriptors beside those
LINES, OTHERS = 2, 256


class NoSymphony(ScalerError):
    """Symphony's module is missing, or there is no session of the service; the text says which."""


def run(config: SymphonyConfig) -> int:
    """The program; returns the exit code. Raises NoSymphony."""
    if importlib.util.find_spec("soamapi") is None:
        raise NoSymphony(NO_SOAMAPI)
    with _session_process(config) as path:
        return daemon.run(agent_config(config, path))


def agent_config(config: SymphonyConfig, path: str) -> AgentConfig:
    """The options of the agent; its workers hand their rows over at `path`."""
    return AgentConfig(
        config.address,
        workers=config.base_concurrency,
        name=config.name or f"{os.uname().nodename}-{config.service}",
        capabilities=config.capabilities,
        preload=f"scaler.symphony.forwarding:install({path!r})",
        death_timeout=config.death_timeout,
        job=config.job,
        event_loop=config.event_loop,
        heartbeat_interval=config.heartbeat_interval,
        max_message_bytes=config.max_message_bytes,
        key_file=config.key_file,
        insecure=config.insecure,
        validate=config.validate,
        log_level=config.log_level,
        log_path=config.log_path,
    )


@contextlib.contextmanager
def _session_process(config: SymphonyConfig) -> Iterator[str]:
    """Have a session, while the block runs, in a process of its own; the path of its socket."""
    # the path of a socket has 107 bytes, which some directories for temporary files take for themselves
    short = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) <= 70 else "/tmp"
    directory = tempfile.mkdtemp(prefix="scaler-symphony-", dir=short)
    path = os.path.join(directory, "session")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    report, its_report = os.pipe()
    process = subprocess.Popen(
        command("import runpy; runpy.run_module('scaler.cli.symphony_session', run_name='__main__')"),
        stdin=subprocess.PIPE,
        pass_fds=(listener.fileno(), its_report),
        env={**os.environ, "SCALER_SYMPHONY_REPORT": str(its_report)},
        start_new_session=True,  # Ctrl-C in a terminal is the agent's
    )
    os.close(its_report)
    assert process.stdin is not None
    try:
        told = {
            "directory": directory,
            "descriptor": listener.fileno(),
            "host": own_address(config.address),
            "log_level": config.log_level,
            "log_path": config.log_path,
            "descriptors": agent_config(config, path).worker_count * LINES + OTHERS,
            "session": {
                "service": config.service, "user": config.user, "password": config.password,
                "session_type": config.session_type, "session_name": "ScalerSession",
            },
        }  # fmt: skip
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(told).encode() + b"\n")
            process.stdin.flush()
        with open(report, "rb") as said:
            line = said.readline().decode(errors="replace")
        if line != "\n":
            raise NoSymphony(line.strip() or "the process with the Symphony session ended before there was one")
        listener.close()
        yield path
    finally:
        listener.close()
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def own_address(scheduler: str) -> str:
    """This host's address on the way to the scheduler, which containers are told; nothing is sent."""
    host = Address.parse(scheduler).host
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
