"""What scaler_top draws, and what keys do: without a terminal."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from bench.synthetic import SyntheticCluster
from scaler.monitor import Seen, Snapshot
from scaler.monitor.blocks import Block
from scaler.monitor.formats import width
from scaler.monitor.insecure import exposure_of
from scaler.monitor.records import json_line
from scaler.monitor.sayable import sayable
from scaler.monitor.tables import TABLES, WORKERS
from scaler.monitor.top.layout import ALERT, DIM, plain_text, stacked
from scaler.monitor.top.looking import QUIT, Looking
from scaler.monitor.top.screen import draw
from scaler.protocol.codes import WorkerFlag
from scaler.protocol.messages import u64

NOW = 1_700_000_000.0
SIZES = [(60, 15), (61, 16), (79, 23), (80, 24), (100, 30), (120, 40), (250, 80), (400, 20), (60, 120)]
HOSTILE = "\x1b]0;owned\x07[bold red]\n\u202e<script>" + 300 * "e\u0301" + "工人"


@pytest.fixture
def snapshot() -> Snapshot:
    return SyntheticCluster(agents=4, workers=8, seed=1).snapshot()


def seen(snapshot: Snapshot | None, is_connected: bool = True, reason: str = "") -> Seen:
    return Seen(snapshot, is_connected, NOW - 60, reason)


def screen(looking: Looking, what: Seen, columns: int = 120, lines: int = 40) -> list[str]:
    """Checked to be of that size, and harmless."""
    drawn = [plain_text(line) for line in draw(looking, what, "tcp://127.0.0.1:2345", columns, lines, NOW)]
    assert [width(line) for line in drawn] == [columns] * lines
    assert all(line.isprintable() for line in drawn)
    return drawn


def press(looking: Looking, snapshot: Snapshot | None, *keys: str) -> Looking:
    for key in keys:
        looking.press(key, key if len(key) == 1 else None, snapshot)
    return looking


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_the_terminal_cannot_say_is_written_out_before_it_is_laid_out(snapshot, columns):
    agents = dataclasses.replace(snapshot.view.agents, names=("日本-hôst",) * len(snapshot.agents))
    named = dataclasses.replace(snapshot, view=dataclasses.replace(snapshot.view, agents=agents))
    drawn = screen(Looking(), sayable(seen(named), "ascii"), columns)
    assert all(line.isascii() for line in drawn)
    assert any(r"|\u65e5" in line for line in drawn) or columns == 60  # where there is no room for it
    assert any(line.startswith("worker ") and "ITL" in line for line in drawn) or columns == 60
    assert sayable(seen(named), "utf-8").snapshot is named


def hostile(snapshot: Snapshot) -> Snapshot:
    """All that others may name is named as badly as can be."""
    view = snapshot.view
    parts = {
        "scheduler": dataclasses.replace(view.scheduler, address=HOSTILE, version=HOSTILE),
        "agents": dataclasses.replace(
            view.agents, names=(HOSTILE,) * len(view.agents), capabilities=(HOSTILE,) * len(view.agents)
        ),
        "clients": dataclasses.replace(view.clients, names=(HOSTILE,) * len(view.clients)),
        "functions": dataclasses.replace(view.functions, names=(HOSTILE,) * len(view.functions)),
        "worker_names": (HOSTILE,) * len(view.worker_names),
    }
    return Snapshot(snapshot.number, dataclasses.replace(view, **parts), snapshot.workers)


# ---- what is drawn -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("make", [hostile, lambda snapshot: snapshot], ids=["hostile", "plain"])
def test_every_view_fits_every_terminal_whatever_the_names(make: object, size: tuple[int, int]) -> None:
    assert callable(make)
    shown = make(SyntheticCluster(agents=4, workers=8, seed=1).snapshot())
    for keys in [*"123456?", "enter", "/x"]:
        looking = Looking()
        press(looking, shown, *([keys] if keys == "enter" else keys))
        screen(looking, seen(shown, False, HOSTILE), *size)
    screen(Looking(), seen(None), *size)
    empty = SyntheticCluster(agents=0, workers=0, clients=0, functions=0).snapshot()
    for number in range(len(TABLES)):
        looking = Looking()
        looking.show(number)
        assert any("there are none" in line or "message" in line for line in screen(looking, seen(empty), *size))


@pytest.mark.parametrize(
    "size", [(20, 5), (59, 15), (60, 14), (30, 50), (200, 3)], ids=lambda size: f"{size[0]}x{size[1]}"
)
def test_a_terminal_that_is_too_small_gets_one_line_that_says_what_to_do(
    snapshot: Snapshot, size: tuple[int, int]
) -> None:
    first, *others = screen(Looking(), seen(snapshot), *size)
    assert "60x15" in first
    assert "enlarge" in first
    assert "+" not in first
    assert not any(line.strip() for line in others)


def test_the_smallest_ones_get_something_too(snapshot: Snapshot) -> None:
    for size in [(1, 1), (0, 0), (3, 1)]:
        draw(Looking(), seen(snapshot), "", *size, NOW)


def test_beside_the_table_no_title_stands_alone() -> None:
    blocks = [Block(name, ((f"first {name}", "1"), (f"second {name}", "1"))) for name in ("a", "b", "c")]
    names = [line.split("  ")[0].strip() for line in map(plain_text, stacked(blocks, 20, 5))]
    assert names == ["a", "first a", "", "b", "first b"]
    assert [plain_text(line).strip() for line in stacked(blocks, 20, 1)] == ["a"]
    assert len(stacked(blocks, 20, 40)) == 11


def test_what_a_batch_system_says_at_length_leaves_room_for_how_many_hosts_there_are() -> None:
    words = "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    hosts = Block("hosts", (("slurm", "3 of 7, 4 pending since 3m00s, 1 draining"), ("", words)))
    wide, narrow = ([plain_text(line) for line in stacked([hosts], columns, 9)] for columns in (50, 24))
    assert wide[1].split(maxsplit=1) == ["slurm", "3 of 7, 4 pending since 3m00s, 1+"]
    assert wide[2] == words[:49] + "+"
    assert narrow[1].split(maxsplit=1) == ["slurm", "3 of 7, 4 pendi+"]
    assert narrow[2] == words[:23] + "+"


def test_the_documents_screen_is_there_field_by_field(snapshot: Snapshot) -> None:
    drawn = screen(Looking(), seen(snapshot))
    titles = [part.strip() for part in drawn[0].split(" | ")]
    assert titles == ["scheduler", "task_manager", "scheduler_sent", "scheduler_received"]
    rule = drawn.index("-" * 120)
    blocks = [[part.split() for part in line.split(" | ")] for line in drawn[1:rule]]
    scheduler, tasks, sent, received = zip(*blocks, strict=True)
    assert [each[0] for each in scheduler if each] == ["cpu", "rss"]
    assert [each[0] for each in tasks if each][:6] == [
        "unassigned", "running", "success", "failed", "canceled", "not_found"
    ]  # fmt: skip
    assert dict(each for each in sent if each)["HeartbeatEcho"] == f"{snapshot.sent['HeartbeatEcho']:,}"
    assert dict(each for each in received if each)["Heartbeat"] == f"{snapshot.received['Heartbeat']:,}"
    documented = "worker[n] agt_cpu[C] agt_rss[M] cpu[c] rss[m] free[f] sent[w] queued[d] lag[l]"
    assert drawn[rule + 1].startswith(f"Shortcuts: {documented}")
    assert drawn[rule + 3].startswith("Total 32 worker(s)")
    head, *rows = [line.split(" | ") for line in drawn[rule + 4 : -1]]
    assert head[0].split() == ["worker", "agt_cpu", "agt_rss", "[cpu]", "rss", "free", "sent", "queued", "lag", "ITL"]
    busiest = max(range(len(snapshot.workers)), key=snapshot.workers.cpus.__getitem__)
    assert re.fullmatch(
        r"\d+\|host-\d{4}\|\d\.\d +\d\.\d% +\d+\.\dm +\d\d\.\d% +\d+\.\dm +0 +\d+ +\d+ +[\d.]+ms 111",
        rows[0][0].rstrip(),
    )
    assert rows[0][0].startswith(f"{snapshot.workers.pids[busiest]}|{snapshot.host_of(busiest)}|")
    beside = [part.strip() for _, part in [head, *rows]]
    assert [title for title in beside if "_" in title and " " not in title] == [
        "client_manager", "func_to_num_tasks", "object_id_to_tasks"
    ]  # fmt: skip


def test_messages_received_are_not_left_out_for_more_of_those_that_were_sent(snapshot: Snapshot) -> None:
    types = tuple(f"Message{number}" for number in range(20))
    scheduler = dataclasses.replace(snapshot.scheduler, sent_types=types, sent_counts=u64([9] * 20))
    many = dataclasses.replace(snapshot, view=dataclasses.replace(snapshot.view, scheduler=scheduler))
    for columns, lines in ((120, 24), (100, 30)):
        titles = [part.strip() for part in screen(Looking(), seen(many), columns, lines)[0].split(" | ")]
        assert titles == ["scheduler", "task_manager", "scheduler_sent", "scheduler_received"]


def test_eighty_columns_have_room_for_all_that_the_documents_show_of_workers(snapshot: Snapshot) -> None:
    drawn = screen(Looking(), seen(snapshot), 80, 24)
    (head,) = [line.split() for line in drawn if line.startswith("worker ")]
    assert head == ["worker", "agt_cpu", "agt_rss", "[cpu]", "rss", "free", "sent", "queued", "lag", "ITL"]


def test_sixty_columns_keep_the_column_that_is_sorted_by(snapshot: Snapshot) -> None:
    for column in WORKERS.columns:
        looking = press(Looking(), snapshot, column.keys[0])
        assert any(f"[{column.name}]" in line.split() for line in screen(looking, seen(snapshot), 60, 15)), column.name


@pytest.mark.parametrize("key", "123456")
def test_where_not_all_shortcuts_have_room_those_of_what_is_seen_come_and_a_word_says_so(
    key: str, snapshot: Snapshot
) -> None:
    looking = press(Looking(), snapshot, key)
    (line,) = [line.rstrip() for line in screen(looking, seen(snapshot), 60, 15) if line.startswith("Shortcuts: ")]
    (wide,) = [line.rstrip() for line in screen(looking, seen(snapshot), 250, 15) if line.startswith("Shortcuts: ")]
    assert line == wide or line.endswith("] ?: all")
    if looking.table is WORKERS:
        assert line == "Shortcuts: worker[n] cpu[c] rss[m] free[f] sent[w] ?: all"


def test_a_scheduler_that_is_gone_is_said_with_the_time_and_the_last_figures_stay(snapshot: Snapshot) -> None:
    drawn = screen(Looking(), seen(snapshot, False, "it closed"))
    (line,) = [line for line in drawn if "no scheduler since" in line]
    assert re.match(r"no scheduler since \d\d:\d\d:\d\d \(it closed\) +$", line)
    assert any(line.startswith("Total 32 worker(s)") for line in drawn)


def test_one_that_is_not_heard_any_more_is_said_before_it_is_given_up(snapshot: Snapshot) -> None:
    what = dataclasses.replace(seen(insecure_at(snapshot, "tcp://0.0.0.0:1")), silence=3)
    (line,) = [line.rstrip() for line in screen(Looking(), what) if "heard" in line]
    assert line.startswith("not heard for 3 s  insecure: whoever ")
    (line,) = [
        line.rstrip() for line in screen(Looking(), dataclasses.replace(seen(snapshot), silence=3)) if "heard" in line
    ]
    assert line == "the scheduler has not been heard for 3 s"


def insecure_at(snapshot: Snapshot, address: str) -> Snapshot:
    scheduler = dataclasses.replace(snapshot.scheduler, address=address, insecure=True)
    return dataclasses.replace(snapshot, view=dataclasses.replace(snapshot.view, scheduler=scheduler))


def about_keys(looking: Looking, what: Seen, columns: int, lines: int) -> list[tuple[str, int]]:
    """What is said of it, and in which style."""
    drawn = draw(looking, what, "tcp://a:1", columns, lines, NOW)
    return [(text.rstrip(), style) for line in drawn for text, style in line if "insecure" in text]


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (100, 30), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_scheduler_without_keys_is_said_on_every_screen_in_the_colour_of_what_is_wrong(
    snapshot: Snapshot, size: tuple[int, int]
) -> None:
    what = seen(insecure_at(snapshot, "tcp://0.0.0.0:2345"))
    for keys in "123456?":
        looking = press(Looking(), what.snapshot, keys)
        (said,) = about_keys(looking, what, *size)
        assert said[0] == exposure_of(what.snapshot.scheduler).line(size[0])
        assert said[1] == ALERT
        assert said[0] in "".join(screen(looking, what, *size))
        assert about_keys(looking, seen(snapshot), *size) == []
        assert about_keys(looking, seen(what.snapshot, False, "it closed"), *size) == []


def test_a_filter_of_any_length_hides_no_scheduler_without_keys(snapshot: Snapshot) -> None:
    what = seen(insecure_at(snapshot, "tcp://0.0.0.0:2345"))
    looking = press(Looking(), snapshot, *("/" + "n" * 100))
    (line,) = [line for line in screen(looking, what, 60, 15) if "filter" in line]
    assert re.match(r"insecure  filter: n+\+$", line)
    assert about_keys(looking, what, 60, 15) == [("insecure", ALERT)]


@pytest.mark.parametrize(
    ("fields", "words", "short", "style"),
    [
        ({"trouble": "1 of 3 agents are heard"}, "nothing is handed out: 1 of 3 ag", "nothing is handed out", ALERT),
        ({"partner": "tcp://b:1", "stands_by": True}, "stands by: tcp://b:1 leads", "", DIM),
        (
            {"partner": "tcp://b:1", "stands_by": True, "silence": 9.0},
            "stands by: tcp://b:1 has not been heard for 9.0s", "stands by", ALERT,
        ),
        (
            {"partner": "tcp://b:1", "silence": 9.0},
            "nobody stands by: tcp://b:1 has not been heard for 9.0s", "nobody stands by", ALERT,
        ),
        ({"awaited": "work of 2 clients waits for vm"}, "awaited: work of 2 clients waits for vm", "", DIM),
        ({"partner": "tcp://b:1"}, "", "", DIM),
    ],
)  # fmt: skip
def test_why_a_scheduler_that_is_there_does_nothing_is_said(
    snapshot: Snapshot, fields: dict[str, object], words: str, short: str, style: str
) -> None:
    def at(is_insecure: bool) -> Seen:
        view = dataclasses.replace(snapshot.view.scheduler, insecure=is_insecure, address="tcp://0.0.0.0:1", **fields)
        return seen(dataclasses.replace(snapshot, view=dataclasses.replace(snapshot.view, scheduler=view)))

    def said(looking: Looking, what: Seen) -> tuple[str, str]:
        line = draw(looking, what, "", 60, 15, NOW)[6]
        return plain_text(line).rstrip(), line[0][1]

    assert said(Looking(), at(False))[0].startswith(words)
    assert not words or said(Looking(), at(False))[1] == style
    assert said(Looking(), at(True))[0].startswith(f"insecure  {words[:40]}" if style == ALERT else "insecure: ")
    filtered = press(Looking(), snapshot, "/", "n")
    assert said(filtered, at(False))[0].startswith(f"{short}  filter: n" if short else "filter: n")


def test_where_only_its_own_machine_reaches_a_scheduler_it_is_said_quietly(snapshot: Snapshot) -> None:
    what = seen(insecure_at(snapshot, "tcp://127.0.0.1:2345"))
    assert about_keys(Looking(), what, 80, 24) == [(exposure_of(what.snapshot.scheduler).line(80), DIM)]
    assert about_keys(press(Looking(), snapshot, "/", "n"), what, 80, 24) == []


def test_json_says_of_a_scheduler_without_keys_that_it_has_none(snapshot: Snapshot) -> None:
    assert json.loads(json_line(seen(snapshot)))["scheduler"]["insecure"] == ""
    words = json.loads(json_line(seen(insecure_at(snapshot, "tcp://0.0.0.0:2345"))))["scheduler"]["insecure"]
    assert words.startswith("whoever reaches tcp://0.0.0.0:2345 can run code as its user; start it without --insecure")


def test_a_filter_of_any_length_hides_no_scheduler_that_is_gone(snapshot: Snapshot) -> None:
    looking = Looking(text="n" * 200, is_typing=True)
    (line,) = [line for line in screen(looking, seen(snapshot, False, "it closed"), 60, 15) if "filter" in line]
    assert re.match(r"no scheduler since \d\d:\d\d:\d\d  filter: n+\+$", line)


def test_before_the_first_snapshot_it_says_whether_there_is_a_connection() -> None:
    drawn = [screen(Looking(), Seen(None, there, NOW, "" if there else "it closed")) for there in (True, False)]
    assert ["connected to" in "".join(each) for each in drawn] == [True, False]


# ---- keys ----------------------------------------------------------------------------------------------------------
def test_each_key_of_the_documents_sorts_and_pressed_again_the_other_way(snapshot: Snapshot) -> None:
    names = ["worker", "agt_cpu", "agt_rss", "cpu", "rss", "free", "sent", "queued", "queued", "lag"]
    for key, name in zip("nCMcmfwdql", names, strict=True):
        looking = Looking()
        looking.orders["workers"] = ("ITL", False)
        values = WORKERS.column(name).all(snapshot)
        press(looking, snapshot, key)
        assert looking.by == name
        once = [values[row] for row in looking.order(snapshot)]
        assert once == sorted(values, reverse=name != "worker")
        press(looking, snapshot, key)
        assert [values[row] for row in looking.order(snapshot)] == once[::-1]


def test_each_view_keeps_its_own_order(snapshot: Snapshot) -> None:
    looking = press(Looking(), snapshot, "m", "2", "s", "tab", "shift+tab")
    assert (looking.table.name, looking.by) == ("agents", "stored")
    assert press(looking, snapshot, "1").by == "rss"


def test_what_is_typed_filters_as_it_is_typed_and_sorts_nothing(snapshot: Snapshot) -> None:
    looking = press(Looking(), snapshot, "/", *"host-0003")
    assert {snapshot.host_of(row) for row in looking.order(snapshot)} == {"host-0003"}
    drawn = screen(looking, seen(snapshot))
    assert any("Total 32 worker(s), 8 shown" in line for line in drawn)
    assert any(line.startswith("filter: host-0003_") for line in drawn)
    press(looking, snapshot, "backspace", "x", "enter")
    assert looking.order(snapshot) == []
    assert any("nothing has such a name" in line for line in screen(looking, seen(snapshot)))
    press(looking, snapshot, "escape")
    assert len(looking.order(snapshot)) == 32
    assert looking.by == "cpu"
    press(looking, snapshot, "/", *(["y"] * 1000), "escape")
    assert looking.text == ""


def test_the_chosen_row_is_always_on_the_screen(snapshot: Snapshot) -> None:
    looking = Looking()
    for key in ["down"] * 3 + ["pagedown"] * 9 + ["up", "end", "pageup", "down", "home", "up"]:
        press(looking, snapshot, key)
        screen(looking, seen(snapshot), 80, 24)
        assert looking.first <= looking.cursor < min(32, looking.first + looking.room)
    assert looking.cursor == 0
    press(looking, snapshot, "end")
    screen(looking, seen(snapshot), 80, 24)
    assert looking.cursor == 31
    screen(looking, seen(SyntheticCluster(1, 2).snapshot()), 80, 24)  # most have gone
    assert looking.cursor == 1


def test_a_workers_page_says_what_it_runs_and_since_when_and_that_it_is_gone(snapshot: Snapshot) -> None:
    looking = press(Looking(), snapshot, "enter")
    row = looking.worker_in(snapshot)
    assert row is not None
    drawn = "\n".join(screen(looking, seen(snapshot)))
    for words in (snapshot.function_of(row), snapshot.task_of(row), f"process  {snapshot.workers.pids[row]}", "for "):
        assert words in drawn
    press(looking, snapshot, "m")
    assert looking.by == "cpu"  # of a table that is not there
    others = SyntheticCluster(1, 1).snapshot()
    others.agents.numbers[0] = 99
    assert "it is gone" in "\n".join(screen(looking, seen(others)))
    press(looking, snapshot, "escape")
    assert not looking.worker


def test_the_id_of_a_task_is_readable_however_long_the_name_of_its_function_is(snapshot: Snapshot) -> None:
    snapshot.view.worker_names = ("f" * 500 + "_last",) * len(snapshot.view.worker_names)
    looking = press(Looking(), snapshot, "enter")
    row = looking.worker_in(snapshot)
    assert row is not None
    drawn = screen(looking, seen(snapshot), 60, 15)
    assert f"{snapshot.workers.clients[row]}:{snapshot.workers.ids[row]}" in "\n".join(drawn)
    assert any(re.search("runs +.+f_last *$", line) for line in drawn)  # of a name the end says most


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (0, "is starting"),
        (WorkerFlag.INITIALISED, "free"),
        (WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK, "has work"),
        (WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.SUSPENDED, "waits for other rows"),
        (WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.STOPPED, "its process is stopped"),
        (WorkerFlag.INITIALISED | WorkerFlag.HAS_TASK | WorkerFlag.ENDING, "is being ended"),
    ],
)
def test_a_workers_page_says_its_state_in_words(snapshot: Snapshot, flags: int, words: str) -> None:
    looking = press(Looking(), snapshot, "enter")
    row = looking.worker_in(snapshot)
    assert row is not None
    snapshot.workers.flags[row] = flags
    snapshot.workers.functions[row] = 0
    drawn = "\n".join(screen(looking, seen(snapshot)))
    assert words in drawn
    assert "runs  nothing" in drawn


def test_behind_a_host_and_a_function_are_their_workers(snapshot: Snapshot) -> None:
    looking = press(Looking(), snapshot, "2", "n", "down", "enter")
    assert {snapshot.host_of(row) for row in looking.order(snapshot)} == {"host-0003"}
    press(looking, snapshot, "3", "n", "end")
    screen(looking, seen(snapshot))
    press(looking, snapshot, "enter")
    assert looking.table is WORKERS
    assert looking.text == max(snapshot.functions.names)
    press(looking, snapshot, "3")
    snapshot.functions.clients[looking.order(snapshot)[0]] = 0  # all others together
    assert press(looking, snapshot, "enter").table.name == "functions"


def test_of_several_agents_on_one_host_the_chosen_ones_workers_are_shown(snapshot: Snapshot) -> None:
    agents = dataclasses.replace(snapshot.agents, names=("here",) * len(snapshot.agents))
    same = dataclasses.replace(snapshot, view=dataclasses.replace(snapshot.view, agents=agents))
    looking = press(Looking(), same, "2")
    agent = looking.order(same)[0]
    press(looking, same, "enter")
    assert {same.agent_of_worker[row] for row in looking.order(same)} == {agent}


def test_the_help_has_each_column_and_scrolls_where_it_has_no_room(snapshot: Snapshot) -> None:
    drawn = "\n".join(screen(press(Looking(), snapshot, "?"), seen(snapshot)))
    assert all(column.help in drawn for column in WORKERS.columns)
    assert "more lines: arrows, pages" not in drawn
    assert "more lines: arrows, pages" in "\n".join(screen(press(Looking(), snapshot, "?"), seen(snapshot), 60, 15))
    looking = press(Looking(), snapshot, "?", "end")
    small = "\n".join(screen(looking, seen(snapshot), 60, 15))
    assert WORKERS.columns[-1].help in small
    assert "more lines" not in small
    for table in TABLES:  # what can't be read is no help
        looking.show(TABLES.index(table))
        looking.is_help = True
        assert not any(line.rstrip().endswith("+") for line in screen(looking, seen(snapshot), 60, 80))


@pytest.mark.parametrize("key", ["Q", "ctrl+c", "ctrl+q"])
def test_it_is_left_by(key: str, snapshot: Snapshot) -> None:
    assert Looking().press(key, key if len(key) == 1 else None, snapshot) == QUIT


def test_no_key_does_anything_bad_before_the_first_snapshot() -> None:
    for key in [*"123456nCMcmfwdqliF?/x", "enter", "escape", "enter", "end", "up", "tab", "f12", "backspace"]:
        looking = Looking()
        press(looking, None, key, key)
        screen(looking, seen(None))


# ---- JSON ----------------------------------------------------------------------------------------------------------
def test_a_line_of_json_has_everything_and_stays_one_line(snapshot: Snapshot) -> None:
    line = json_line(seen(hostile(snapshot)))
    assert line.isascii()
    assert line.isprintable()
    data = json.loads(line)
    assert (data["schema"], data["connected"], data["number"]) == (1, True, 1)
    assert data["task_manager"]["success"] == snapshot.rows.finished
    assert data["scheduler"]["sent"] == snapshot.sent
    assert [worker["worker"] for worker in data["workers"]] == [snapshot.worker_id(row) for row in range(32)]
    assert [worker["rss_bytes"] for worker in data["workers"]] == list(snapshot.workers.memory)
    assert {agent["name"] for agent in data["agents"]} == {HOSTILE}
    assert [each["p95_us"] for each in data["functions"]] == list(snapshot.functions.p95_us)
    assert [each["size_bytes"] for each in data["objects"]["largest"]] == list(snapshot.objects.sizes)
    assert [each["queued"] for each in data["clients"]] == list(snapshot.clients.queued)


def test_without_a_scheduler_a_line_of_json_says_since_when_and_shows_nothing_old(snapshot: Snapshot) -> None:
    assert json.loads(json_line(seen(snapshot, False, "it closed"))) == {
        "schema": 1, "connected": False, "since": NOW - 60, "reason": "it closed"
    }  # fmt: skip


def test_only_the_terminal_itself_needs_textual() -> None:
    text = (
        "import sys, scaler.cli.main, scaler.monitor.top.plain, scaler.monitor.records;"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'textual', 'rich'}))"
    )
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"
