"""The provisioner of a `Cluster`: a process that ends with its program, and takes all jobs along."""

from __future__ import annotations

import json
import signal
import socket
import threading
from dataclasses import asdict, replace

from scaler.common import log_lines
from scaler.common.program_socket import program_at
from scaler.common.unexpected_end import told_in_log
from scaler.config import ProvisionConfig, from_plain_values
from scaler.provisioning.core import events as ev
from scaler.provisioning.provider import ProviderError
from scaler.provisioning.provisioner import Provisioner
from scaler.provisioning.registry import make_provider
from scaler.transport import Security


def main(fd: int) -> None:
    """Serve the program at the other end of this socket until it closes it."""
    with program_at(fd) as program:
        _serve(program)


def _serve(program: socket.socket) -> None:
    for number in (signal.SIGHUP, signal.SIGQUIT):  # they are the program's, too: this lives until its jobs have ended
        signal.signal(number, lambda *_: None)
    lines = program.makefile("rb")
    options = json.loads(lines.readline() or b"{}")
    if not options:
        return
    try:
        config = from_plain_values(ProvisionConfig, options["config"])
        log_lines.set_up(config.log_level)
        security = Security.from_env(options["security"])
        assert security is not None
        # jobs are told the name of the key's file, if it has one: others see the environment of jobs in some systems
        security = replace(security, origin=options["origin"])
        provider = make_provider(config.provider, options["options"])
        described = provider.describe()
    except Exception as error:
        kind = next((each for each in (ProviderError, ImportError) if isinstance(error, each)), type(error)).__name__
        program.sendall(json.dumps({"error": str(error), "kind": kind}).encode() + b"\n")
        return

    def say(status: ev.Status) -> None:
        try:
            program.sendall(json.dumps(asdict(status)).encode() + b"\n")
        except OSError:
            pass  # the program has ended, which is seen elsewhere

    def listen() -> None:
        try:
            for line in lines:
                minimum, maximum = json.loads(line)["adapt"]
                provisioner.tell(ev.Adapt(minimum, maximum))
        except OSError:
            pass
        provisioner.tell(ev.End())

    provisioner = Provisioner(config, provider, security, is_new=options["is_new"], on_status=say)
    signal.signal(signal.SIGTERM, lambda number, frame: provisioner.tell(ev.End()))
    program.sendall(json.dumps({"provider": described}).encode() + b"\n")
    threading.Thread(target=listen, name="scaler-program", daemon=True).start()
    with told_in_log("Provisioner: it"):
        provisioner.run()
