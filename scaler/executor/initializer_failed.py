"""What an executor raises that is of no use any more: apart, as what it derives from loads all of `multiprocessing`."""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from typing import Any


class InitializerFailed(BrokenProcessPool):
    """The executor's initializer has raised in a worker, and the executor is of no use any more: make a new one.

    `key` tells the executors apart, `remote_traceback` is the text of the worker's traceback.
    """

    def __init__(self, message: str = "", key: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.key, self.remote_traceback)
