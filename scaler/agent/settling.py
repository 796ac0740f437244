"""How the zygote begins: it leaves the agent's session, files and script behind, and takes what workers are lent."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
import sys
import time
import types
from collections.abc import Mapping, Sequence

from scaler.common.collector import pause_collector
from scaler.common.log_lines import LineFormatter
from scaler.worker.native_threads import share_what_is_loaded
from scaler.worker.task_log import TaskLog


@dataclasses.dataclass(frozen=True)
class WorkerOptions:
    """What a user's program lends its workers; None leaves what the agent has."""

    sys_path: Sequence[str] | None = None
    cwd: str | None = None
    environ: Mapping[str, str] | None = None
    #: modules that a warm process shall load, in this order
    warm_modules: Sequence[str] = ()
    #: where the agent moves objects to, which are removed when it is killed; None: where temporary files are
    spill_directory: str | None = None
    #: nobody has asked for the cluster yet: the program is all that loading could disturb
    is_early: bool = False


def _leave_log() -> None:
    """What tasks log goes where they print, and the rest to a standard stream: files of a log are closed."""
    root = logging.getLogger()
    root.handlers[:] = [left for each in root.handlers if (left := _left_of(each)) is not None]


def _left_of(handler: logging.Handler) -> logging.Handler | None:
    """What workers have of a handler of the agent; those that a user has made stay as they are."""
    is_of_file = _is_of_file(handler)
    if not isinstance(handler.formatter, LineFormatter):
        return None if is_of_file else handler
    assert logging.lastResort is not None
    return TaskLog(logging.lastResort if is_of_file else handler)


def _is_of_file(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    try:
        return stream is not None and stream.fileno() > 2
    except (OSError, ValueError):
        return False


def leave_session() -> None:
    """Hear no signals that are the agent's: of its terminal, and of who ends its group."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)


def settle_in(agent: socket.socket, options: WorkerOptions) -> None:
    """Leave the agent's files and script behind; its session is left. What workers share has been loaded."""
    os.closerange(3, agent.fileno())
    os.closerange(agent.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    _leave_log()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    for number in (1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    if null > 2:
        os.close(null)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as there are workers
    atexit._clear()  # of the agent; what modules add from now on workers do
    sys.modules["__main__"] = types.ModuleType("__main__")
    if options.environ is not None:
        os.environ.clear()
        os.environ.update(options.environ)
        time.tzset()
        share_what_is_loaded()
    if options.cwd is not None:
        with contextlib.suppress(OSError):
            os.chdir(options.cwd)
    if options.sys_path is not None:
        sys.path[:] = options.sys_path
    # Workers share the memory of what is here now, and nothing here is ever collected.
    gc.collect()
    pause_collector()
    gc.freeze()
