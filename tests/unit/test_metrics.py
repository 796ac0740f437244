"""What Prometheus is told of a cluster, and what is made from it in docs/monitoring."""

import json
import re
import shutil
import subprocess
from array import array
from dataclasses import fields, replace
from math import isnan
from pathlib import Path

import pytest
import yaml

from bench.synthetic import SyntheticCluster
from scaler.cli.metrics import _Outages
from scaler.monitor import Seen, Snapshot
from scaler.monitor.history import History
from scaler.monitor.metrics import (
    AGENTS,
    FUNCTIONS,
    GONE,
    OTHER,
    PROVIDERS,
    Departed,
    Exposition,
    exposition,
    metrics_of,
)
from scaler.monitor.totals import totals_of
from scaler.protocol.messages import u32
from scaler.protocol.messages.cluster_view import FleetColumns

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
LINE = re.compile(r'([a-z_0-9]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')


def text_of(snapshot: Snapshot) -> str:
    return exposition(Seen(snapshot, True, 0.0, ""))


def values(text: str) -> dict[str, float]:
    """Samples by name and labels; fails on a line that is none."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = LINE.fullmatch(line)
            assert match, line
            found[line.rpartition(" ")[0]] = float(match[3])
    return found


def promtool(*arguments: str, text: str = "") -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian's package prometheus)")
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_sums_are_those_of_the_snapshot():
    snapshot = SyntheticCluster(3, 4).snapshot()
    found = values(text_of(snapshot))
    rows = snapshot.rows
    assert found["scaler_up"] == 1
    assert found['scaler_rows{state="running"}'] == rows.running
    states = ("waiting", "queued", "handed", "running")
    assert sum(found[f'scaler_rows{{state="{state}"}}'] for state in states) == (
        rows.waiting + rows.queued + rows.at_agents
    )
    assert found['scaler_rows_ended_total{outcome="failed"}'] == rows.failed
    assert found['scaler_rows_again_total{reason="retried"}'] == rows.retried > 0
    assert found["scaler_workers_memory_bytes"] == sum(snapshot.workers.memory)
    assert sum(value for name, value in found.items() if name.startswith("scaler_workers{")) == 12
    stored = sum(value for name, value in found.items() if name.startswith("scaler_agent_stored_bytes"))
    assert stored == sum(snapshot.agents.stored) == found["scaler_objects_stored_bytes"]
    seconds = sum(value for name, value in found.items() if name.startswith("scaler_function_seconds_total"))
    assert seconds == pytest.approx(sum(snapshot.functions.total_us) / 1e6)


def test_what_is_told_of_functions_and_of_all_rows_has_one_set_of_words():
    snapshot = SyntheticCluster(2, 4).snapshot()
    metrics = {metric.name: metric for metric in metrics_of(snapshot, totals_of(snapshot))}

    def words(name: str, label: str) -> set[str]:
        return {labels[label] for labels, _ in metrics[name].samples}

    assert words("scaler_function_rows_ended_total", "outcome") < words("scaler_rows_ended_total", "outcome")
    # of a function's rows it is known which ones agents have, no more: what had a name of the others would mean less
    assert words("scaler_function_rows", "state").isdisjoint(words("scaler_rows", "state"))
    placed = sum(value for labels, value in metrics["scaler_function_rows"].samples if labels["state"] == "placed")
    assert placed == sum(snapshot.functions.running)


#: what promtool reads, by its first word, of a page of metrics: https://prometheus.io/docs/instrumenting/exposition_formats
KINDS = {"counter", "gauge"}


def test_the_page_is_as_the_format_has_it():
    """Each name once, its help and kind before its samples, no sample twice; counters and they alone end in _total."""
    text = text_of(SyntheticCluster(5, 4, fleet=True).snapshot())
    assert text.endswith("\n")
    seen: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert words
            assert name not in seen
            seen.append(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == seen[-1]
            assert kind in KINDS
            assert (kind == "counter") == name.endswith("_total")
        else:
            assert re.split("[{ ]", line)[0] == seen[-1]
    assert len(values(text)) == sum(not line.startswith("#") for line in text.splitlines())


def left(snapshot: Snapshot, client: int, epoch: int | None = None) -> Snapshot:
    """The same without a client, at this or another scheduler."""
    view = snapshot.view
    of, numbers = view.functions, [number for number in view.clients.numbers if number != client]
    rows = [at for at, each in enumerate(of.clients) if each != client]
    columns = {}
    for item in fields(of):
        column = getattr(of, item.name)
        kept = [column[at] for at in rows]
        columns[item.name] = array(column.typecode, kept) if isinstance(column, array) else tuple(kept)
    clients = replace(view.clients, numbers=u32(numbers))
    scheduler = replace(view.scheduler, epoch=epoch or view.scheduler.epoch)
    return replace(snapshot, view=replace(view, clients=clients, functions=replace(of, **columns), scheduler=scheduler))


def test_what_is_counted_of_a_function_stays_when_one_of_its_clients_goes():
    now = SyntheticCluster(2, 4, clients=2, functions=4).snapshot()
    now = replace(now, view=replace(now.view, functions=replace(now.functions, names=("f",) * 4)))
    known = [Seen(now, True, 0.0, "")]
    told = Exposition(lambda: known[0])

    def counters(text: str = "") -> dict[str, float]:
        found = values(text or told.text())
        return {name: value for name, value in found.items() if re.match("scaler_function.*_total", name)}

    first = counters()
    assert len(first) == 4
    known[0] = Seen(left(now, 1), True, 0.0, "")
    assert counters() == first
    assert counters() == first  # and is not counted twice
    known[0] = Seen(left(left(now, 1), 2), True, 0.0, "")
    assert counters() == first
    known[0] = Seen(left(now, 1, epoch=5), True, 0.0, "")
    assert counters() == counters(exposition(known[0])) != first  # another scheduler's begin anew


def test_what_a_client_did_between_two_questions_is_counted():
    both = SyntheticCluster(2, 4, clients=2, functions=4).snapshot()
    one = left(both, 2)
    known = [Seen(one, True, 0.0, "")]
    told = Exposition(lambda: known[0])

    def done() -> float:
        return sum(value for name, value in values(told.text()).items() if "function_rows_ended" in name)

    before = done()
    told.note(Seen(both, True, 0.0, ""))
    told.note(Seen(both, True, 0.0, ""))
    of = both.functions
    assert before < sum([*of.done, *of.failed, *of.cancelled]) == done() == done()


def test_clients_that_come_and_go_leave_no_more_names_than_are_kept():
    now, departed = SyntheticCluster(1, 1, clients=1, functions=1).snapshot(), Departed()
    for client in range(1, GONE + 20):
        functions = replace(now.functions, clients=u32([client]), names=(f"f{client}",))
        clients = replace(now.clients, numbers=u32([client]))
        departed.see(replace(now, view=replace(now.view, functions=functions, clients=clients)))
    assert len(departed.counts["done"]) == GONE + 1
    assert departed.counts["done"][OTHER] == 18 * now.functions.done[0]


def test_labels_are_bounded_however_many_agents_and_functions_there_are():
    snapshot = SyntheticCluster(AGENTS + 7, 2, functions=FUNCTIONS + 9).snapshot()
    metrics = {metric.name: metric for metric in metrics_of(snapshot, totals_of(snapshot))}
    agents = {labels["agent"] for labels, _ in metrics["scaler_agent_rows"].samples}
    assert len(agents) == AGENTS + 1
    assert OTHER in agents
    assert sum(value for _, value in metrics["scaler_agent_rows"].samples) == sum(snapshot.agents.rows)
    taken = metrics["scaler_function_seconds_total"].samples
    assert len(taken) == FUNCTIONS + 1
    shortest = min(value for labels, value in taken if labels["function"] != OTHER)
    times = sorted(snapshot.functions.total_us, reverse=True)
    assert shortest == times[FUNCTIONS - 1] / 1e6
    assert sum(len(metric.samples) for metric in metrics.values()) <= 5000


def test_a_name_can_be_anything():
    snapshot = SyntheticCluster(1, 2, functions=2).snapshot()
    names = ('a"} 1\nscaler_up 0\n# "\\', "<script>\udcff\x00")
    view = replace(snapshot.view, functions=replace(snapshot.functions, names=names))
    text = text_of(replace(snapshot, view=view))
    assert values(text)["scaler_up"] == 1
    text.encode()
    promtool("check", "metrics", text=text)


def test_of_a_function_no_row_of_which_has_ended_no_duration_is_told():
    snapshot = SyntheticCluster(1, 2, functions=2).snapshot()
    functions = replace(snapshot.functions, p50_us=[0, 2_000_000], p95_us=[0, 3_000_000], names=("new", "old"))
    text = text_of(replace(snapshot, view=replace(snapshot.view, functions=functions)))
    assert 'scaler_function_median_duration_seconds{function="old"} 2.0' in text
    assert 'duration_seconds{function="new"}' not in text


def test_without_a_scheduler_there_are_no_old_figures():
    snapshot = SyntheticCluster(1, 1).snapshot()
    assert values(exposition(Seen(snapshot, False, 0.0, "gone"))) == {"scaler_up": 0}
    assert values(exposition(Seen(None, True, 0.0, ""))) == {"scaler_up": 1}
    assert values(exposition(Seen(snapshot, True, 0.0, "", silence=3))) == {"scaler_up": 0}


def test_a_scheduler_without_keys_is_a_gauge():
    snapshot = SyntheticCluster(1, 1).snapshot()
    assert values(text_of(snapshot))["scaler_scheduler_insecure"] == 0
    scheduler = replace(snapshot.scheduler, insecure=True)
    text = text_of(replace(snapshot, view=replace(snapshot.view, scheduler=scheduler)))
    assert values(text)["scaler_scheduler_insecure"] == 1


@pytest.mark.parametrize(
    ("fields", "halted", "missing"),
    [
        ({}, 0, 0),
        ({"partner": "tcp://b:1", "roster": 3}, 0, 0),
        ({"partner": "tcp://b:1", "silence": 9.0}, 0, 1),
        ({"partner": "tcp://b:1", "silence": 9.0, "trouble": "1 of 3 agents are heard"}, 1, 1),
        ({"partner": "tcp://b:1", "silence": 9.0, "trouble": "it stands by", "stands_by": True}, 1, 0),
        ({"partner": "tcp://b:1", "stands_by": True}, 0, 0),
    ],
)
def test_that_nothing_is_handed_out_and_that_nobody_stands_by_are_gauges(fields, halted, missing):
    snapshot = SyntheticCluster(1, 1).snapshot()
    scheduler = replace(snapshot.scheduler, **fields)
    found = values(text_of(replace(snapshot, view=replace(snapshot.view, scheduler=scheduler))))
    assert (found["scaler_scheduler_halted"], found["scaler_standby_missing"]) == (halted, missing)


def test_promtool_finds_nothing_to_say():
    promtool("check", "metrics", text=text_of(SyntheticCluster(20, 4).snapshot()))
    promtool("check", "rules", str(MONITORING / "alerts.yml"))


def test_each_name_in_the_dashboard_and_the_rules_exists():
    snapshot = SyntheticCluster(2, 2).snapshot()
    known = {"scaler_up", *(metric.name for metric in metrics_of(snapshot, totals_of(snapshot)))}
    board = json.loads((MONITORING / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(expressions) >= 10
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    expressions += [rule["expr"] for rule in group["rules"]]
    assert set(re.findall(r"\bscaler_\w+", " ".join(expressions))) - known == set()


def test_rates_are_made_within_one_scheduler_and_history_is_bounded():
    cluster, history = SyntheticCluster(2, 2), History(points=3)
    first, second = cluster.snapshot(), cluster.snapshot()
    assert isnan(history.add(first, totals_of(first))["finished"])
    point = history.add(second, totals_of(second))
    assert point["finished"] == second.rows.finished - first.rows.finished
    other = replace(first, view=replace(first.view, scheduler=replace(first.scheduler, epoch=99)))
    assert isnan(history.add(other, totals_of(other))["finished"])  # nothing to compare with
    for _ in range(9):
        snapshot = cluster.snapshot()
        history.add(snapshot, totals_of(snapshot))
    assert {len(values) for values in history.columns().values()} == {3}


def test_hosts_that_are_asked_for_have_labels_of_a_bounded_number():
    assert "scaler_fleet_hosts" not in text_of(SyntheticCluster(3, 4).snapshot())
    snapshot = SyntheticCluster(3, 4, fleet=True).snapshot()
    found = values(text_of(snapshot))
    assert found['scaler_fleet_hosts{provider="slurm",state="pending"}'] == 4
    assert found["scaler_fleet_pending_seconds"] == 180
    n = PROVIDERS + 5
    many = FleetColumns(
        tuple(f"p{i}" for i in range(n)), u32(range(n)), u32([1] * n), u32([0] * n), u32([0] * n), u32([0] * n),
        u32([0] * n),
    )  # fmt: skip
    crowded = Snapshot(1, replace(snapshot.view, fleets=many), snapshot.workers)
    found = values(text_of(crowded))
    pending = [value for name, value in found.items() if name.startswith("scaler_fleet_hosts") and "pending" in name]
    assert len(pending) == PROVIDERS + 1
    assert sum(pending) == n


def test_whoever_serves_metrics_says_once_why_there_are_none(capfd):
    outages = _Outages()
    for seen in [
        Seen(None, True, 0, ""), *2 * [Seen(None, False, 0, "nobody listens")], Seen(None, True, 0, ""),
        *2 * [Seen(None, True, 0, "", silence=4)],
    ]:  # fmt: skip
        outages.note(seen)
    assert capfd.readouterr().err.splitlines() == [
        "scaler metrics shows no cluster: nobody listens",
        "scaler metrics shows the cluster again",
        "scaler metrics shows no cluster: the scheduler does not answer",
    ]
