"""What one open page is sent: the document that its browser has a copy of, and its changes.

A document is changed at most once for each thing that was seen, and not before the last change is done; a browser that
does not read any more loses its connection (`sockets`). Nothing that a browser says changes a document.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.models import ColumnDataSource

from scaler.monitor.dashboard import heat, plots
from scaler.monitor.dashboard.content import headline, shown
from scaler.monitor.dashboard.layout import Shown, View
from scaler.monitor.dashboard.pages import Page
from scaler.monitor.formats import inert, moment
from scaler.monitor.history import POINTS, History
from scaler.monitor.insecure import exposure_of
from scaler.monitor.notices import notice_of
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.totals import Totals, totals_of
from scaler.monitor.watcher import Seen


class Sight:
    """What the server knows at one moment: all pages show the same."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.totals: Totals | None = None
        self.history = History()
        #: how many points the history ever had
        self.points = 0
        #: what was made for a page, for all others that show the same of this snapshot
        self._made: dict[View, Shown] = {}

    def see(self, seen: Seen) -> None:
        """The cluster, or that there is none."""
        is_new = self.seen is None or seen.snapshot is not self.seen.snapshot
        self.seen = seen
        self._made.clear()
        if is_new and seen.is_connected and seen.snapshot is not None:
            self.totals = totals_of(seen.snapshot)
            self.history.add(seen.snapshot, self.totals)
            self.points += 1

    def shown(self, page: Page, view: View) -> Shown:
        """What is in the tables of a page."""
        seen, totals = self.seen, self.totals
        assert seen is not None
        assert seen.snapshot is not None
        assert totals is not None
        key = replace(view, theme="", by="")
        if key not in self._made:
            self._made[key] = shown(seen.snapshot, totals, view, page.listing, *page.cards, outputs=seen.outputs)
        return self._made[key]


class LivePage:
    """One open page."""

    def __init__(self, document: Document, page: Page, view: View, sight: Sight) -> None:
        self._document = document
        self.page = page
        self.view = view
        self._sight = sight
        self._is_due = False
        self._points = sight.points
        self._series = plots.series_of(page.plots)
        self._history = ColumnDataSource(self._past(), name="history")
        self._status = ColumnDataSource(name="status")
        self._tables = {card.name: ColumnDataSource(name=card.name) for card in (*page.cards, page.listing.card)}
        self._grid: heat.Grid | None = None
        self._heat = ColumnDataSource({"x": [], "y": [], "label": [], "agent": [], "value": []}, name="cells")
        # the page loads itself again when it has lost its server
        document.config.reconnect_session = document.config.notify_connection_status = False
        document.theme = plots.theme(view.theme)
        document.title = f"{page.title} · Scaler"
        self.by = view.by if view.by in heat.FIGURES else "cpu"
        with document.models.freeze():  # what belongs to the document is found once, not with each root
            for name in page.plots:
                document.add_root(plots.over_time(name, self._history, view.theme))
            self._picture = plots.heat(self._heat, self.by) if page.heat else None
            if self._picture is not None:
                document.add_root(self._picture)
            for source in (self._status, *self._tables.values()):
                document.add_root(source)
            self._show()

    def cells(self) -> dict[str, dict[str, Any]]:
        """What is in its tables and its status now, by the names of their sources."""
        return {name: dict(source.data) for name, source in {"status": self._status, **self._tables}.items()}

    def come(self) -> None:
        """Something was seen: have it shown, unless that is about to happen, or nobody looks."""
        session = getattr(self._document.session_context, "session", None)
        if not self._is_due and session is not None and session.connection_count:
            self._is_due = True
            self._document.add_next_tick_callback(self._show)

    def _show(self) -> None:
        self._is_due = False
        seen = self._sight.seen
        if seen is None:
            self._set_status("waiting for the first snapshot", "", 0, 1)
            return
        snapshot, now = seen.snapshot, time.time()
        banner = f"the scheduler has not been heard for {seen.silence} s" if seen.silence else ""
        if not seen.is_connected:
            banner = f"no scheduler since {moment(seen.since, now)}: {inert(seen.reason)}"
        if snapshot is None or self._sight.totals is None:
            self._set_status(banner or "waiting for the first snapshot", "", 0, 1)
            return
        # without a scheduler those are the last figures, for a page that is opened then as well
        self._stream()
        self._show_heat(snapshot)
        found = self._sight.shown(self.page, self.view)
        for name, cells in found.tables.items():
            _set(self._tables[name], cells)
        note = found.notes[self.page.listing.card.name]
        clock = moment(now if seen.is_connected else seen.since, now)
        self._set_status(banner, headline(snapshot), snapshot.number, found.parts, note, clock)

    def _set_status(self, banner: str, line: str, number: int, parts: int, note: str = "", clock: str = "") -> None:
        notice, is_quiet = self._notice()
        _set(self._status, {
            "banner": [banner], "headline": [line], "number": [number], "parts": [parts], "note": [note],
            "clock": [clock], "notice": [notice], "notice_is_quiet": [is_quiet],
        })  # fmt: skip

    def _notice(self) -> tuple[str, bool]:
        """What is said of a scheduler that is there: that it has no keys, what it does not do; and whether quietly."""
        seen = self._sight.seen
        if seen is None or seen.snapshot is None or not seen.is_connected:
            return "", False
        exposure, notice = exposure_of(seen.snapshot.scheduler), notice_of(seen.snapshot.scheduler)
        said = [] if exposure is None else [(f"Insecure: {exposure.words}", exposure.is_quiet)]
        if notice is not None:
            said.append((notice.words[0].upper() + notice.words[1:], notice.is_quiet))
        return ". ".join(words for words, _ in said), bool(said) and all(is_quiet for _, is_quiet in said)

    def _past(self) -> dict[str, list[float]]:
        columns = self._sight.history.columns()
        return {name: _local(columns[name]) if name == "time" else columns[name] for name in self._series}

    def _stream(self) -> None:
        """Send the points that came since the last time: one, mostly."""
        new, self._points = self._sight.points - self._points, self._sight.points
        if new:
            self._history.stream({name: values[-new:] for name, values in self._past().items()}, POINTS)

    def _show_heat(self, snapshot: Snapshot) -> None:
        picture = self._picture
        if picture is None:
            return
        grid = heat.grid_of(snapshot)
        values = heat.values_of(snapshot, self.by, grid.each)
        if grid is not self._grid:
            self._grid = grid
            places = {"x": grid.x, "y": grid.y, "label": list(grid.labels), "agent": list(grid.agents)}
            self._heat.data = places | {"value": values}
            picture.x_range.update(end=max(heat.COLUMNS, grid.columns) - 0.5)
            picture.y_range.update(start=max(heat.LINES, grid.lines) - 0.5)
        else:
            self._heat.patch({"value": [(slice(0, len(values)), values)]})


def _set(source: ColumnDataSource, cells: dict[str, list[Any]]) -> None:
    """Replace what is in a source, if it is not the same."""
    if source.data != cells:
        source.data = cells


def _local(times: list[float]) -> Any:
    """Times as a clock on the wall shows them here: plots take what they get for universal time."""
    offset = time.localtime().tm_gmtoff * 1000.0
    return list(np.asarray(times) + offset) if times else []
