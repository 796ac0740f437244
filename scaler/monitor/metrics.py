"""A cluster as Prometheus reads it: a snapshot as text, in base units, with labels whose number is bounded.

Workers have no labels, nor have rows: what is shown grows with agents, at most `AGENTS`, with a few lines each, and has
`FUNCTIONS` functions. What is beyond is together in "other", so that sums are right.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from scaler.monitor.notices import lacks_standby
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.totals import Totals, totals_of
from scaler.monitor.watcher import Seen
from scaler.protocol.codes import AgentFlag
from scaler.protocol.messages.cluster_view import FunctionColumns

#: functions that have their own name: those that take most time
FUNCTIONS = 20
#: hosts that have their own name: those with most rows
AGENTS = 1000
#: providers of hosts that have their own name
PROVIDERS = 8
#: functions of clients that are gone that have their own name
GONE = 256
#: what is counted of functions, and never falls
_COUNTED = ("total_us", "done", "failed", "cancelled")
OTHER = "other"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Metric:
    """One name with its lines."""

    name: str
    kind: str
    help: str
    #: values by labels
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def text(self) -> str:
        """As Prometheus reads it."""
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} {self.kind}"]
        lines += [f"{self.name}{_labels(labels)} {_number(value)}" for labels, value in self.samples]
        return "\n".join(lines) + "\n"


class Departed:
    """What functions did whose clients are gone, as far as a snapshot has shown it: later ones have no place for it.

    Several clients may have functions of one name. If what is counted of them fell when one of the clients goes, it
    would look like a counter that begins anew, and what is left like rows that have ended just now.
    """

    def __init__(self) -> None:
        #: for each of `_COUNTED` what it is by name
        self.counts: dict[str, Counter[str]] = {column: Counter() for column in _COUNTED}
        #: the scheduler that was seen last, and its functions
        self._epoch, self._last = 0, FunctionColumns()

    def see(self, snapshot: Snapshot) -> None:
        """Each snapshot, one after the other; one again changes nothing. Counters begin anew with another scheduler."""
        before, self._last = self._last, snapshot.functions
        if snapshot.scheduler.epoch != self._epoch:
            self._epoch, before = snapshot.scheduler.epoch, FunctionColumns()
            self.counts = {column: Counter() for column in _COUNTED}
        gone, known = {*before.clients} - {0, *snapshot.clients.numbers}, self.counts["done"]
        for at, client in enumerate(before.clients if gone else ()):
            if client in gone:
                name = before.names[at] if before.names[at] in known or len(known) < GONE else OTHER
                for column, counts in self.counts.items():
                    counts[name] += getattr(before, column)[at]


class Exposition:
    """What one server tells whoever asks. Any thread may ask, and tell what is seen.

    Between two questions clients come and go, so that it looks at each snapshot and not only at those that are told.
    """

    def __init__(self, see: Callable[[], Seen]) -> None:
        """`see` gives what is known now: nothing older than what `note` was given."""
        self._see, self._departed, self._lock = see, Departed(), threading.Lock()

    def note(self, seen: Seen) -> None:
        """This has been seen."""
        with self._lock:
            self._note(seen)

    def text(self) -> str:
        """All that is known now, as text."""
        with self._lock:
            seen = self._see()
            self._note(seen)
            departed = {column: counts.copy() for column, counts in self._departed.counts.items()}
        return exposition(seen, departed)

    def _note(self, seen: Seen) -> None:
        if seen.is_connected and seen.snapshot is not None:
            self._departed.see(seen.snapshot)


def exposition(seen: Seen, departed: Mapping[str, Counter[str]] | None = None) -> str:
    """All that is known now, as text. Without a scheduler it says so and nothing else: old figures would mislead.

    So it does without one that answers: as soon as screens say that it has not been heard.
    """
    is_up = seen.is_connected and not seen.silence
    metrics = [_one("scaler_up", "Whether there is a scheduler that answers: 1 or 0.", int(is_up))]
    if is_up and seen.snapshot is not None:
        metrics += metrics_of(seen.snapshot, totals_of(seen.snapshot), departed)
    return "".join(metric.text() for metric in metrics)


def metrics_of(snapshot: Snapshot, totals: Totals, departed: Mapping[str, Counter[str]] | None = None) -> list[Metric]:
    """All metrics of a snapshot, and of what is counted of those that have `departed`."""
    departed = Departed().counts if departed is None else departed
    return [*_scheduler(snapshot), *_rows(snapshot), *_workers(totals), *_agents(snapshot, totals),
            *_objects(snapshot), *_functions(snapshot, departed)]  # fmt: skip


def _scheduler(snapshot: Snapshot) -> Iterable[Metric]:
    scheduler = snapshot.scheduler
    version = {"version": scheduler.version}
    yield Metric("scaler_scheduler_info", "gauge", "The scheduler's version; always 1.", [(version, 1)])
    started = scheduler.time - scheduler.uptime
    yield _one("scaler_scheduler_start_time_seconds", "When the scheduler started, in seconds since 1970.", started)
    yield _one("scaler_scheduler_cpu_cores", "Processors in use by the scheduler.", scheduler.cpu / 1000)
    yield _one("scaler_scheduler_memory_bytes", "Resident memory of the scheduler.", scheduler.memory)
    text = "Whether the scheduler has no keys and takes in whoever reaches it: 1 or 0."
    yield _one("scaler_scheduler_insecure", text, int(scheduler.insecure))
    text = "Whether the scheduler hands out no rows: 1 or 0; its log and scaler status say why."
    yield _one("scaler_scheduler_halted", text, int(bool(scheduler.trouble)))
    text = "Whether the scheduler leads a pair whose other one is not heard: 1 or 0."
    yield _one("scaler_standby_missing", text, int(lacks_standby(scheduler)))
    yield _one("scaler_monitors", "Monitors that watch, this one among them.", scheduler.monitors)
    yield _one("scaler_clients", "Clients that are connected.", len(snapshot.clients))
    for name, counts in (("sent", snapshot.sent), ("received", snapshot.received)):
        text = f"Messages that the scheduler has {name}."
        yield _by("type", f"scaler_messages_{name}_total", text, counts, "counter")


def _rows(snapshot: Snapshot) -> Iterable[Metric]:
    rows = snapshot.rows
    states = {
        "waiting": rows.waiting,
        "queued": rows.queued,
        "handed": max(0, rows.at_agents - rows.running),
        "running": rows.running,
    }
    text = "Rows (calls) that have not ended: they wait for values, are queued, are handed to agents, or run."
    yield _by("state", "scaler_rows", text, states)
    outcomes = {"done": rows.finished, "failed": rows.failed, "cancelled": rows.cancelled, "claimed": rows.claimed}
    yield _by("outcome", "scaler_rows_ended_total", "Rows (calls) that have ended.", outcomes, "counter")
    reasons = {"lost": rows.lost, "retried": rows.retried}
    text = "Times that rows (calls) had to run again: lost with their worker or host, or retried after an error."
    yield _by("reason", "scaler_rows_again_total", text, reasons, "counter")


def _workers(totals: Totals) -> Iterable[Metric]:
    yield _by("state", "scaler_workers", "Workers by what they do.", totals.states)
    yield _one("scaler_workers_cpu_cores", "Processors in use by workers.", totals.cpu / 1000)
    yield _one("scaler_workers_memory_bytes", "Resident memory of workers.", totals.memory)


def _agents(snapshot: Snapshot, totals: Totals) -> Iterable[Metric]:
    agents = snapshot.agents
    full = sum(bool(flags & AgentFlag.FULL) for flags in agents.flags)
    yield _one("scaler_agents", "Agents (hosts) that are connected.", len(agents))
    yield _one("scaler_agents_full", "Agents that have no room for more objects and get no new work.", full)
    draining = sum(bool(flags & AgentFlag.DRAINING) for flags in agents.flags)
    yield _one("scaler_agents_draining", "Agents that are about to go and get no new work.", draining)
    yield from _fleets(snapshot)
    yield _one("scaler_agents_free_slots", "Rows that could begin at once.", sum(agents.free))
    silent = max(agents.silent, default=0) / 1000
    yield _one(
        "scaler_agents_silent_seconds", "Time since the last message of the agent that is silent longest.", silent
    )
    lag = max(agents.lags, default=0) / 1e6
    yield _one("scaler_agents_lag_seconds", "Slowest answer of the scheduler to an agent's last heartbeat.", lag)
    figures: dict[str, tuple[str, Iterable[float]]] = {
        "cpu_cores": ("Processors in use by an agent and its workers.", [each.cpu / 1000 for each in totals.agents]),
        "memory_bytes": ("Resident memory of an agent and its workers.", [each.memory for each in totals.agents]),
        "stored_bytes": ("Objects in the store of an agent.", agents.stored),
        "rows": ("Rows that an agent has.", agents.rows),
    }
    named = _largest(agents.names, agents.rows, AGENTS)
    for name, (text, values) in figures.items():
        yield _by("agent", f"scaler_agent_{name}", text, _summed(agents.names, values, named))


def _fleets(snapshot: Snapshot) -> Iterable[Metric]:
    fleets = snapshot.view.fleets
    if not fleets.providers:
        return
    named = _largest(fleets.providers, fleets.desired, PROVIDERS)
    hosts = Metric("scaler_fleet_hosts", "gauge", "Hosts that a batch system is asked for, by what is known of them.")
    for state in ("desired", "pending", "running", "draining"):
        summed = _summed(fleets.providers, getattr(fleets, state), named)
        hosts.samples += [({"provider": provider, "state": state}, value) for provider, value in summed.items()]
    yield hosts
    waited = max(fleets.waited, default=0) / 1000
    yield _one("scaler_fleet_pending_seconds", "Time that the host asked for first is waited for.", waited)


def _objects(snapshot: Snapshot) -> Iterable[Metric]:
    objects = snapshot.objects
    yield _one("scaler_objects", "Objects that the scheduler knows.", objects.count)
    yield _one("scaler_objects_stored_bytes", "Objects in all stores, in memory and on disk.", objects.stored)
    yield _one("scaler_objects_spilled_bytes", "Objects in stores that are on disk.", objects.spilled)
    text = "Bytes that have come from one host to another; falls when an agent leaves."
    yield _one("scaler_objects_fetched_bytes", text, objects.fetched)


def _functions(snapshot: Snapshot, departed: Mapping[str, Counter[str]]) -> Iterable[Metric]:
    functions = snapshot.functions
    names = [name if client else OTHER for name, client in zip(functions.names, functions.clients, strict=True)]
    counted = {
        column: ([*names, *counts], [*getattr(functions, column), *counts.values()])
        for column, counts in departed.items()
    }
    named = _largest(*counted["total_us"], FUNCTIONS)

    yield _by(
        "function", "scaler_function_seconds_total", "Time that rows of a function took together.",
        {name: value / 1e6 for name, value in _summed(*counted["total_us"], named).items()}, "counter",
    )  # fmt: skip
    ended = Metric("scaler_function_rows_ended_total", "counter", "Rows of a function that have ended.")
    for outcome in ("done", "failed", "cancelled"):
        summed = _summed(*counted[outcome], named)
        ended.samples += [({"function": name, "outcome": outcome}, value) for name, value in summed.items()]
    yield ended
    open_rows = Metric(
        "scaler_function_rows",
        "gauge",
        "Rows of a function that no agent has (unplaced), or that agents have (placed).",
    )
    for state, column in (("unplaced", functions.waiting), ("placed", functions.running)):
        summed = _summed(names, column, named)
        open_rows.samples += [({"function": name, "state": state}, value) for name, value in summed.items()]
    yield open_rows
    for name, words, column in (("median", "Half", functions.p50_us), ("p95", "95 of 100", functions.p95_us)):
        longest: dict[str, float] = {}
        for function, value in zip(names, column, strict=True):
            if function in named and value:  # of a function no row of which has ended nothing is known
                longest[function] = max(longest.get(function, 0.0), value / 1e6)
        text = f"{words} of the rows of a function took at most so long, to an eighth."
        yield _by("function", f"scaler_function_{name}_duration_seconds", text, longest)


def _largest(names: Iterable[str], weights: Iterable[float], most: int) -> frozenset[str]:
    """The names that weigh most, at most so many."""
    summed: defaultdict[str, float] = defaultdict(float)
    for name, weight in zip(names, weights, strict=True):
        summed[name] += weight
    summed.pop(OTHER, None)
    return frozenset(sorted(summed, key=lambda name: (-summed[name], name))[:most])


def _summed(names: Iterable[str], values: Iterable[float], named: frozenset[str]) -> dict[str, float]:
    """Values by name; those of names that are not among `named` together."""
    summed: defaultdict[str, float] = defaultdict(float)
    for name, value in zip(names, values, strict=True):
        summed[name if name in named else OTHER] += value
    return dict(summed)


def _one(name: str, text: str, value: float) -> Metric:
    return Metric(name, "gauge", text, [({}, value)])


def _by(label: str, name: str, text: str, values: Mapping[str, float], kind: str = "gauge") -> Metric:
    return Metric(name, kind, text, [({label: key}, value) for key, value in values.items()])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    r"""A name as the value of a label; it may be anything.

    >>> print(_escaped('a"b\\c\nd'))
    a\"b\\c\nd
    """
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
