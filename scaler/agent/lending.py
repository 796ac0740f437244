"""What an agent's options lend its workers, and how many threads libraries may start there.

NumPy's BLAS, OpenMP, Numba, Polars and others start a thread for each core of the host unless a variable says
otherwise, and they read it once, when they are loaded. In n workers that would be n threads for each core. So the
variables are set where workers come from, before anything is loaded there. Rows that take several slots get more:
`scaler.worker.native_threads`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from scaler.agent.worker_processes import WorkerOptions
from scaler.common import start_environment
from scaler.config import AgentConfig
from scaler.worker.native_threads import LIKE_OPENMP, OPENMP, VARIABLES


def lent_to_workers(config: AgentConfig) -> WorkerOptions:
    """What workers are to begin with."""
    return WorkerOptions(
        environ=environment(config, start_environment.for_tasks(os.environ)),
        warm_modules=config.warm_modules, spill_directory=config.spill_directory,
    )  # fmt: skip


def environment(config: AgentConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an agent's workers, made of the agent's own.

    The option `worker_threads` goes before all that the environment says; what follows from the number of workers
    goes after it.

    >>> made = environment(AgentConfig("tcp://head:2345", worker_threads=4), {"MKL_NUM_THREADS": "16"})
    >>> made["OMP_NUM_THREADS"], made["MKL_NUM_THREADS"]
    ('4', '4')
    """
    names = VARIABLES
    if config.worker_threads is None:
        follow = LIKE_OPENMP if OPENMP in environ else ()  # as the user said it for OpenMP
        names = tuple(name for name in names if name not in environ and name not in follow)
    return {**environ, **dict.fromkeys(names, str(config.native_threads))}
