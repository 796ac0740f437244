"""What the engine promises, as ratios or values of the figures, and whether a run kept it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.report import Report


@dataclass(frozen=True)
class Target:
    text: str
    #: of a report; None if it was not measured
    value: Callable[[Report], float | None]
    limit: float
    #: what we would like: printed beside it, no target
    aim: float | None = None
    #: the value has to be at least the limit; otherwise at most
    at_least: bool = True
    form: str = "{:,.0f}×"

    def met(self, value: float) -> bool:
        """It keeps the promise."""
        return value >= self.limit if self.at_least else value <= self.limit


def _ratio(figure: str, engine: str) -> Callable[[Report], float | None]:
    return lambda report: report.ratio(figure, engine)


def _value(figure: str, engine: str = "scaler") -> Callable[[Report], float | None]:
    return lambda report: report.value(figure, engine)


def _relative(figure: str, engine: str, base: str, of: str | None = None) -> Callable[[Report], float | None]:
    def quotient(report: Report) -> float | None:
        mine, theirs = report.value(figure, engine), report.value(of or figure, base)
        return mine / theirs if mine is not None and theirs else None

    return quotient


def _left_over(report: Report) -> float | None:
    after, empty = report.value("memory_after", "daemons"), report.value("memory_empty", "daemons")
    return after - empty if after is not None and empty is not None else None


def _at_most(
    text: str, value: Callable[[Report], float | None], limit: float, form: str, aim: float | None = None
) -> Target:
    return Target(text, value, limit, aim, False, form)


TARGETS = [
    Target("submit, of ProcessPoolExecutor's rate", _ratio("submit", "processpool"), 10, aim=15),
    Target("submit, of distributed's rate", _ratio("submit", "distributed"), 150),
    Target("submit, of ThreadPoolExecutor's rate", _ratio("submit", "threads"), 1, form="{:,.1f}×"),
    Target("map, of ProcessPoolExecutor's rate", _ratio("map", "processpool"), 200),
    _at_most(
        "one task, p50, of ProcessPoolExecutor's", _relative("latency_p50", "scaler", "processpool"), 1.3, "{:.2f}×", 1
    ),
    _at_most("  with daemons apart", _relative("latency_p50", "daemons", "processpool"), 2.2, "{:.2f}×"),
    Target("cores busy with tasks of 0.1 ms", _value("efficiency_100us"), 0.75, form="{:.1%}"),
    Target("cores busy with tasks of 1 ms", _value("efficiency_1ms"), 0.92, form="{:.1%}"),
    Target("cores busy with tasks of 10 ms", _value("efficiency_10ms"), 0.98, form="{:.1%}"),
    _at_most("constructor to first result", _value("startup"), 500, "{:,.0f} ms"),
    _at_most("a killed worker is replaced", _value("replace"), 100, "{:,.0f} ms"),
    Target(
        "array of 100 MB as an argument, of ProcessPoolExecutor's", _ratio("argument_100", "processpool"), 8, aim=20
    ),
    Target("  of 500 MB", _ratio("argument_500", "processpool"), 8, aim=20),
    Target("  of 100 MB, of distributed's", _ratio("argument_100", "distributed"), 15),
    Target("100 MB of bytes, of ProcessPoolExecutor's", _ratio("argument_bytes_100", "processpool"), 4),
    _at_most("a further task on the same array", _value("argument_again"), 2, "{:,.2f} ms"),
    _at_most("(x + x.T).mean(), of threads", _relative("array_transpose", "scaler", "dask-threads"), 2, "{:.2f}×", 1.2),
    _at_most("x.dot(x), of threads", _relative("array_dot_1000", "scaler", "dask-threads"), 1.3, "{:.2f}×"),
    _at_most("groupby, of threads", _relative("dataframe_groupby", "scaler", "dask-threads"), 1.5, "{:.2f}×"),
    _at_most("merge, of threads", _relative("dataframe_merge", "scaler", "dask-threads"), 1.5, "{:.2f}×"),
    _at_most("shuffle, of threads", _relative("dataframe_shuffle", "scaler", "dask-threads"), 1.5, "{:.2f}×"),
    Target("groupby, of distributed", _ratio("dataframe_groupby", "distributed"), 1, form="{:,.1f}×"),
    Target("merge, of distributed", _ratio("dataframe_merge", "distributed"), 1, form="{:,.1f}×"),
    Target("shuffle, of distributed", _ratio("dataframe_shuffle", "distributed"), 1, form="{:,.1f}×"),
    _at_most("wide graph, a task", _value("graph_wide"), 30, "{:,.0f} µs"),
    _at_most("chain, a task", _value("graph_chain"), 30, "{:,.0f} µs"),
    _at_most("tree, a task", _value("graph_tree"), 30, "{:,.0f} µs"),
    _at_most("a graph of a million tasks, a task", _value("large_graph", "daemons"), 60, "{:,.0f} µs"),
    _at_most("  the client's memory", _value("large_client", "daemons"), 2000, "{:,.0f} MB"),
    _at_most("scheduler with a million tasks", _value("memory_queued", "daemons"), 1000, "{:,.0f} MB"),
    _at_most("  above its empty size afterwards", _left_over, 50, "{:,.0f} MB"),
    _at_most(
        "core, 10,000 agents, of 10",
        _relative("core_10000", "scaler", "scaler", "core_10"),
        1.5,
        "{:.2f}×",
    ),
]


def verdicts(report: Report) -> Iterator[list[str]]:
    """Rows of a table: what, measured, promised, and the verdict."""
    yield ["Target", "measured", "promised", "aim", ""]
    for target in TARGETS:
        value = target.value(report)
        sign = "≥" if target.at_least else "≤"
        verdict = "not measured" if value is None else "met" if target.met(value) else "MISSED"
        yield [
            target.text,
            "–" if value is None else target.form.format(value),
            f"{sign} {target.form.format(target.limit)}",
            "" if target.aim is None else f"{sign} {target.form.format(target.aim)}",
            verdict,
        ]
