"""The plots: what is drawn of a cluster's last minutes, and of all workers at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bokeh.models import (
    AdaptiveTicker,
    BasicTicker,
    ColumnDataSource,
    DataRange1d,
    DatetimeTicker,
    DatetimeTickFormatter,
    HoverTool,
    LinearColorMapper,
    NumeralTickFormatter,
    OpenURL,
    Range1d,
    TapTool,
)
from bokeh.models.annotations import ColorBar, Legend, LegendItem
from bokeh.palettes import Viridis256
from bokeh.plotting import figure
from bokeh.themes import Theme

from scaler.monitor.dashboard.heat import COLUMNS, FIGURES, LINES

#: pixels: of a plot over time, and of the picture of all workers
HEIGHT = 172
HEAT_HEIGHT = 300


@dataclass(frozen=True)
class Colours:
    """Of one theme."""

    text: str
    quiet: str
    grid: str
    #: of series, in their order
    series: tuple[str, ...]


#: told apart by people who don't see red and green apart, too
THEMES = {
    "light": Colours("#1f2933", "#616e7c", "#e4e7eb", ("#0b69a3", "#de911d", "#0c8f6f", "#ba2525", "#9aa5b1")),
    "dark": Colours("#e4e7eb", "#9aa5b1", "#323f4b", ("#62b0e8", "#f7c948", "#3ebd93", "#f86a6a", "#7b8794")),
}


@dataclass(frozen=True)
class Plot:
    """A plot over time: series of the history, and their names in the legend."""

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]
    #: how its numbers are written: count, bytes or percent
    form: str = "count"
    is_stacked: bool = False
    #: of each series its colour, in `Colours.series`: what fails is red everywhere
    colours: tuple[int, ...] = (0, 1)


PLOTS = {
    "cpu": Plot("Workers' use of processors", "processors", (("cpu", "in use"),)),
    "memory": Plot("Workers' memory", "bytes", (("memory", "resident"),), "bytes"),
    "occupancy": Plot("Occupancy of workers", "% with a task", (("occupancy", "busy"),), "percent"),
    "rows": Plot(
        "Rows by state", "rows",
        (("running", "running"), ("handed", "at agents"), ("queued", "queued"), ("waiting", "waiting")),
        is_stacked=True, colours=(0, 2, 1, 4),
    ),
    "throughput": Plot(
        "Throughput", "rows/s", (("finished", "done"), ("cancelled", "canceled"), ("failed", "failed")),
        colours=(2, 1, 3),
    ),
    "stored": Plot("Objects in stores", "bytes", (("in_memory", "in memory"), ("on_disk", "on disk")), "bytes", True),
    "transfers": Plot("Transfers between hosts", "bytes/s", (("transferred", "arriving"),), "bytes"),
    "messages": Plot("The scheduler's messages", "messages/s", (("sent", "sent"), ("received", "received"))),
}  # fmt: skip
_FORMATS = {"count": "0.[0]a", "bytes": "0.[0] ib", "percent": "0"}


def series_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """What has to be sent for these plots."""
    return tuple(dict.fromkeys(["time", *(series for name in names for series, _ in PLOTS[name].series)]))


def theme(name: str) -> Theme:
    """What all plots of a theme have in common; the page is seen through them."""
    colours = THEMES[name]
    clear = {"background_fill_alpha": 0, "border_fill_alpha": 0, "outline_line_color": None}
    axis = {
        "axis_line_color": colours.grid, "major_tick_line_color": None, "minor_tick_line_color": None,
        "major_label_text_color": colours.quiet, "axis_label_text_color": colours.quiet,
        "major_label_text_font_size": "11px", "axis_label_text_font_size": "11px",
        "axis_label_text_font_style": "normal",
        "axis_label_standoff": 4, "major_label_standoff": 3,
    }  # fmt: skip
    title = {"text_color": colours.text, "text_font_size": "13px", "text_font_style": "bold"}
    legend = {"label_text_color": colours.text, "label_text_font_size": "10px", "background_fill_alpha": 0,
              "border_line_color": None, "glyph_width": 8, "glyph_height": 8, "label_height": 10, "spacing": 3,
              "padding": 0, "margin": 2, "label_standoff": 3}  # fmt: skip
    bar = {"background_fill_alpha": 0, "major_label_text_color": colours.quiet, "title_text_color": colours.quiet,
           "title_text_font_style": "normal", "title_text_font_size": "11px", "major_label_text_font_size": "11px",
           "major_tick_line_color": None}  # fmt: skip
    grid = {"grid_line_color": colours.grid}
    return Theme(json={"attrs": {
        "Plot": clear, "Axis": axis, "Title": title, "Legend": legend, "ColorBar": bar, "Grid": grid,
    }})  # fmt: skip


def over_time(name: str, source: ColumnDataSource, theme_name: str) -> figure:
    """A plot of the history."""
    plot = PLOTS[name]
    colours = [THEMES[theme_name].series[at] for at in plot.colours[: len(plot.series)]]
    vertical = DataRange1d(start=0, min_interval=1024 if plot.form == "bytes" else 1)
    if plot.form == "percent":
        vertical = DataRange1d(start=0, end=100)
    made = _figure(
        f"plot_{name}", plot.title, HEIGHT, x_range=DataRange1d(follow="end", range_padding=0), y_range=vertical,
        x_axis_type="datetime", y_axis_label=plot.unit,
    )  # fmt: skip
    series = [key for key, _ in plot.series]
    if plot.is_stacked:
        drawn: list[Any] = made.varea_stack(series, x="time", source=source, color=colours, fill_alpha=0.75)
        lines: list[Any] = made.vline_stack(series, x="time", source=source, color=colours)
    else:
        lines = [
            made.line("time", key, source=source, color=colours[at], line_width=1.8) for at, key in enumerate(series)
        ]
        drawn = lines
    form = _FORMATS[plot.form]
    tips = [("", "@time{%T}"), *((label, f"@{key}{{{form}}}") for key, label in plot.series)]
    made.add_tools(HoverTool(tooltips=tips, formatters={"@time": "datetime"}, mode="vline", renderers=lines[-1:]))
    made.yaxis.formatter = NumeralTickFormatter(format=form)
    if plot.form == "bytes":
        steps = [2.0**power for power in range(10)]
        made.yaxis.ticker = AdaptiveTicker(base=1024, mantissas=steps, desired_num_ticks=4)
    else:
        made.yaxis.ticker = BasicTicker(desired_num_ticks=4)
    made.xaxis.ticker = DatetimeTicker(desired_num_ticks=3)
    made.xaxis.formatter = DatetimeTickFormatter(
        seconds="%T", minsec="%T", minutes="%H:%M", hourmin="%H:%M", hours="%H:%M", days="%H:%M"
    )
    if len(series) > 1:
        labels = [label for _, label in plot.series]
        items = [LegendItem(label=label, renderers=[glyph]) for label, glyph in zip(labels, drawn, strict=True)]
        made.add_layout(Legend(items=items, orientation="horizontal", location="top_left"), "above")
    return made


def heat(source: ColumnDataSource, by: str) -> figure:
    """All workers at this moment, those of the first agent first, a line after the other."""
    words, unit = FIGURES[by]
    made = _figure(
        "heat", f"All workers: {words}", HEAT_HEIGHT, x_range=Range1d(start=-0.5, end=COLUMNS - 0.5),
        y_range=Range1d(start=LINES - 0.5, end=-0.5),
    )  # fmt: skip
    mapper = LinearColorMapper(palette=Viridis256, low=0, high=100 if by == "cpu" else None)
    made.rect(
        "x", "y", 0.94, 0.9, source=source, line_color=None,
        fill_color={"field": "value", "transform": mapper}, nonselection_fill_alpha=1,
    )  # fmt: skip
    made.axis.visible = False
    made.grid.visible = False
    made.add_tools(
        HoverTool(tooltips=[("", "@label"), ("", f"@value{{0.[0]}} {unit}")]),
        TapTool(callback=OpenURL(url="workers?find=@agent.", same_tab=True)),
    )
    made.add_layout(ColorBar(color_mapper=mapper, title=unit, width=12, padding=2), "right")
    return made


def _figure(name: str, title: str, height: int, **more: Any) -> figure:
    made = figure(
        name=name, title=title, height=height, sizing_mode="stretch_width", tools="", toolbar_location=None,
        output_backend="canvas", min_border_left=4, min_border_right=8, **more,
    )  # fmt: skip
    made.toolbar.logo = None
    return made
