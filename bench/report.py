"""Samples → medians → tables for a terminal, Markdown, JSON lines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.engines import TITLES
from bench.figures import FIGURES, TABLES
from bench.results import Sample


@dataclass(frozen=True)
class Measured:
    """One figure on one engine."""

    #: median of the samples; None if the engine could not do it, and `note` says why
    value: float | None
    samples: tuple[float, ...]
    rows: int
    note: str


class Report:
    """All figures of a run."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        groups: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.figure, sample.engine), []).append(sample)
        self._measured = {key: _median(group) for key, group in groups.items()}

    def measured(self, figure: str, engine: str) -> Measured | None:
        """A figure on an engine, None if it was not measured."""
        return self._measured.get((figure, engine))

    def value(self, figure: str, engine: str = "scaler") -> float | None:
        """Its median."""
        measured = self._measured.get((figure, engine))
        return measured.value if measured else None

    def ratio(self, figure: str, engine: str, base: str = "scaler") -> float | None:
        """How many times better `base` is than `engine`: above 1 it is better, whichever way the figure counts."""
        mine, theirs = self.value(figure, base), self.value(figure, engine)
        if not mine or not theirs:
            return None
        return FIGURES[figure].times_better(mine, theirs)

    def json_lines(self, run: dict[str, Any]) -> Iterator[str]:
        """A JSON object for each figure of each engine; `run` says when and where and is part of each."""
        for (figure, engine), measured in self._measured.items():
            line = {
                "figure": figure,
                "engine": engine,
                "label": FIGURES[figure].label,
                "value": measured.value,
                "samples": measured.samples,
                "rows": measured.rows,
                "note": measured.note,
                "times_better_than_it": None if engine == "scaler" else self.ratio(figure, engine),
            }
            yield json.dumps({**line, **run}, ensure_ascii=False)

    def tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Titles and rows of cells; the first row is the head. What was not measured at all is left out."""
        for title, figures, engines in TABLES:
            present = [engine for engine in engines if any((figure, engine) in self._measured for figure in figures)]
            shown = [figure for figure in figures if any((figure, engine) in self._measured for engine in present)]
            if shown:
                head = [title, *(TITLES[engine] for engine in present)]
                body = [[FIGURES[f].label, *(self._cell(f, engine, engines[0]) for engine in present)] for f in shown]
                yield title, [head, *body]

    def _cell(self, figure: str, engine: str, base: str) -> str:
        measured = self._measured.get((figure, engine))
        if measured is None:
            return "–"
        if measured.value is None:
            return measured.note
        text = FIGURES[figure].form.format(measured.value)
        ratio = None if engine == base else self.ratio(figure, engine, base)
        return text if ratio is None else f"{text} ({times(ratio)})"


def _median(group: Sequence[Sample]) -> Measured:
    values = tuple(sample.value for sample in group if sample.value is not None)
    notes = [sample.note for sample in group if sample.note]
    return Measured(statistics.median(values) if values else None, values, group[-1].rows, notes[0] if notes else "")


def times(ratio: float) -> str:
    """A factor with about two digits.

    >>> times(31.4), times(0.512), times(1.234), times(1234)
    ('31×', '0.51×', '1.2×', '1,234×')
    """
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×" if ratio >= 1 else f"{ratio:.2f}×"


def as_text(rows: list[list[str]]) -> str:
    """Aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def as_markdown(rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join(["---", *["---:"] * (len(rows[0]) - 1)]) + "|", *lines[1:]])
