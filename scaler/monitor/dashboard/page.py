"""The HTML of a page: cards without content, which `static/tables.js` fills. Of the cluster it has data alone.

There is no script in it but those that this server serves, so that the content security policy can forbid all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

from scaler.monitor.dashboard.heat import FIGURES
from scaler.monitor.dashboard.layout import Card, Column, View
from scaler.monitor.dashboard.pages import PAGES, Page
from scaler.protocol.codes import MAX_NAME

#: scripts and styles of this server alone; Bokeh gives its elements styles of their own
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)

#: what runs once the tables are seen
_AFTER = ("static/js/bokeh.min.js", "assets/dashboard.js")


def html(
    page: Page,
    view: View,
    roots: Sequence[tuple[str, str]],
    token: str,
    version: str,
    cells: Mapping[str, Mapping[str, object]],
) -> str:
    """A page; `roots` are names and ids of the document's models, `token` opens its session.

    `cells` are those of its tables, by their sources' names: they are seen before the document has come.
    """
    slots = {name for name, _ in roots}
    shown = [f"plot_{name}" for name in page.plots if f"plot_{name}" in slots]
    data = {
        "token": token, "roots": [[identity, name] for name, identity in roots], "path": page.path, "part": view.part,
        "sort": view.sort or page.listing.table.order, "up": view.is_upwards, "cells": cells,
        "scripts": [f"{script}?v={version}" for script in _AFTER],
    }  # fmt: skip
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en" data-theme="{view.theme}"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(page.title)} · Scaler</title>",
        f'<link rel="stylesheet" href="assets/dashboard.css?v={version}">',
        *(f'<link rel="preload" as="script" href="{script}?v={version}">' for script in _AFTER),
        f'<script src="assets/tables.js?v={version}" defer></script>',
        f'<script type="application/json" id="page">{_json(data)}</script></head><body>',
        _head(page, view),
        '<div id="banner" role="alert" hidden></div>',
        '<div id="notice" role="status" hidden></div><main>',
        *(['<section class="cards">', *(_pairs(card) for card in page.cards), "</section>"] if page.cards else []),
        '<section class="plots">', *(f'<div class="card plot" id="{name}"></div>' for name in shown), "</section>",
        *([_heat(view)] if page.heat else []),
        _listing(page.listing.card, view),
        '</main><footer>Updated <span id="clock">–</span>. ',
        f"{_LEGENDS[page.path]}</footer></body></html>",
    ]  # fmt: skip
    return "\n".join(parts)


_ROWS = "A row is one call of a function."
_SIZES = "Sizes are in units of 1024 (k, m, g, t)."
_WORKERS = (
    "worker is process|host|agent.slot; ITL: initialised, has a task, holds the task lock; 100% is one processor."
)
_LEGENDS = {
    "": f"{_WORKERS} {_ROWS} {_SIZES}",
    "functions": f"{_ROWS} p50, p95: half and 95 of 100 of its rows took at most so long, to an eighth.",
    "workers": f"{_WORKERS} {_SIZES}",
    "agents": f"An agent runs the workers of one host. {_ROWS} {_SIZES}",
    "objects": f"Objects are values that several tasks need, or that are too large for messages. {_SIZES}",
    "clients": f"A client is a program that submits. {_ROWS}",
}


def refusal(reason: str) -> str:
    """What somebody sees who may not look."""
    return f'<!DOCTYPE html><html lang="en"><title>Scaler: refused</title><p>Refused: {escape(reason)}.</p></html>\n'


def _head(page: Page, view: View) -> str:
    links = [
        f'<a href="{View(each.path).link(each.path)}"{" class=here" if each is page else ""}>{escape(each.title)}</a>'
        for each in PAGES
    ]
    other = "light" if view.theme == "dark" else "dark"
    switch = f'<a class="theme" href="{escape(view.link(theme=other))}">{other}</a>'
    return f'<header><strong>Scaler</strong><nav>{"".join(links)}</nav><span id="headline"></span>{switch}</header>'


def _pairs(card: Card) -> str:
    return (
        f'<div class="card pairs{" lines" if card.is_lines else ""}"><h2>{escape(card.title)}</h2>'
        f'<table data-source="{card.name}" data-columns="{_columns(card)}" data-empty="{escape(card.empty)}">'
        "<tbody></tbody></table></div>"
    )


def _listing(card: Card, view: View) -> str:
    heads = "".join(_title(column, view) for column in card.columns)
    kept = {
        "sort": view.sort, "up": "1" if view.is_upwards else "", "by": view.by if view.by != "cpu" else "",
        "client": str(view.client or ""),
    }  # fmt: skip
    hidden = "".join(f'<input type="hidden" name="{k}" value="{escape(v)}">' for k, v in kept.items() if v)
    return (
        f'<section class="card listing"><div class="tools"><h2>{escape(card.title)}</h2><span id="note"></span>'
        f'<form method="get" action="{View(view.page).link()}">{hidden}<label>find '
        f'<input name="find" type="search" value="{escape(view.find)}" maxlength="{MAX_NAME}"></label></form>'
        f'{_chosen(view)}{_key(card)}<span id="parts"></span></div>'
        f'<div class="scroll"><table class="long" data-source="{card.name}" data-columns="{_columns(card)}" '
        f'data-empty="{escape(_empty(card, view))}"><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>'
        "</section>"
    )


def _key(card: Card) -> str:
    """What the colours of bars mean."""
    names = [name for column in card.columns for name in column.shares]
    return "".join(f'<span class="key"><i class="is-{name}"></i>{name}</span>' for name in names)


def _chosen(view: View) -> str:
    """A way back from a choice."""
    words = [f"of client {view.client}"] if view.client else []
    words += [f"with {view.find!r}"] if view.find else []
    if not words:
        return ""
    return f'<a class="chosen" href="{View(view.page, view.sort).link()}">only those {escape(" ".join(words))} ✕</a>'


def _empty(card: Card, view: View) -> str:
    """What a table says that has no rows."""
    if view.find:
        return "nothing has such a name"
    return f"client {view.client} has submitted nothing, or is gone" if view.client else card.empty


def _title(column: Column, view: View) -> str:
    words = escape(column.key)
    if column.is_sortable:
        is_again = view.sort == column.key and not view.is_upwards
        link = view.link(sort=column.key, up="1" if is_again else "", part="")
        words = f'<a href="{escape(link)}">{words}</a>'
    return f'<th class="{column.kind}" data-key="{escape(column.key)}" title="{escape(column.hint)}">{words}</th>'


def _heat(view: View) -> str:
    by = view.by if view.by in FIGURES else "cpu"
    links = [
        f'<a href="{escape(view.link(by=name))}"{" class=here" if name == by else ""}>{name}</a>' for name in FIGURES
    ]
    return (
        f'<section class="card heat"><div class="tools"><span>show</span><nav>{"".join(links)}</nav>'
        '<span class="quiet">a cell is a worker, or the mean of neighbours where there are many; '
        'click one for its agent\'s workers</span></div><div id="heat"></div></section>'
    )


def _columns(card: Card) -> str:
    return escape(json.dumps([[column.key, column.kind] for column in card.columns]))


def _json(data: object) -> str:
    """For a script element: it can't be ended from within."""
    return json.dumps(data).replace("<", "\\u003c")
