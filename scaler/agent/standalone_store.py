"""The program of the standalone store: an agent without workers that ends with the scheduler that started it."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

from scaler.agent.daemon import Daemon
from scaler.agent.host_store import HostStore
from scaler.agent.limits import limits_of
from scaler.common import log_lines
from scaler.common.host_memory import available_memory
from scaler.common.long_lived import collect_rarely, keep_little_memory
from scaler.common.unexpected_end import told_in_log
from scaler.config import AgentConfig
from scaler.errors import AddressInUse
from scaler.transport import Address, Security, load_or_create

logger = logging.getLogger("scaler.agent")

#: percent of the memory that the host has or its container allows; an agent with workers may be on the same host
SHARE = 30


def main(options: dict[str, Any]) -> None:
    """Serve until standard input ends.

    `address`: of the scheduler, as this process reaches it. `bind`: the host it listens on, and so will the store, at
    `port`. `max_message_bytes` and `log_level`: as for the scheduler. The keys come in the environment.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the scheduler's to handle
    keep_little_memory()
    log_lines.set_up(options["log_level"])
    config = AgentConfig(
        options["address"], name=f"store of {os.uname().nodename}", max_message_bytes=options["max_message_bytes"],
        memory_limit=available_memory() * SHARE // 100,
    )  # fmt: skip
    security = Security.from_env(os.environ) or load_or_create()
    store = HostStore(limits_of(config).objects_soft, port=options["port"])
    try:
        store.open(security, Address(options["bind"], 0), on_its_host=True)
        daemon = Daemon(config, Address.parse(config.address), security, None, store)
    except AddressInUse as error:
        store.close()
        logger.error("the standalone store can't listen: %s (--standalone-store-port)", error)
        raise SystemExit(1) from error
    except BaseException:
        store.close()
        raise
    daemon.loop.watch_with(sys.stdin.fileno(), daemon.loop.stop)
    daemon.loop.on_signal(signal.SIGINT, lambda: None)
    collect_rarely()
    with told_in_log("ClusterProcess: the store"):
        daemon.run()
    if daemon.failure is not None:
        logger.error("%s", daemon.failure)
