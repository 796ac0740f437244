"""The process of a local cluster: scheduler and agent in one. It ends with the program that started it."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
from typing import Any

from scaler.agent.core.agent_core import AgentCore
from scaler.agent.core.events import ShowOutput
from scaler.agent.host_store import HostStore, store_context
from scaler.agent.limits import limits_of
from scaler.agent.shell import EXTRA_SLOTS, AgentShell
from scaler.agent.validating import ValidatingCore
from scaler.agent.worker_processes import Zygote
from scaler.cluster.local_agent import LocalAgentShell
from scaler.common import log_lines
from scaler.config import AgentConfig, SchedulerConfig, from_plain_values
from scaler.protocol.codes import STDOUT, Role
from scaler.protocol.hello import hello_of
from scaler.scheduler.composition import LOCAL_AGENT
from scaler.scheduler.server import Server
from scaler.serialize.versions import packages
from scaler.transport import Security, listen, load_or_create


def main(fd: int) -> None:
    """Serve the program at the other end of this socket until it closes it."""
    program = socket.socket(fileno=fd)
    program.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's to handle
    with program.makefile("rb") as lines:
        options = json.loads(lines.readline() or b"{}")
    if not options:
        return
    try:
        config = from_plain_values(SchedulerConfig, options["scheduler"])
        agent_config = from_plain_values(AgentConfig, options["agent"])
        logging.basicConfig(level=config.log_level, format=log_lines.LINE, datefmt=log_lines.TIME)
        zygote = Zygote.start(agent_config.worker_count + EXTRA_SLOTS)
        security = Security.from_env(os.environ) or load_or_create()
        listener = listen(config.address, security, max_message_bytes=config.max_message_bytes)
        limits = limits_of(agent_config)
        store = HostStore(limits.objects_soft, agent_config.spill_directory)
        store.open(security, listener.address, on_its_host=True)
    except Exception as error:
        program.sendall(json.dumps({"error": str(error), "kind": type(error).__name__}).encode() + b"\n")
        return
    server = Server(config, listener, security)
    context = {
        "address": listener.address.for_client().url, "security": security.to_env(),
        "limit": config.max_message_bytes, **store_context(store, limits, agent_config.worker_count),
    }  # fmt: skip

    workers = agent_config.worker_count
    core = AgentCore(workers, limits)
    watched = ValidatingCore(core) if agent_config.validate else core
    shell = AgentShell(watched, zygote, store, server.loop, context, print_output)
    capabilities = agent_config.capabilities
    hello = hello_of(Role.AGENT, "local", LOCAL_AGENT, workers, capabilities, shell.store, packages())
    server.host_agent(LocalAgentShell(shell), hello)
    server.loop.watch_with(program.fileno(), server.loop.stop)
    server.loop.on_signal(signal.SIGINT, lambda: None)
    program.sendall(json.dumps({"address": listener.address.url}).encode() + b"\n")
    gc.freeze()
    gc.set_threshold(50_000)
    server.run()


def print_output(output: ShowOutput) -> None:
    """What a task prints appears where the program's own output does."""
    stream: Any = sys.stdout if output.stream == STDOUT else sys.stderr
    try:
        stream.write(output.text)
        stream.flush()
    except (OSError, ValueError):
        pass  # the program closed its output
