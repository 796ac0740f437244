"""What screens show of a snapshot: the documents' figures, rows in order, rows that match, and names made harmless."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.synthetic import SyntheticCluster
from scaler.monitor import formats
from scaler.monitor.blocks import blocks, panel, tasks
from scaler.monitor.snapshot import Snapshot
from scaler.monitor.tables import AGENTS, TABLES, WORKERS, Column, Table, worker_at
from scaler.protocol.codes import AgentFlag
from scaler.protocol.messages import u8

HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07",
    "a\nb\r\tc\x00",
    "\u202eevil\u2066",
    "e" + 300 * "\u0301",
    "\ud800",
    "\x9b31m",
    "x" * 9000,
]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return SyntheticCluster(agents=5, workers=7, seed=3).snapshot()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_takes_the_room_it_is_given_and_commands_no_terminal(name: str) -> None:
    for columns in (0, 1, 2, 7, 40):
        shown = formats.padded(formats.inert(name), columns)
        assert formats.width(shown) == columns == len(shown)
        assert shown.isprintable()
        shown.encode()


def test_letters_that_take_two_columns_are_never_cut_in_half() -> None:
    for columns in range(12):
        assert formats.width(formats.padded("工人 of 工人", columns, left=True)) == columns


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (formats.size, {0: "0", 999: "999b", 1000: "1.0k", 1023 << 10: "1.0m", 2**30 - 1: "1.0g", 2**63: "8.0e"}),
        (formats.duration, {0: "0", 99: "99us", 100: "0.1ms", 9_949: "9.9ms", 9_950: "10ms", 999_999: "999ms"}),
        (formats.duration, {10**6: "1.0s", 59_999_999: "59.9s", 60_000_000: "1m00s", 3600_000_000: "1h00m"}),
        (formats.duration, {86_399_999_999: "23h59m", 86_400_000_000: "1d00h", 2**32 * 1000: "49d17h"}),
    ],
)  # fmt: skip
def test_figures_change_their_unit_before_they_are_long(form: Callable[[int], str], shown: dict[int, str]) -> None:
    assert {number: form(number) for number in shown} == shown


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_is_sorted_by_is_what_is_shown(table: Table, snapshot: Snapshot) -> None:
    assert table.length(snapshot) > 1
    for column in table.columns:
        values = column.all(snapshot)
        assert len(values) == table.length(snapshot)
        if column.name != "worker":  # by host and slot, not by the number of the process in front of them
            assert [column.at(snapshot, row) for row in range(len(values))] == list(values), column.name
        downwards = table.sorted(snapshot, column.name)
        assert [values[row] for row in downwards] == sorted(values, reverse=True)
        assert [values[row] for row in table.sorted(snapshot, column.name, upwards=True)] == sorted(values)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_no_two_columns_of_a_table_have_one_key_or_one_name(table: Table) -> None:
    keys = [key for column in table.columns for key in column.keys]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & set("/?Q0123456789")  # these mean the same in all of them
    assert len({column.name for column in table.columns}) == len(table.columns)


def test_workers_have_the_documents_columns_and_keys() -> None:
    def keys_of(column: Column) -> tuple[str, str]:
        return column.name, column.keys

    assert [keys_of(column) for column in WORKERS.columns[:10]] == [
        ("worker", "n"), ("agt_cpu", "C"), ("agt_rss", "M"), ("cpu", "c"), ("rss", "m"), ("free", "f"), ("sent", "w"),
        ("queued", "dq"), ("lag", "l"), ("ITL", "i"),
    ]  # fmt: skip
    assert WORKERS.order == "cpu"


def test_a_worker_is_found_by_process_host_function_and_id(snapshot: Snapshot) -> None:
    rows = range(len(snapshot.workers))
    for text in ("host-0003", snapshot.function_of(0).upper(), str(snapshot.workers.pids[11])):
        expected = [
            row for row in rows
            if text.casefold() in (snapshot.host_of(row) + " " + snapshot.function_of(row)).casefold()
            or text == str(snapshot.workers.pids[row])
        ]  # fmt: skip
        assert expected
        assert sorted(WORKERS.sorted(snapshot, text=text)) == expected, text
    for row in rows:
        name = snapshot.worker_id(row)
        assert worker_at(snapshot, name) == row
        assert row in WORKERS.sorted(snapshot, text=name)
    assert worker_at(snapshot, "77.1") is worker_at(snapshot, "2.77") is None


def test_of_an_agent_that_has_not_reported_nothing_is_shown_that_only_it_knows(snapshot: Snapshot) -> None:
    agents = replace(snapshot.agents, flags=u8([0] * len(snapshot.agents)))
    silent = replace(snapshot, view=replace(snapshot.view, agents=agents))
    cells = dict(zip([column.name for column in AGENTS.columns], AGENTS.rows(silent, [0])[0], strict=True))
    untold = {name for name, cell in cells.items() if cell == formats.UNKNOWN} - {"left"}
    assert untold == {"agt_cpu", "agt_rss", "host_cpu", "free", "queued", "stored", "spilled", "fetched", "lag"}


def test_a_function_with_a_bar_in_its_name_is_found_by_it(snapshot: Snapshot) -> None:
    old, new = snapshot.function_of(0), "load|clean"
    names = tuple(new if name == old else name for name in snapshot.view.worker_names)
    named = replace(snapshot, view=replace(snapshot.view, worker_names=names))
    expected = [row for row in range(len(named.workers)) if named.function_of(row) == new]
    assert sorted(WORKERS.sorted(named, text=new)) == expected != []
    assert WORKERS.sorted(named, text=WORKERS.rows(named, [5])[0][0]) == [5]  # all that the first column shows


def test_rows_of_what_is_chosen_are_those_of_all(snapshot: Snapshot) -> None:
    for table in TABLES:
        everything = table.rows(snapshot)
        order = table.sorted(snapshot)
        assert table.rows(snapshot, order[:3]) == [everything[row] for row in order[:3]]


def test_each_row_is_counted_once_by_the_documents_names(snapshot: Snapshot) -> None:
    counts, rows = tasks(snapshot), snapshot.rows
    assert list(counts)[:6] == ["unassigned", "running", "success", "failed", "canceled", "not_found"]
    assert counts["unassigned"] + counts["running"] == rows.waiting + rows.queued + rows.at_agents
    assert counts["running"] == sum(flags & 2 > 0 for flags in snapshot.workers.flags)


def test_messages_stand_in_the_documents_order_and_none_is_left_out(snapshot: Snapshot) -> None:
    _, _, sent, received = blocks(snapshot)
    assert [name for name, _ in sent.lines][:5] == [
        "HeartbeatEcho",
        "Task",
        "TaskResult",
        "TaskCancel",
        "BalanceRequest",
    ]
    assert {name for name, _ in sent.lines} == set(snapshot.sent)
    assert dict(received.lines)["Heartbeat"] == formats.count(snapshot.received["Heartbeat"])


def test_the_panel_has_the_busiest_first(snapshot: Snapshot) -> None:
    clients, functions, objects = panel(snapshot, 4)
    assert [block.title for block in (clients, functions, objects)] == [
        "client_manager", "func_to_num_tasks", "object_id_to_tasks"
    ]  # fmt: skip
    assert [name for name, _ in functions.lines][:1] == ["pricing.value_at_risk"]
    assert len(functions.lines) == len(objects.lines) == 4


def test_hosts_that_are_asked_for_stand_beside_the_table_while_somebody_tells_of_them(snapshot: Snapshot) -> None:
    assert [block.title for block in panel(snapshot)][3:] == []
    told = SyntheticCluster(agents=5, workers=7, seed=3, fleet=True).snapshot()
    (hosts,) = panel(told)[3:]
    assert hosts.lines == (("slurm", "5 of 9, 4 pending since 3m00s, 1 draining"), ("", "4 jobs: Priority"))


def test_an_agents_job_and_what_is_left_of_its_walltime_are_shown(snapshot: Snapshot) -> None:
    (agents,) = [table for table in TABLES if table.name == "agents"]
    shown = [dict(zip([column.name for column in agents.columns], row, strict=True)) for row in agents.rows(snapshot)]
    assert {(row["job"], row["left"]) for row in shown} == {("", "-"), ("4703", "1h00m"), ("4706", "1h00m")}
    snapshot.agents.flags[0] |= AgentFlag.DRAINING
    assert agents.rows(snapshot)[0][[column.name for column in agents.columns].index("state")] == "draining"
    snapshot.agents.flags[0] &= ~AgentFlag.DRAINING


def test_a_name_that_is_there_as_it_stands_means_that_alone() -> None:
    """What a link or a key leads to: a worker, a function or a host, not those whose names begin like it."""
    whole = SyntheticCluster(agents=12, workers=16).snapshot()
    named = {whole.worker_id(row) for row in WORKERS.sorted(whole, "worker", upwards=True, text="2.1")}
    assert named == {"2.1"}
    assert len(WORKERS.sorted(whole, "worker", upwards=True, text="2.")) >= 16
    cell = f"{whole.workers.pids[3]}|{whole.host_of(3)}|{whole.worker_id(3)}"
    assert WORKERS.sorted(whole, "worker", upwards=True, text=cell.casefold()) == [3]
    names = list(whole.view.worker_names)
    whole.view.worker_names = tuple("job" if at % 2 else "job_other" for at in range(len(names)))
    found = WORKERS.sorted(whole, "worker", upwards=True, text="job")
    assert found
    assert {whole.function_of(row) for row in found} == {"job"}
    assert {whole.function_of(row) for row in WORKERS.sorted(whole, "worker", upwards=True, text="jo")} == {
        "job", "job_other",
    }  # fmt: skip
