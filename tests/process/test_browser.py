"""The dashboard in a real Chromium, under a real cluster."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import until
from support.browser import browser, complaints, opening, resize, shows, why_not
from support.ports import fresh_address
from support.proxy import Proxy

from scaler.monitor import Watcher, tables
from scaler.monitor.blocks import blocks

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def chromium():
    """A browser that the tests of this module share: to start one takes longer than most of them."""
    with browser() as driver:
        yield driver


@pytest.fixture
def page(chromium):
    """Gives a driver of a new tab of so many pixels, in which nothing is set and nobody is known."""
    first = chromium.current_window_handle

    def open_tab(width=1280, height=800):
        chromium.switch_to.new_window("tab")
        chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
        chromium.get_log("browser")
        resize(chromium, width, height)
        return chromium

    yield open_tab
    chromium.close()
    chromium.switch_to.window(first)


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
#: of each table: what the browser shows, and what its copy of the server's document has; and the snapshot's number
CELLS = """
const live = Bokeh.documents.at(-1), found = {number: Number(document.documentElement.dataset.number)};
for (const table of document.querySelectorAll("table[data-source]")) {
  const source = live.get_model_by_name(table.dataset.source);
  const columns = JSON.parse(table.dataset.columns).filter(([, kind]) => kind !== "bar").map(([key]) => key);
  const known = Array.from(source.get_column(columns[0]) ?? []).map(
    (_, at) => columns.map((key) => source.get_column(key)[at]));
  const shown = Array.from(table.tBodies[0].rows).filter((row) => !row.querySelector(".empty")).map(
    (row) => columns.map((key, at) => table.classList.contains("long")
      ? row.querySelector(`td[data-key="${key}"]`).textContent : row.cells[at].textContent));
  found[table.dataset.source] = {known, shown};
}
return found;
"""
#: pixels below what is seen of the last lines of output
AT_END = "const b = document.querySelector('.lines tbody'); return b.scrollHeight - b.scrollTop - b.clientHeight"


def hold(path):
    """Run until a file is there; many lines say so."""
    print(*range(100), sep="\n")
    while not Path(path).exists():
        time.sleep(0.01)
    return path


def texts(driver, selector: str) -> str:
    return driver.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def test_a_page_shows_the_terminals_cells_and_outlives_the_scheduler(daemons, tmp_path, page):
    options = ("--heartbeat-interval", "0.2", "--client-timeout", "20", "--agent-timeout", "20")
    daemons.start_scheduler(*options)
    daemons.start_agent(2)
    monitor = daemons.scheduler.says(r"monitor address is (ipc://\S+)")[1]
    running = daemons.run("scaler_ui", "ui", monitor, "--port", "0", "--interval", "0.5")
    url = running.says(r"Dashboard: open (\S+)")[1]
    go = str(tmp_path / "go")
    hold.__qualname__ = hold.__name__ = HOSTILE
    futures = [daemons.client().submit(hold, go) for _ in range(3)]
    seen = {}
    driver = page()
    with Watcher(monitor, 0.5, on_change=lambda now: seen.update({now.snapshot and now.snapshot.number: now.snapshot})):
        driver.get(url)
        shows(driver)
        driver.refresh()  # now there is a snapshot when it is opened
        shows(driver)
        data, ready = opening(driver)
        assert data < ready  # tables have cells before plots are drawn
        assert urlsplit(driver.current_url).query == ""  # the token has left the address

        def same():
            found = driver.execute_script(CELLS)
            return (
                found
                if found["number"] in seen and any(HOSTILE in row[-1] for row in found["workers"]["shown"])
                else None
            )

        found = until(same, "a snapshot that both have seen", 40.0)
        snapshot = seen[found.pop("number")]
        order = tables.WORKERS.sorted(snapshot)
        assert [tuple(row) for row in found["workers"]["shown"]] == tables.WORKERS.rows(snapshot, order)
        for block in blocks(snapshot):
            assert tuple(map(tuple, found[block.title]["shown"])) == block.lines
        for name, cells in found.items():
            assert cells["shown"] == cells["known"], name
        assert driver.title == "Overview · Scaler"  # and nobody's code has changed it
        assert driver.execute_script("return document.querySelectorAll('main img, main script').length") == 0

        driver.execute_script("document.querySelector('td[data-key=function] a').click()")
        until(lambda: driver.current_url.partition("?")[0].endswith("/functions"), "the link to be followed")
        shows(driver)
        assert driver.execute_script(CELLS)["functions"]["shown"][0][0].endswith(HOSTILE)

        driver.execute_script("document.querySelector('td[data-key=function] a').click()")
        until(lambda: driver.current_url.partition("?")[0].endswith("/workers"), "the link to be followed")
        shows(driver)
        driver.execute_script("document.querySelector('td[data-key=worker] a').click()")
        until(lambda: texts(driver, ".lines tbody").endswith("99"), "the last line that a worker has printed", 40.0)
        assert driver.execute_script(AT_END) <= 1  # it is in sight
        driver.execute_script("document.querySelector('.lines tbody').scrollTop = 0")
        number = shows(driver)
        until(lambda: shows(driver) > number, "the next snapshot")
        assert driver.execute_script(AT_END) > 100  # who reads older ones stays there

        daemons.scheduler.signal(signal.SIGKILL)
        until(lambda: texts(driver, "#banner").startswith("no scheduler since "), "the banner", 40.0)
        driver.refresh()
        shows(driver)
        assert texts(driver, "#banner").startswith("no scheduler since ")
        assert len(driver.execute_script(CELLS)["workers"]["shown"]) == 1  # the last figures
        assert texts(driver, "#note").startswith("1 of 2 workers, by cpu")
        daemons.start_scheduler(*options)
        until(lambda: texts(driver, "#banner") == "", "the banner to go", 40.0)
        Path(go).touch()
        assert [future.result(60) for future in futures] == [go] * 3
        number = shows(driver)
        until(lambda: shows(driver) != number, "snapshots of the new scheduler", 40.0)
        assert complaints(driver) == []


#: pixels of what a page has beyond its width, and of the shown part of the first name of a card
BEYOND = "const r = document.documentElement; return r.scrollWidth - r.clientWidth"
#: whether a page that was turned has this width, and keeps to it
TURNED = "const r = document.documentElement; return innerWidth === arguments[0] && r.scrollWidth <= r.clientWidth"
#: of each name of a function: whether its last letter is seen
TAILS = """
return Array.from(document.querySelectorAll("td.tail > *")).filter((each) => each.firstChild).map((each) => {
  const text = each.firstChild, last = document.createRange(), cell = each.parentElement.getBoundingClientRect();
  last.setStart(text, text.length - 1);
  last.setEnd(text, text.length);
  const box = last.getBoundingClientRect();
  return box.left >= cell.left && box.right <= cell.right;
});
"""
NAMED = "return document.querySelector('[data-source=hosts] td').clientWidth"
PAGES = ("", "functions?find=" + 200 * "m", "workers", "agents", "objects", "clients")
WIDE, NARROW = (700, 600), (390, 844)


def check_width(driver, name, size):
    """Nothing is beyond the page; what is long is cut off in its middle."""
    assert driver.execute_script(BEYOND) == 0, (name, size)
    assert set(driver.execute_script(TAILS)) <= {True}, (name, size)
    assert name != "agents" or driver.execute_script(NAMED) > 20  # "slurm", beside how many there are


def test_what_is_long_stays_within_its_page(page):
    """Also when it is turned: half of the pages are opened wide, the others narrow."""
    command = [sys.executable, "-m", "support.synthetic_dashboard", "2", "2", "0"]
    running = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True)
    try:
        url = running.stdout.readline().split()[-1]
        driver = page(*WIDE)
        driver.get(url)
        for number, name in enumerate(PAGES):
            first, second = (NARROW, WIDE) if number % 2 else (WIDE, NARROW)
            resize(driver, *first)
            driver.get(url.partition("?")[0] + name)
            shows(driver)
            check_width(driver, name, first)
            resize(driver, *second)
            until(lambda: driver.execute_script(TURNED, second[0]), "its plots to be as wide as it is now")  # noqa: B023
            check_width(driver, name, second)
    finally:
        running.terminate()
        running.wait()


#: of the line about keys: what it says, whether it is seen, its colours, what of it is cut off
LINE = """
const line = document.querySelector("#notice"), style = getComputedStyle(line);
const beyond = line.scrollWidth - line.clientWidth;
return [line.textContent, line.checkVisibility(), style.color, style.backgroundColor, beyond];
"""
WHITE, TRANSPARENT = "rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize(
    ("address", "options", "is_loud"),
    [
        pytest.param("tcp://0.0.0.0:0", ["--insecure"], True, id="loud"),
        pytest.param("tcp://127.0.0.1:0", ["--insecure"], False, id="quiet"),
        pytest.param("tcp://127.0.0.1:0", [], None, id="with keys"),
    ],
)
def test_a_page_says_of_a_scheduler_without_keys_that_it_has_none_while_it_is_there(
    daemons, page, address, options, is_loud
):
    scheduler = daemons.run("scaler_scheduler", "scheduler", address, *options)
    monitor = scheduler.says(r"monitor address is (ipc://\S+)")[1]
    running = daemons.run("scaler_ui", "ui", monitor, "--port", "0", "--interval", "0.5")
    url = running.says(r"Dashboard: open (\S+)")[1]
    driver = page(*NARROW)
    driver.get(url)
    shows(driver)
    words, is_seen, colour, behind, beyond = driver.execute_script(LINE)
    assert is_seen == (is_loud is not None)
    assert bool(words) == is_seen
    assert words.startswith("Insecure: whoever ") or not is_seen
    if is_seen:
        assert (colour == WHITE and behind != TRANSPARENT) == is_loud
    assert beyond == 0
    scheduler.signal(signal.SIGKILL)
    until(lambda: texts(driver, "#banner").startswith("no scheduler since "), "the banner", 40.0)
    assert driver.execute_script(LINE)[:2] == ["", False]


UPGRADE = {b"Upgrade: websocket": b"Ignored: websocket"}


def test_a_page_whose_socket_cannot_be_opened_says_why_and_tries_again(daemons, page):
    daemons.start_scheduler()
    target = fresh_address()
    between, unnamed = Proxy(target, None), Proxy(target, None)
    try:
        named, other = (each.url.replace("tcp:", "http:") for each in (between, unnamed))
        options = ("--port", target.rpartition(":")[2], "--interval", "0.5", "--allow-origin", named)
        running = daemons.run("scaler_ui", "ui", daemons.address, *options)
        query = urlsplit(running.says(r"Dashboard: open (\S+)")[1]).query
        between.altered = UPGRADE
        unnamed.altered = {f"Host: {unnamed.url[6:]}".encode(): f"Host: {target[6:]}".encode()}
        driver = page()
        driver.get(f"{named}/?{query}")
        until(lambda: "a proxy in front of scaler_ui does not pass it on" in texts(driver, "#banner"), "why", 40.0)
        assert driver.execute_script("return document.documentElement.classList.contains('stale')")
        between.altered = {}
        between.cut()  # what is kept open as well
        number = shows(driver)
        until(lambda: shows(driver) > number and texts(driver, "#banner") == "", "new figures", 40.0)

        between.altered = UPGRADE
        between.cut()
        until(lambda: "does not pass it on" in texts(driver, "#banner"), "why an open page gets no more", 40.0)

        driver.get(f"{other}/?{query}")
        until(lambda: f"with --allow-origin {other}" in texts(driver, "#banner"), "the option to be named", 40.0)
    finally:
        between.close()
        unnamed.close()


def test_a_page_whose_script_does_not_come_says_so(daemons, page):
    daemons.start_scheduler()
    running = daemons.run("scaler_ui", "ui", daemons.address, "--port", "0")
    driver = page()
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*bokeh.min.js*"]})
    driver.get(running.says(r"Dashboard: open (\S+)")[1])
    until(lambda: "a script of this page can't be loaded" in texts(driver, "#banner"), "the banner", 40.0)
