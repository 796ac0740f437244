"""The process of a local cluster: scheduler and agent in one. It ends with the program that started it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaler import defaults
from scaler.agent.core.events import ShowOutput
from scaler.agent.host_store import HostStore, store_context
from scaler.agent.later import LATER
from scaler.agent.lending import lent_to_workers
from scaler.agent.limits import limits_of
from scaler.agent.orders import SOCKETS
from scaler.agent.shell import AgentShell, core_of
from scaler.agent.worker_processes import EXTRA_SLOTS, Zygote, check_descriptors
from scaler.cluster.early_zygote import EarlyZygote
from scaler.cluster.local_agent import LocalAgentShell
from scaler.common import log_lines
from scaler.common.log_handlers import to_file, to_stream
from scaler.common.long_lived import keep_little_memory
from scaler.common.process_limits import limit_for, words_of
from scaler.common.program_socket import program_at
from scaler.common.unexpected_end import told_in_log
from scaler.config import AgentConfig, SchedulerConfig, from_checked_values
from scaler.errors import ScalerError
from scaler.protocol.codes import STDOUT, Role
from scaler.protocol.hello import hello_of
from scaler.scheduler.composition import LOCAL_AGENT
from scaler.scheduler.server import Server, open_server
from scaler.serialize.versions import packages
from scaler.transport import Address, Security, exposure, load_or_create

#: descriptors of this process beside its workers' sockets, when its first client has come and all is loaded
_OTHERS = 32


def main(fd: int) -> None:
    """Serve the program at the other end of this socket until it closes it."""
    with program_at(fd) as program:
        serve(program)


def serve(program: socket.socket, early: EarlyZygote | None = None) -> None:
    """Serve a program that is going to say what it wants, with a zygote that is there already or another one."""
    with program.makefile("rb") as lines:
        options = json.loads(lines.readline() or b"{}")
    if not options:
        return
    try:
        os.environ.update(options["environment"])  # for whatever tasks start
        config = from_checked_values(SchedulerConfig, options["scheduler"])
        agent_config = from_checked_values(AgentConfig, options["agent"])
        set_up_log(config.log_level, **options["log"])
        workers = agent_config.worker_count
        check_descriptors(workers, limit_for(workers * SOCKETS + _OTHERS))
        lent = lent_to_workers(agent_config)
        zygote = early.take(agent_config, lent) if early is not None else None
        if zygote is None:
            zygote = Zygote.start(workers + EXTRA_SLOTS, lent)
        keep_little_memory()
        security = Security.from_env(os.environ) or load_or_create()
        exposed = exposure(security, Address.parse(config.address), is_said=False)
        if exposed is not None:
            logging.getLogger(__name__).warning("%s", exposed)
        limits = replace(limits_of(agent_config), message=config.max_message_bytes)
        server = open_server(config, security)
        store = _open_store(server, agent_config, limits.objects_soft, security)
    except Exception as error:
        with contextlib.suppress(OSError):  # the program is gone
            program.sendall(json.dumps({"error": words_of(error), "kind": type(error).__name__}).encode() + b"\n")
        return
    context = {
        "address": server.address.for_client().url, "security": security.to_env(),
        "limit": config.max_message_bytes, "preload": agent_config.preload,
        "authkey": bytes.fromhex(options["authkey"]), "arguments": options["arguments"],
        **store_context(store, limits, workers),
    }  # fmt: skip

    core = core_of(workers, limits, agent_config.validate, may_return=False)
    shell = AgentShell(core, zygote, store, server.loop, context, print_output)
    capabilities = agent_config.capabilities
    hello = hello_of(Role.AGENT, "local", LOCAL_AGENT, workers, capabilities, store.hello, packages())
    server.host_agent(LocalAgentShell(shell), hello, LATER)
    with told_in_log("the local cluster"):
        server.serve(program)


def _open_store(server: Server, config: AgentConfig, limit: int, security: Security) -> HostStore:
    """The store of this host, for `limit` bytes in memory. If there can be none the server is closed."""
    with contextlib.ExitStack() as opened:
        opened.callback(server.close)
        try:
            store = HostStore(limit, config.spill_directory, config.store_port)
        except OSError as error:
            raise ScalerError(f"no store can be made: {words_of(error)}") from error
        opened.callback(store.close)
        store.open(security, server.address, on_its_host=True)
        opened.pop_all()
    return store


def set_up_log(level: str, paths: Sequence[str] = (), config_file: str | None = None) -> None:
    """The log goes to these files, or where a file of `logging.config` says; to standard error by default.

    Raises OSError, and what `logging.config.fileConfig` raises.
    """
    if config_file is not None:
        from logging import config

        config.fileConfig(config_file, disable_existing_loggers=False, encoding="utf-8")
        return
    handlers = [to_stream(sys.stdout) if path == defaults.LOG_PATH else to_file(path) for path in paths]
    log_lines.set_up(level, *handlers)


def print_output(output: ShowOutput) -> None:
    """What a task prints appears where the program's own output does, unless its client is told and prints it there."""
    if output.is_told:
        return
    stream: Any = sys.stdout if output.stream == STDOUT else sys.stderr
    try:
        stream.write(output.text)
        stream.flush()
    except (OSError, ValueError):
        pass  # the program closed its output
