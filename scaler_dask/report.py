"""What a client can tell of the tasks that were submitted within a context: their times, and a page with them."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaler_dask.current_client import get_client
from scaler_dask.task_stream import TaskStream


@contextlib.contextmanager
def get_task_stream(client: Any = None, plot: bool = False, filename: str = "") -> Iterator[TaskStream]:
    """Note the futures that are submitted within this context, and when they end: what it gives has `records()`.

    Of `client`, or else of the one that `get_client` finds, which may block and raises like it. `plot` and `filename`
    are ignored.
    """
    with (client or get_client()).recorded() as stream:
        yield stream


@contextlib.contextmanager
def performance_report(filename: str = "scaler-report.html", **ignored: Any) -> Iterator[None]:
    """Write a page (HTML) of the tasks that were submitted as futures within this context, with their times.

    Of the client that `get_client` finds, which may block and raises like it; raises OSError if the file can't be
    written. Other arguments are ignored.
    """
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
            f"<td>{record['begun'] - began:.3f}</td><td>{took}</td><td>{html.escape(record['error'])}</td></tr>"
        )
    return (
        "<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>Scaler report</title></head><body>\n"
        f"<h1>Report</h1>\n<p>{html.escape(client)}: {len(records)} tasks in {ended - began:.3f} s.</p>\n"
        "<p>Times are the client's, in seconds: from submitting a task to hearing of its end.</p>\n"
        "<table border='1'><tr><th>key</th><th>status</th><th>submitted after</th><th>took</th>"
        "<th>error</th></tr>\n" + "\n".join(rows) + "\n</table></body></html>\n"
    )
