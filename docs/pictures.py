"""Makes the pictures of docs/dashboard.md, of a cluster that is not there, with a real browser.

PYTHONPATH=tests python docs/pictures.py           # needs chromium and chromium-driver
"""

import subprocess
import sys
from pathlib import Path

from support.browser import browser, shows
from support.waiting import until

PICTURES = Path(__file__).parent / "pictures"
#: page, theme, and the height of what is shown
WANTED = (("", "light", 800), ("functions", "light", 520), ("workers", "dark", 720))


def main() -> None:
    """Write them."""
    PICTURES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "support.synthetic_dashboard", "1000", "64", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().partition("open ")[2].strip()
            with browser() as driver:
                driver.get(url)
                first = shows(driver)
                until(lambda: shows(driver) > first + 40, "some history", 300.0)
                for page, theme, height in WANTED:
                    size = {"width": 1280, "height": height, "deviceScaleFactor": 1, "mobile": False}
                    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                    driver.get(f"{url.partition('?')[0]}{page}?theme={theme}")
                    number = shows(driver)
                    until(lambda number=number: shows(driver) > number + 1, "everything to be drawn", 60.0)
                    driver.save_screenshot(str(PICTURES / f"{page or 'overview'}-{theme}.png"))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
