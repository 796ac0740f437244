"""The pages: what stands on each."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.monitor.dashboard import content
from scaler.monitor.dashboard.content import Listing
from scaler.monitor.dashboard.layout import Card


@dataclass(frozen=True)
class Page:
    """One address of the dashboard."""

    #: the last part of its address
    path: str
    title: str
    #: small cards, then plots, then the long table
    cards: tuple[Card, ...]
    plots: tuple[str, ...]
    listing: Listing
    #: the name of its heat map, if it has one
    heat: str = ""


PAGES = (
    Page(
        "", "Overview", content.BLOCKS,
        ("cpu", "memory", "occupancy", "rows", "throughput", "stored", "transfers", "messages"), content.WORKERS,
    ),
    Page("functions", "Functions", (), ("throughput", "rows"), content.FUNCTIONS),
    Page(
        "workers", "Workers", (content.WORKER_STATES, content.LAST_OUTPUT), ("cpu", "occupancy"), content.WORKERS,
        "workers",
    ),
    Page("agents", "Agents", (content.HOSTS,), ("cpu", "memory", "transfers"), content.AGENTS),
    Page("objects", "Objects and memory", (content.ALL_OBJECTS,), ("memory", "stored", "transfers"), content.OBJECTS),
    Page("clients", "Clients", (), ("rows", "throughput"), content.CLIENTS),
)  # fmt: skip
