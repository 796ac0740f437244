"""Starting the process of a local cluster as a fork of the program, while that has done nothing but import packages.

A program that begins its cluster at the end of its imports has loaded what its tasks need a moment ago. A fork of it
has that at once; a fresh interpreter would load it all again, which takes as long as it took the program. At that
time, and no later, a fork is what the fresh interpreter would become:

- the program's script has executed imports alone, of packages that are installed: there are no values, settings or
  connections of the program's own;
- the process has one thread, so nobody holds a lock; threads that do not matter are those of `warm_process`;
- what libraries have read of the environment can be put right, or they have read nothing (`_SETTLED`).

If any of that does not hold, nothing is forked, and a fresh interpreter does it (`spawning`).
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import fcntl
import importlib.util
import os
import signal
import socket
import sys
import traceback
import types
from collections.abc import Mapping

from scaler.agent.warm_process import can_warm, fork, is_alone
from scaler.cluster.loaded_modules import is_installed
from scaler.common import standard_descriptors
from scaler.common.interrupts import interrupts_blocked
from scaler.worker.native_threads import VARIABLES

#: packages that have read at their import how many threads they may start, or whose state does not bear a fork
_SETTLED = frozenset(
    "cudf cupy grpc h5py jax jaxlib mpi4py netCDF4 numba numexpr polars rmm tensorflow torch ucp".split()  # noqa: SIM905
)
#: where the standard library is
_STANDARD = os.path.dirname(os.__file__) + os.sep
#: their own state is known
_OURS = frozenset({"scaler", "scaler_dask"})


class ForkedProcess:
    """A child of this process, with as much of `subprocess.Popen` as is needed of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: exit code once it was seen to have ended; negative for a signal
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if it has ended. Does not block."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """The exit code; blocks until it has ended."""
        code = self._reap(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """Kill it, unless it was seen to have ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # somebody else has reaped it
                self.returncode = 0
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def may_fork(modules: Mapping[str, types.ModuleType] | None = None) -> bool:
    """Say whether a fork of this process is what a fresh interpreter with the same modules would be."""
    modules = dict(sys.modules) if modules is None else modules
    return (
        can_warm()
        and not _is_monitored()
        and not _holds_files()
        and _SETTLED.isdisjoint(modules)
        and ("numpy" not in modules or _threads_can_be_set())
        and _has_only_imported(modules)
        and is_alone()
    )


def fork_off(module: str) -> tuple[socket.socket, ForkedProcess]:
    """A fork of this process that runs `main` of this module, with the number of a socket; the socket's other end."""
    standard_descriptors.occupy()
    ours, theirs = socket.socketpair()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with interrupts_blocked():
        pid = fork()
        if pid == 0:
            _be(module, ours, theirs)
    theirs.close()
    return ours, ForkedProcess(pid)


def _be(module: str, ours: socket.socket, theirs: socket.socket) -> None:
    code = 1
    try:
        ours.close()
        _leave_the_program(theirs.fileno())
        importlib.import_module(module).main(theirs.detach())
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(code)


def _leave_the_program(kept: int) -> None:
    """In the child: be what a fresh interpreter would be, but for the modules."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    atexit._clear()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    standard_descriptors.complete()
    sys.argv[:] = ["-c"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    # Modules whose import is under way here will not be finished; their locks are held by this thread for ever.
    locks = getattr(importlib._bootstrap, "_module_locks", {})
    for name, loaded in list(sys.modules.items()):
        if getattr(getattr(loaded, "__spec__", None), "_initializing", False):
            del sys.modules[name]
            locks.pop(name, None)


def _is_monitored() -> bool:
    """Say whether a debugger, a profiler or a tracer looks on."""
    monitoring = getattr(sys, "monitoring", None)  # since 3.12
    return (
        sys.gettrace() is not None
        or sys.getprofile() is not None
        or (monitoring is not None and any(monitoring.get_tool(number) is not None for number in range(6)))
    )


def _holds_files() -> bool:
    """Say whether a package has opened something at its import, and keeps it: a child closes what it has not opened.

    What the process was started with is no package's: that is not closed when a program is executed.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the directory itself is closed by now
            if fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                return True
    return False


def _threads_can_be_set() -> bool:
    """Say whether libraries can still be told how many threads they may use: NumPy's has begun with one for each core.

    It can't be said for the user who has said something else.
    """
    return importlib.util.find_spec("threadpoolctl") is not None and not any(name in os.environ for name in VARIABLES)


def _has_only_imported(modules: Mapping[str, types.ModuleType]) -> bool:
    for name, module in modules.items():
        package = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if file is None or package in _OURS or name in ("__main__", "__mp_main__"):
            continue
        if not (is_installed(file) or file.startswith(_STANDARD)):
            return False
    main = modules["__main__"]
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None:
        return False
    try:
        with open(str(main.__file__), "rb") as source:
            return only_imports(source.read(), frame.f_lineno)
    except (OSError, SyntaxError, ValueError):
        return False


def only_imports(source: bytes, line: int) -> bool:
    """Say whether a module executes nothing but imports up to the statement at this line, and that is one.

    >>> only_imports(b'"Text"\\nimport os\\nimport sys\\nx = 1', 3), only_imports(b"x = 1\\nimport os", 2)
    (True, False)
    """
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if statement.lineno <= line <= (statement.end_lineno or line):
                return True
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return False
    return False
