"""What the dashboard costs a browser and its own process.

    PYTHONPATH=tests python -m support.page_costs [AGENTS] [WORKERS]

A real Chromium (chromium and chromium-driver) under a cluster that is not there, with another snapshot each second.
Measured: until the tables of a page have their first cells and until all is drawn, what a page is sent each second
once it is open, and by how much the memory of the dashboard's process has grown after 200 loads.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from scaler.monitor.dashboard.pages import PAGES
from support.browser import browser, opening, shows
from support.waiting import until

#: pages that are opened anew, each in a browser that has seen none; seconds that a page is looked at; loads
OPENED, SECONDS, LOADS = 5, 12.0, 200
#: loads before memory is measured first: until then modules, caches and malloc's lists fill
WARM = 20
#: seconds until what browsers have left is thrown away
LEFT = 40.0


def _received(driver: Any) -> Iterator[int]:
    """Bytes of each message that came over a socket, before they were compressed, since this was asked last."""
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            yield len(frame["payloadData"]) * 3 // 4 if frame["opcode"] == 2 else len(frame["payloadData"])


def _opening(url: str) -> None:
    marks = []
    for _ in range(OPENED):
        with browser() as driver:
            driver.get(url)
            shows(driver)
            marks.append(opening(driver))
    for name, times in zip(("first cells", "all drawn"), zip(*marks, strict=True), strict=True):
        print(f"{name:14}{statistics.median(times):8.0f} ms, at most {max(times):.0f}", flush=True)


def _looking(driver: Any, url: str) -> None:
    for page in PAGES:
        driver.get(url.partition("?")[0] + page.path)
        number = shows(driver)
        until(lambda number=number: shows(driver) > number, "the next snapshot", 30.0)
        list(_received(driver))
        time.sleep(SECONDS)
        sizes = list(_received(driver))
        print(f"{page.path or 'overview':14}{sum(sizes) / SECONDS / 1000:8.1f} KB/s, {len(sizes)} messages", flush=True)


def _loading(driver: Any, url: str, process: psutil.Process) -> None:
    def load(times: int) -> None:
        for at in range(times):
            driver.get(url.partition("?")[0] + PAGES[at % len(PAGES)].path)
            shows(driver)

    load(WARM)
    time.sleep(LEFT)
    before = process.memory_info().rss
    load(LOADS)
    time.sleep(LEFT)
    after = process.memory_info().rss
    grown = (after - before) / 1e6
    print(f"{LOADS} loads: {before / 1e6:.1f} MB before, {after / 1e6:.1f} after, grown by {grown:.1f}", flush=True)


def main(agents: int, workers: int) -> None:
    """Print what was measured."""
    command = [sys.executable, "-m", "support.synthetic_dashboard", str(agents), str(workers), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().partition("open ")[2].strip()
            print(f"{agents:,} agents with {workers} workers each", flush=True)
            _opening(url)
            with browser(notes_traffic=True) as driver:
                driver.get(url)
                shows(driver)
                _looking(driver, url)
            with browser() as driver:
                driver.get(url)
                _loading(driver, url, psutil.Process(server.pid))
        finally:
            server.terminate()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3] or ("1000", "64")))
