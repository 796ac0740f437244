"""What the dashboard's pages have: the terminal's cells, links to each other, and pictures of all workers."""

import json
import time
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from bokeh.document import Document
from bokeh.util.token import generate_jwt_token

from bench.synthetic import SyntheticCluster
from scaler.monitor import Seen, tables
from scaler.monitor.blocks import blocks
from scaler.monitor.dashboard import content, heat, plots
from scaler.monitor.dashboard.handlers import ASSETS, PageSocket
from scaler.monitor.dashboard.layout import PART_ROWS, View
from scaler.monitor.dashboard.live import LivePage, Sight
from scaler.monitor.dashboard.page import html
from scaler.monitor.dashboard.pages import PAGES
from scaler.monitor.formats import moment
from scaler.monitor.history import SERIES
from scaler.monitor.totals import totals_of
from scaler.protocol.codes import MAX_NAME

BY_PATH = {page.path: page for page in PAGES}
HOSTILE = "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def snapshot():
    return SyntheticCluster(5, 16).snapshot()


def shown(snapshot, page, **view):
    return content.shown(snapshot, totals_of(snapshot), View(page.path, **view), page.listing, *page.cards)


def written(cells: dict, table: tables.Table) -> list[tuple[str, ...]]:
    """The cells that the terminal has, too."""
    return list(zip(*[cells[column.name] for column in table.columns], strict=True))


def test_the_first_page_is_the_terminals_screen_cell_for_cell(snapshot):
    now = shown(snapshot, BY_PATH[""], part=2)
    order = tables.WORKERS.sorted(snapshot)
    assert written(now.tables["workers"], tables.WORKERS) == tables.WORKERS.rows(snapshot, order[PART_ROWS:])
    for block in blocks(snapshot):
        cells = now.tables[block.title]
        assert tuple(zip(cells["name"], cells["value"], strict=True)) == block.lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path or "overview")
def test_each_listing_is_sorted_filtered_and_parted_as_its_address_says(snapshot, page):
    table = page.listing.table
    column = table.columns[-1].name
    rows = table.sorted(snapshot, column, upwards=True)
    now = shown(snapshot, page, sort=column, is_upwards=True)
    assert written(now.tables[table.name], table) == table.rows(snapshot, rows[:PART_ROWS])
    assert now.parts == -(-len(rows) // PART_ROWS)
    assert shown(snapshot, page, sort="no such column", part=99).parts == now.parts
    nothing = shown(snapshot, page, find="no row has this")
    assert written(nothing.tables[table.name], table) == []
    for card in page.cards:
        assert set(now.tables[card.name]) == {"name", "value"}


def test_links_lead_to_pages_that_have_what_they_promise(snapshot):
    for page in PAGES:
        for name, cells in shown(snapshot, page).tables.items():
            for link in {link for key in cells if key.endswith("_link") for link in cells[key] if link}:
                parts = urlsplit(link)
                assert parts.scheme == parts.netloc == ""
                view = View.of(parts.path, {k: [v.encode() for v in vs] for k, vs in parse_qs(parts.query).items()})
                there = shown(snapshot, BY_PATH[parts.path], find=view.find, client=view.client)
                found = any(there.tables[BY_PATH[parts.path].listing.card.name].values())
                assert found or name == "functions", (name, link)  # what was just at work may not be any more
    of_one = shown(snapshot, BY_PATH["functions"], client=2).tables["functions"]
    assert set(of_one["client"]) == {"2"}


@pytest.mark.parametrize(("path", "column"), [("functions", "progress"), ("clients", "progress"), ("agents", "busy")])
def test_a_bar_adds_up_and_the_page_says_what_its_colours_mean(snapshot, path, column):
    page = BY_PATH[path]
    text, style = html(page, View(path), [], "", "1", {}), (ASSETS / "dashboard.css").read_text()
    for bar in shown(snapshot, page).tables[path][column]:
        parts = [part.partition(":") for part in bar.split(",")]
        assert sum(float(share) for _, _, share in parts) == pytest.approx(100, abs=0.1)
        for name, _, _ in parts:
            assert f'<i class="is-{name}"></i>{name}<' in text
            assert f".is-{name}" in style
    assert ("is-failed" in text) == (path == "functions")  # of clients it is not known
    assert content.bar(done=0) == ""


def test_a_table_that_nothing_of_is_shown_does_not_say_that_there_is_nothing():
    page = BY_PATH["functions"]

    def empty(**view):
        return html(page, View("functions", **view), [], "", "1", {}).partition('data-empty="')[2].partition('"')[0]

    assert empty() == "nobody has submitted anything yet"
    assert empty(find="work") == empty(find="work", client=3) == "nothing has such a name"
    assert empty(client=3) == "client 3 has submitted nothing, or is gone"


def test_who_looks_for_a_name_among_functions_of_a_client_finds_no_others():
    text = html(BY_PATH["functions"], View("functions", client=3, find="work"), [], "", "1", {})
    assert '<input type="hidden" name="client" value="3">' in text
    assert "only those of client 3 with &#x27;work&#x27;" in text


def test_one_of_them_is_called_one():
    one = SyntheticCluster(1, 1, clients=1).snapshot()
    for path, words in ("agents", "1 agent, by"), ("workers", "1 worker, by"), ("clients", "1 client, by"):
        assert shown(one, BY_PATH[path]).notes[path].startswith(words)


def test_before_anything_was_fetched_no_bandwidth_is_made_up(snapshot):
    def bandwidth(fetched):
        view = replace(snapshot.view, objects=replace(snapshot.objects, fetched=fetched))
        cells = content.all_objects(replace(snapshot, view=view))
        return dict(zip(cells["name"], cells["value"], strict=True))["bandwidth between hosts"]

    assert bandwidth(1000) != bandwidth(0) == "-"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path or "overview")
@pytest.mark.parametrize("view", [{}, {"find": HOSTILE, "sort": HOSTILE, "by": HOSTILE, "theme": "dark"}])
def test_a_page_runs_no_scripts_but_the_servers_own(page, view):
    scripts: list[str | None] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            known = dict(attributes)
            assert not any(name.startswith("on") for name in known), known
            for name in ("href", "src", "action"):
                assert not urlsplit(known.get(name) or "").netloc
                assert urlsplit(known.get(name) or "").scheme in ("", "data")
            if tag == "script" and known.get("type") != "application/json":
                scripts.append(known.get("src"))
            assert tag not in ("img", "iframe", "object", "style")

    cells = {"workers": {"function": [HOSTILE]}}
    plots = [(f"plot_{name}", "p1") for name in page.plots]
    text = html(page, View(page.path, **view), plots, "</script>", "1", cells)
    Reader().feed(text)
    assert scripts == ["assets/tables.js?v=1"]
    data = json.loads(text.partition('id="page">')[2].partition("</script>")[0])
    assert data["token"] == "</script>"
    assert data["cells"] == cells  # seen before the document has come
    assert data["scripts"] == ["static/js/bokeh.min.js?v=1", "assets/dashboard.js?v=1"]


def test_a_page_that_is_opened_without_a_scheduler_has_the_last_figures(snapshot):
    page, sight = BY_PATH["workers"], Sight()
    sight.see(Seen(None, False, 100.0, "nobody is there"))
    cells = LivePage(Document(), page, View("workers"), sight).cells()
    assert (cells["workers"], cells["status"]["number"]) == ({}, [0])  # of which nothing is said: nothing is known
    sight.see(Seen(snapshot, True, 100.0, ""))
    sight.see(Seen(snapshot, True, 100.0, "", silence=3))
    cells = LivePage(Document(), page, View("workers"), sight).cells()
    assert cells["status"]["banner"] == ["the scheduler has not been heard for 3 s"]
    sight.see(Seen(snapshot, False, 200.0, "it is gone"))
    cells = LivePage(Document(), page, View("workers"), sight).cells()
    assert cells["workers"] == shown(snapshot, page).tables["workers"]
    assert cells["status"]["banner"][0].startswith("no scheduler since ")
    assert (cells["status"]["note"], cells["status"]["clock"]) == (["80 workers, by cpu"], [moment(200.0, time.time())])


@pytest.mark.parametrize(("address", "is_quiet"), [("tcp://0.0.0.0:2345", False), ("tcp://127.0.0.1:2345", True)])
def test_every_page_says_of_a_scheduler_without_keys_that_it_has_none(snapshot, address, is_quiet):
    scheduler = replace(snapshot.scheduler, address=address, insecure=True)
    seen = Seen(replace(snapshot, view=replace(snapshot.view, scheduler=scheduler)), True, 100.0, "")
    for page in PAGES:
        sight = Sight()
        assert LivePage(Document(), page, View(page.path), sight).cells()["status"]["notice"] == [""]
        sight.see(seen)
        status = LivePage(Document(), page, View(page.path), sight).cells()["status"]
        (words,) = status["notice"]
        assert words.startswith("Insecure: whoever ")
        assert address in words
        assert "start it without --insecure" in words
        assert (status["notice_is_quiet"], status["banner"]) == ([is_quiet], [""])
        said = replace(scheduler, trouble="1 of 3 agents are heard")
        sight.see(Seen(replace(snapshot, view=replace(snapshot.view, scheduler=said)), True, 0.0, "", 2))
        status = LivePage(Document(), page, View(page.path), sight).cells()["status"]
        assert status["notice"] == [f"{words}. Nothing is handed out: 1 of 3 agents are heard"]
        assert status["notice_is_quiet"] == [False]
        assert '<div id="notice" role="status" hidden></div>' in html(page, View(page.path), [], "", "1", {})
        sight.see(replace(seen, is_connected=False))  # nobody can do anything there any more
        assert LivePage(Document(), page, View(page.path), sight).cells()["status"]["notice"] == [""]


def test_a_wrong_query_is_not_said():
    query = {"part": [b"-3"], "client": [b"9" * 50], "theme": [b"<b>"], "sort": [b"\xff" * 500], "up": [b"maybe"]}
    view = View.of("workers", query)
    assert (view.part, view.client, view.theme, view.is_upwards) == (1, 0, "light", False)
    assert len(view.sort) <= MAX_NAME


def test_the_link_of_a_function_with_a_long_name_finds_that_one_alone(snapshot):
    long = ["m" * (MAX_NAME - 1) + last for last in "ab"]
    functions = replace(snapshot.functions, names=(*long, *snapshot.functions.names[2:]))
    names = (long[0], *snapshot.view.worker_names[1:])
    now = replace(snapshot, view=replace(snapshot.view, functions=functions, worker_names=names))
    link = content.FUNCTIONS.more(now, totals_of(now), [0])["function_link"][0]
    view = View.of(
        "workers", {name: [text.encode() for text in texts] for name, texts in parse_qs(urlsplit(link).query).items()}
    )
    assert tables.FUNCTIONS.sorted(now, text=view.find) == [0]


def test_every_worker_is_in_one_cell_of_the_picture():
    for agents, workers in ((0, 0), (1, 1), (3, 5), (1000, 64)):
        snapshot = SyntheticCluster(agents, workers).snapshot() if agents else empty()
        grid = heat.grid_of(snapshot)
        cells = len(grid.labels)
        assert cells <= heat.CELLS
        assert cells == -(-agents * workers // grid.each)
        assert len({(x, y) for x, y in zip(grid.x.tolist(), grid.y.tolist(), strict=True)}) == cells
        assert heat.grid_of(snapshot) is grid
        values = heat.values_of(snapshot, "cpu", grid.each)
        assert len(values) == cells
        if cells:
            assert values[0] == pytest.approx(np.mean(snapshot.workers.cpus[: grid.each]) / 10, abs=0.51)
        for by in heat.FIGURES:
            assert len(heat.values_of(snapshot, by, grid.each)) == cells


def test_a_worker_with_many_threads_is_shown_with_all_that_it_uses(snapshot):
    cpus = type(snapshot.workers.cpus)("I", [16_000] * len(snapshot.workers))
    busy = replace(snapshot, workers=replace(snapshot.workers, cpus=cpus))
    assert set(heat.values_of(busy, "cpu", 1).tolist()) == {1600}


def empty():
    """A cluster without agents."""
    snapshot = SyntheticCluster(1, 1).snapshot()
    view = replace(snapshot.view, agents=type(snapshot.agents)(), worker_names=())
    return replace(snapshot, view=view, workers=type(snapshot.workers)())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path or "overview")
def test_a_cluster_of_nothing_has_pages_too(page):
    now = shown(empty(), page)
    assert now.parts == 1


def test_every_plot_has_a_title_a_unit_and_what_it_needs():
    for name, plot in plots.PLOTS.items():
        assert plot.title
        assert plot.unit, name
        assert {series for series, _ in plot.series} <= set(SERIES)
    assert {name for page in PAGES for name in page.plots} == set(plots.PLOTS)


@pytest.mark.parametrize("others", [0, 1])
def test_the_session_of_a_page_that_was_left_goes_at_once(others):
    socket = PageSocket.__new__(PageSocket)
    socket.connection, socket.application, socket.application_context = Mock(), Mock(), Mock()
    socket._token = generate_jwt_token("one", signed=False)
    session = socket.application_context.get_session.return_value
    session.connection_count = others
    socket.on_close()
    socket.application.client_lost.assert_called_once_with(socket.connection)
    assert session.request_expiration.called is (others == 0)
