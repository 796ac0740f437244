"""A real browser, driven by selenium: Chromium without a window, which knows nothing but what it is sent to."""

import contextlib
import functools
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.waiting import patience, until

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip
#: tries to start a browser
STARTS = 3
#: what a page has come to: its number of the snapshot, once all of it is bound to its data
_NUMBER = "const r = document.documentElement; return r.classList.contains('ready') ? Number(r.dataset.number) : 0"

_MARKS = "return ['scaler-data', 'scaler-ready'].map((name) => performance.getEntriesByName(name)[0].startTime)"


@functools.cache
def why_not() -> str | None:
    """Return why there is no browser here; None if there is."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        return f"needs {' and '.join(missing)} (Debian: apt-get install chromium chromium-driver; make test-browser)"
    return None if importlib.util.find_spec("selenium") is not None else "needs selenium (pip install scaler[test])"


@contextlib.contextmanager
def browser(width: int = 1280, height: int = 800, notes_traffic: bool = False) -> Iterator[Any]:
    """Give a driver of a browser. If it `notes_traffic`, its log "performance" has what comes and goes.

    Its profile and its sockets are in a directory of a short name, which is removed: the path of a socket has 107
    characters at most, and Chromium ends at once if a longer one would be needed, as in a directory of pytest's.
    """
    with tempfile.TemporaryDirectory(prefix="scaler-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield from _driven(Path(directory), width, height, notes_traffic)


def _driven(directory: Path, width: int, height: int, notes_traffic: bool) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*_FLAGS, f"--user-data-dir={directory / 'profile'}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    logs = {"browser": "ALL"} | ({"performance": "ALL"} if notes_traffic else {})
    options.set_capability("goog:loggingPrefs", logs)
    service = Service(shutil.which("chromedriver"), env=os.environ | {"TMPDIR": str(directory)})
    driver = _started(lambda: webdriver.Chrome(options=options, service=service))
    try:
        resize(driver, width, height)
        driver.set_script_timeout(patience(30.0))
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int) -> None:
    """Have pages take so many pixels from now on."""
    sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


def _started(start: Callable[[], Any]) -> Any:
    """Start a browser; now and then one ends before it can be spoken to, on a machine with little room."""
    from selenium.common.exceptions import SessionNotCreatedException

    for _ in range(STARTS):
        try:
            return start()
        except SessionNotCreatedException as error:
            reason = str(error).splitlines()[0]
    pytest.skip(f"Chromium does not start here, in {STARTS} tries: {reason}")


def shows(driver: Any) -> int:
    """The number of the snapshot that the page shows; waits for one."""
    return until(lambda: driver.execute_script(_NUMBER), "the page to show a snapshot", 40.0)


def opening(driver: Any) -> tuple[float, float]:
    """Milliseconds after which the tables of a page had their first cells, and after which all of it was drawn."""
    data, ready = driver.execute_script(_MARKS)
    return data, ready


#: what Bokeh says of a plot over time that has no points yet, as when a scheduler has just begun; they come
NO_POINTS_YET = "could not set initial ranges"


def complaints(driver: Any) -> list[str]:
    """What the browser's console has, but for what says that all is well."""
    said = [line["message"] for line in driver.get_log("browser") if line["level"] not in ("INFO", "DEBUG")]
    return [message for message in said if NO_POINTS_YET not in message]
