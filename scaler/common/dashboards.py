"""Which dashboards this program has started, by the address of their cluster; and how objects look in notebooks."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from collections.abc import Mapping

#: says where the dashboard of a cluster is that others have started
LINK_VARIABLE = "SCALER_DASHBOARD_LINK"

_links: dict[str, str] = {}


def tell(address: str, link: str) -> None:
    """There is a dashboard of the cluster at this address."""
    _links[address] = link


def forget(address: str) -> None:
    """There is none any more."""
    _links.pop(address, None)


def link_of(address: str) -> str | None:
    """Where the dashboard of this cluster is, as far as this program knows."""
    return _links.get(address) or os.environ.get(LINK_VARIABLE) or None


def as_html(title: str, rows: Mapping[str, object], link: str | None = None) -> str:
    """A small table for a notebook, of names and values that may hold anything.

    >>> as_html("Client", {"address": "<b>"})
    '<table><caption>Client</caption><tr><th>address</th><td>&lt;b&gt;</td></tr></table>'
    """
    from html import escape

    cells = {name: escape(str(value)) for name, value in rows.items()}
    if link is not None and link.startswith(("http://", "https://")):
        shown = escape(link.partition("?")[0])
        cells["dashboard"] = f'<a href="{escape(link)}" target="_blank" rel="noreferrer">{shown}</a>'
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{cell}</td></tr>" for name, cell in cells.items())
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
