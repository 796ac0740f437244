"""Snapshots as JSON: one object a line, for programs in any language and for people with `jq`.

Figures are as the protocol has them, with their unit in the name; names are as their owners chose them, escaped to
ASCII as JSON does. A field may come to it without a new version; none changes its meaning, or goes, without one.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from scaler.monitor.blocks import tasks
from scaler.monitor.insecure import exposure_of
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.tables import ENDLESS
from scaler.monitor.watcher import Seen
from scaler.protocol.codes import AgentFlag
from scaler.protocol.messages import Part

#: of what is below
SCHEMA = 1


def json_line(seen: Seen) -> str:
    """What was seen, as one line without its end."""
    return json.dumps(record(seen), separators=(",", ":"))


def record(seen: Seen) -> dict[str, Any]:
    """What was seen, as values that JSON knows; without a scheduler since when there is none, and why."""
    head = {"schema": SCHEMA, "connected": seen.is_connected, "since": seen.since, "reason": seen.reason}
    if seen.snapshot is None or not seen.is_connected:
        return head
    return head | _cluster(seen.snapshot)


def _cluster(snapshot: Snapshot) -> dict[str, Any]:
    objects = snapshot.objects
    return head(snapshot) | {
        "agents": agents(snapshot),
        "workers": workers(snapshot),
        "clients": clients(snapshot),
        "functions": functions(snapshot),
        "demand": _rows(snapshot.view.demand),
        "fleets": fleets(snapshot),
        "objects": {
            "count": objects.count, "looked_at": objects.looked_at, "stored_bytes": objects.stored,
            "spilled_bytes": objects.spilled, "fetched_bytes": objects.fetched, "largest": largest_objects(snapshot),
        },
    }  # fmt: skip


def head(snapshot: Snapshot) -> dict[str, Any]:
    """What is said of the cluster as a whole."""
    scheduler = snapshot.scheduler
    exposure = exposure_of(scheduler)
    return {
        "number": snapshot.number,
        "time": scheduler.time,
        "scheduler": {
            "address": scheduler.address, "version": scheduler.version, "pid": scheduler.pid, "epoch": scheduler.epoch,
            "uptime_s": scheduler.uptime, "cpu_thousandths": scheduler.cpu, "rss_bytes": scheduler.memory,
            "monitors": scheduler.monitors, "partner": scheduler.partner, "roster": scheduler.roster,
            "stands_by": scheduler.stands_by, "partner_silence_s": scheduler.silence,
            "trouble": scheduler.trouble, "awaited": scheduler.awaited,
            "insecure": "" if exposure is None else exposure.words,
            "sent": snapshot.sent, "received": snapshot.received,
        },
        "task_manager": tasks(snapshot),
    }  # fmt: skip


def clients(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of each client."""
    return _rows(snapshot.clients, numbers="number", names="name", silent="silent_ms")


def functions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of each function that is shown on its own; the last may be "other", of client 0."""
    return _rows(snapshot.functions, clients="client", names="name")


def _rows(part: Part, **names: str) -> list[dict[str, Any]]:
    """The rows of a part that has nothing but columns, some of them by other names."""
    columns = [item.name for item in fields(part)]
    keys = [names.get(name, name) for name in columns]
    return [dict(zip(keys, row, strict=True)) for row in zip(*[getattr(part, name) for name in columns], strict=True)]


def largest_objects(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of the largest objects among those that were looked at."""
    objects = snapshot.objects
    rows = zip(objects.clients, objects.ids, objects.sizes, objects.references, objects.copies, strict=True)
    keys = ("client", "id", "size_bytes", "references", "copies")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def agents(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of each agent."""
    a = snapshot.agents
    return [
        {
            "agent": a.numbers[i], "name": a.names[i], "pid": a.pids[i], "capabilities": a.capabilities[i],
            "reported": bool(a.flags[i] & AgentFlag.REPORTED), "full": bool(a.flags[i] & AgentFlag.FULL),
            "store_only": bool(a.flags[i] & AgentFlag.STORE_ONLY), "workers": a.workers[i], "free": a.free[i],
            "rows": a.rows[i], "queued": a.queued[i], "cpu_thousandths": a.cpus[i], "rss_bytes": a.memory[i],
            "host_cpu_thousandths": a.host_cpus[i], "lag_us": a.lags[i], "stored_bytes": a.stored[i],
            "spilled_bytes": a.spilled[i], "fetched_bytes": a.fetched[i], "silent_ms": a.silent[i],
            "report_age_ms": a.report_ages[i], "draining": bool(a.flags[i] & AgentFlag.DRAINING), "job": a.jobs[i],
            "walltime_left_ms": a.walltimes[i] if a.walltimes[i] < ENDLESS else None, "idle_ms": a.idle[i],
        }
        for i in range(len(a))
    ]  # fmt: skip


def fleets(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of each provider of hosts."""
    f, at = snapshot.view.fleets, 0
    found = []
    for i, provider in enumerate(f.providers):
        lines = list(f.lines[at : at + f.line_counts[i]])
        at += f.line_counts[i]
        found.append(
            {
                "provider": provider, "desired": f.desired[i], "pending": f.pending[i], "running": f.running[i],
                "draining": f.draining[i], "waited_ms": f.waited[i], "lines": lines,
            }
        )  # fmt: skip
    return found


def workers(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Of each worker."""
    w = snapshot.workers
    return [
        {
            "worker": snapshot.worker_id(i), "host": snapshot.host_of(i), "pid": w.pids[i],
            "cpu_thousandths": w.cpus[i],
            "rss_bytes": w.memory[i], "free": snapshot.is_free(i), "sent": w.rows[i], "queued": w.queued[i],
            "handed": w.handed[i], "itl": snapshot.itl_of(i), "function": snapshot.function_of(i),
            "task": snapshot.task_of(i), "client": w.clients[i], "elapsed_ms": w.elapsed[i],
        }
        for i in range(len(w))
    ]  # fmt: skip
