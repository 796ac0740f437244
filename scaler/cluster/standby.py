"""A local cluster's process that is begun before the program asks for a cluster: it loads modules meanwhile.

    import of scaler_dask ──begin──► process ──► zygote ──► warm process: loads what the program has loaded
    first local cluster   ──take───► the same process: scheduler, agent, workers

A program that has done nothing but import packages is forked (`forking`): it has them loaded already.
Only for a script on a host with several processors: whoever sits at a prompt or a notebook is slower than the loading.
It is taken if all is still as it was begun: the environment, the directory, the path, the packages. Otherwise, and if
nobody takes it within a minute, it ends, and a cluster has a process of its own. None is begun in a program that has
connected to a cluster already, or started one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from typing import Any, NamedTuple

from scaler.cluster.forking import ForkedProcess, fork_off, may_fork
from scaler.cluster.loaded_modules import is_installed, needed_by_tasks
from scaler.cluster.spawning import spawn
from scaler.common import advance, start_environment
from scaler.common.processors import available_cores


class Standby(NamedTuple):
    """The process, a socket to it that waits to be told what is wanted, and what it was begun with."""

    socket: socket.socket
    process: subprocess.Popen[bytes] | ForkedProcess
    owner: int
    surroundings: tuple[Any, ...]
    packages: frozenset[str]

    @property
    def serves(self) -> bool:
        """It lives, and a cluster that is started now would begin with the same."""
        return (
            self.owner == os.getpid()
            and self.process.poll() is None
            and self.surroundings == _surroundings()
            and self.packages >= _packages(needed_by_tasks())
        )

    @property
    def hashes_as_elsewhere(self) -> bool:
        """Its workers' `hash()` of strings is that of other agents, which may join: a fork has the program's."""
        return not isinstance(self.process, ForkedProcess) or start_environment.hashes_as_elsewhere()

    def end(self) -> None:
        """See `Advance`."""
        self.socket.close()
        if self.owner == os.getpid():
            self.process.kill()  # what it has started ends with it
            self.process.wait()


def begin(n_workers: int | None = None, package: str | None = None) -> None:
    """Begin the process of this program's first local cluster, with so many workers, if that may be of use.

    Its workers will need this `package`, and what the program has named. Does not block. To be called while a module
    is imported: it does nothing in a process with a prompt, in workers, and in children of `multiprocessing`.
    """
    if advance.is_late() or available_cores() == 1 or not _is_script():
        return
    names = needed_by_tasks(named=[package] if package else [])
    if not names:
        return
    with contextlib.suppress(OSError):
        is_fork = may_fork()
        ours, process = (fork_off if is_fork else spawn)("scaler.cluster.standby_process")
        packages = _packages([*names, *sys.modules] if is_fork else names)
        advance.begin(Standby(ours, process, os.getpid(), _surroundings(), packages))
        ours.sendall(json.dumps({"workers": n_workers, "warm_modules": names}).encode() + b"\n")


def _is_script() -> bool:
    """Say whether this process runs a file of the user's, not a prompt, a program that is installed, or a child."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    multiprocessing = sys.modules.get("multiprocessing")
    return (
        isinstance(file, str)
        and not is_installed(file)
        and not file.startswith(os.path.join(sys.prefix, "bin"))
        and not (sys.flags.interactive or hasattr(sys, "ps1"))
        and (multiprocessing is None or multiprocessing.parent_process() is None)
    )


def _surroundings() -> tuple[Any, ...]:
    """What workers are given of this process."""
    return dict(os.environ), os.getcwd(), tuple(sys.path)


def _packages(names: list[str]) -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in names)
