"""The line of a program that names the engine, and what it is under each engine."""

from __future__ import annotations

from pathlib import Path

PROGRAMS = ("tutorial", "incremental", "features", "climate", "images")

_CLIENT = "from dask.distributed import "
_SCHEDULER = 'dask.config.set(scheduler="threads")'

#: the engine that the others are compared with
REFERENCE = "threads"
#: by engine, what takes the place of the one or the other; where it is missing, such programs can't run there
ENGINES: dict[str, dict[str, str]] = {
    "scaler": {
        _CLIENT: "from scaler_dask import ",
        _SCHEDULER: "import scaler_dask; dask.config.set(scheduler=scaler_dask.scaler_get)",
    },
    "scaler-client": {_SCHEDULER: "import scaler_dask; scaler_dask.Client(n_workers=2)"},
    "threads": {_CLIENT: "from compat_tests.programs.threads import ", _SCHEDULER: _SCHEDULER},
    "processes": {_SCHEDULER: 'dask.config.set(scheduler="processes")'},
    "distributed": {
        _CLIENT: _CLIENT,
        _SCHEDULER: "import dask.distributed; dask.distributed.Client(n_workers=2, threads_per_worker=1)",
    },
}


def source(program: str, engine: str) -> str | None:
    """The text of a program under an engine, or None if it can't run there. ValueError if not one line names it."""
    text = Path(__file__).with_name(f"{program}.py").read_text()
    found = [line for line in (_CLIENT, _SCHEDULER) for _ in range(text.count(line))]
    if len(found) != 1:
        raise ValueError(f"{program}.py names its engine {len(found)} times: it has to be once")
    line = ENGINES[engine].get(found[0])
    return text.replace(found[0], line) if line is not None else None
