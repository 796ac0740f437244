"""What a client can tell of its tasks: progress as text, times of tasks, and a page with them."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from scaler_dask.futures import CancelledError, futures_of
from scaler_dask.waiting import wait
from scaler_dask.work import Work

#: characters in a bar
_WIDTH = 40


class TaskStream:
    """Notes when tasks were submitted and when their ends were heard of."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def watch(self, work: Work) -> None:
        """A task was submitted."""
        record = {"key": work.key, "status": "pending", "begun": time.time(), "ended": None}
        with self._lock:
            self._records.append(record)

        def ended() -> None:
            record.update(status=work.status, ended=time.time())

        work.watch(ended)

    def records(self) -> list[dict[str, Any]]:
        """Dicts with key, status, and when it was submitted and ended (seconds since the epoch; None: not yet)."""
        with self._lock:
            return [dict(record) for record in self._records]

    @property
    def data(self) -> list[dict[str, Any]]:
        """The same."""
        return self.records()


@contextlib.contextmanager
def get_task_stream(client: Any = None, plot: bool = False, filename: str = "") -> Iterator[TaskStream]:
    """Note the tasks that are submitted within this context; see `Client.get_task_stream`."""
    from scaler_dask.inside import get_client

    with (client or get_client()).recorded() as stream:
        yield stream


@contextlib.contextmanager
def performance_report(filename: str = "scaler-report.html", **ignored: Any) -> Iterator[None]:
    """Write a page (HTML) of the tasks that were submitted as futures within this context, with their times."""
    from scaler_dask.inside import get_client

    client = get_client()
    began = time.time()
    with client.recorded() as stream:
        yield
    Path(filename).write_text(_page(stream.records(), began, time.time(), repr(client)), encoding="utf-8")


def _page(records: list[dict[str, Any]], began: float, ended: float, client: str) -> str:
    rows = []
    for record in records:
        end = record["ended"]
        took = f"{end - record['begun']:.3f}" if end is not None else ""
        rows.append(
            f"<tr><td>{html.escape(str(record['key']))}</td><td>{record['status']}</td>"
            f"<td>{record['begun'] - began:.3f}</td><td>{took}</td></tr>"
        )
    return (
        "<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>Scaler report</title></head><body>\n"
        f"<h1>Report</h1>\n<p>{html.escape(client)}: {len(records)} tasks in {ended - began:.3f} s.</p>\n"
        "<p>Times are the client's, in seconds: from submitting a task to hearing of its end.</p>\n"
        "<table border='1'><tr><th>key</th><th>status</th><th>submitted after</th><th>took</th></tr>\n"
        + "\n".join(rows)
        + "\n</table></body></html>\n"
    )


def progress(*futures: Any, notebook: Any = None, file: TextIO | None = None, **ignored: Any) -> None:
    """Print a bar of how many futures have ended, until all have. Collections count as their futures. Blocks."""
    handles = futures_of(list(futures))
    out = file or sys.stdout
    began, left = time.monotonic(), handles
    while left:
        _print_bar(len(handles) - len(left), len(handles), began, out)
        with contextlib.suppress(TimeoutError):
            _wait_some(left)
        left = [handle for handle in left if not handle.done()]
    _print_bar(len(handles), len(handles), began, out)
    print(file=out)


def _wait_some(handles: list[Any]) -> None:
    with contextlib.suppress(CancelledError):
        wait(handles, timeout=0.2)


def _print_bar(done: int, total: int, began: float, out: TextIO) -> None:
    share = done / total if total else 1.0
    bar = "#" * int(_WIDTH * share)
    print(f"\r[{bar:<{_WIDTH}}] | {share:4.0%} | {time.monotonic() - began:.1f}s", end="", file=out, flush=True)
