"""What the client has run in workers. Imports neither dask nor anything else that a worker has not got anyway."""

from __future__ import annotations

import inspect
import io
import os
import pickle
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from scaler.extension import forget_run, name_of, run_once

#: seconds for which a worker that was visited keeps still, so that the next visit comes to another one
_REST = 0.02

#: what a worker runs once before tasks: (its key, the pickle of a function without arguments)
Setup = tuple[str, bytes]


def fail(error: BaseException) -> Any:
    """Raise what the value that is wanted has failed with."""
    raise error


def finalize(function: Callable[..., Any], extra: Iterable[Any], parts: Any) -> Any:
    """Make the value of a collection from those of its keys."""
    return function(parts, *extra)


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or if it is an `async def`, one whose value is what that comes to."""
    return _AwaitedFunction(function) if inspect.iscoroutinefunction(function) else function


class _AwaitedFunction:
    """Runs an `async def` in an event loop of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = self.__qualname__ = name_of(function)
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import asyncio  # here, as workers do without

        return asyncio.run(self._function(*args, **kwargs))


class PreparedFunction:
    """A function whose worker runs some setups first, each once. It is unpickled after them."""

    def __init__(self, pickled: bytes, setups: tuple[Setup, ...], name: str) -> None:
        self._pickled = pickled
        self._setups = setups
        self.__name__ = self.__qualname__ = name
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run_setups(self._setups)
        return pickle.loads(self._pickled)(*args, **kwargs)


def run_setups(setups: Iterable[Setup]) -> None:
    """Run the setups that have not been run here. Raises what they raise, and then runs them again next time."""
    for key, pickled in setups:
        run_once(key, _call_pickled, pickled)


def _call_pickled(pickled: bytes) -> Any:
    return pickle.loads(pickled)()


def run_teardown(key: str, teardown: Callable[[], Any]) -> None:
    """Undo the setup of this key, if it was run here."""
    if forget_run(key):
        run_once(key, teardown)  # what it changes lasts, too
        forget_run(key)


def worker_name() -> str:
    """The name that this worker goes by: its host and process."""
    return f"{platform.node()}:{os.getpid()}"


class VisitFailed(Exception):
    """The function has raised what is the cause of this, whose text is the worker's name."""


class Visit:
    """Runs a function unless this worker has been visited: (worker, value). Raises `VisitFailed`, once."""

    def __init__(self, key: str, pickled: bytes, name: str) -> None:
        self._key = key
        self._pickled = pickled
        self.__qualname__ = name
        self.__module__ = None  # type: ignore[assignment]  # it is part of the name

    def __call__(self) -> tuple[str, Any] | None:
        values: list[Any] = []
        errors: list[Exception] = []

        def call() -> None:
            try:
                values.append(_call_pickled(self._pickled))
            except Exception as error:
                errors.append(error)

        run_once(self._key, call)
        time.sleep(_REST)
        if errors:
            raise VisitFailed(worker_name()) from errors[0]  # what is raised travels better than what is returned
        return (worker_name(), values[0]) if values else None


class WorkerHandle:
    """What a plugin's `setup`, and a function's `dask_worker`, is given in the place of a worker."""

    def __init__(self) -> None:
        self.name = self.address = self.id = worker_name()
        self.local_directory = tempfile.gettempdir()


def with_worker(function: Callable[..., Any]) -> Any:
    """Call a function that wants to know its worker."""
    return function(dask_worker=WorkerHandle())


class PluginCall:
    """Calls a plugin's method, if it has it, with this worker."""

    def __init__(self, plugin: Any, method: str) -> None:
        self._plugin = plugin
        self._method = method

    def __call__(self) -> Any:
        method = getattr(self._plugin, self._method, None)
        return awaited(method)(WorkerHandle()) if method is not None else None


class FileUpload:
    """Puts a file where this worker can import it from: in memory where `memfd_create` is, so that none is left."""

    def __init__(self, name: str, content: bytes) -> None:
        self._name = name
        self._archive = content if Path(name).suffix in (".egg", ".zip", ".pyz") else _zipped(name, content)

    def __call__(self) -> str:
        if hasattr(os, "memfd_create"):
            file = os.memfd_create(self._name)
            path = f"/proc/self/fd/{file}"
        else:
            file, path = tempfile.mkstemp(prefix="scaler-upload-", suffix=".zip")
        with open(file, "wb", closefd=False) as written:  # it stays open: the path is its descriptor
            written.write(self._archive)
        sys.path.insert(0, path)
        for module in [module for module in sys.modules if module.partition(".")[0] == Path(self._name).stem]:
            del sys.modules[module]  # an older one of this name
        return path


def _zipped(name: str, content: bytes) -> bytes:
    import zipfile  # here, as workers do without

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr(name, content)
    return archive.getvalue()


def versions() -> dict[str, Any]:
    """What runs here: Python, the host, and the versions of the packages that have to agree."""
    from importlib import metadata

    packages: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info))}
    for package in ("scaler", "dask", "cloudpickle", "numpy", "pandas", "pyarrow"):
        try:
            packages[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            packages[package] = None
    uname = os.uname()
    host = {"OS": uname.sysname, "OS-release": uname.release, "machine": uname.machine, "python-bits": 64}
    return {"host": host, "packages": packages}
