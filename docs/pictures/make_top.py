"""Draws the pictures of scaler_top: `PYTHONPATH=. python docs/pictures/make_top.py`; `--check` says if they are old.

What they show is a synthetic cluster, so that they are the same wherever they are made.
"""

import asyncio
import os
import re
import sys
import time
from html import unescape
from pathlib import Path

from bench.synthetic import SyntheticCluster
from scaler.monitor import Seen
from scaler.monitor.output import LastOutput, place_of
from scaler.monitor.top.app import TopApp

HERE = Path(__file__).parent
#: names of pictures, and the keys after which they are taken
PICTURES = {"top-workers": [], "top-functions": ["3"], "top-worker": ["enter"]}
SIZE = (120, 36)


async def picture(keys: list[str]) -> str:
    """An SVG without anything from elsewhere."""
    cluster = SyntheticCluster(agents=3, workers=4, clients=2, functions=5, seed=7)
    for _ in range(40):
        snapshot = cluster.snapshot()
    app = TopApp("tcp://127.0.0.1:2345", clock=lambda: snapshot.scheduler.time)
    lines = LastOutput((("stdout", "part 17: 48,210 rows"), ("stderr", "part 18: 3 rows without a price are left out")))
    outputs = {place_of(snapshot.worker_id(worker)): lines for worker in range(len(snapshot.workers))}
    app.arrived(Seen(snapshot, True, snapshot.scheduler.time, "", outputs=outputs))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        drawn = app.export_screenshot(title="scaler_top ipc:///tmp/127.0.0.1_2345_monitor")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace("Fira Code,", "")


def words(svg: str) -> list[str]:
    """What can be read in it."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def main(is_check: bool) -> int:
    """Write them, or compare what can be read in them."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    old = []
    for name, keys in PICTURES.items():
        drawn, file = asyncio.run(picture(keys)), HERE / f"{name}.svg"
        if not is_check:
            file.write_text(drawn)
        elif words(drawn) != words(file.read_text()):
            old.append(file.name)
    if old:
        sys.stderr.write(f"run `PYTHONPATH=. python docs/pictures/make_top.py`: not up to date are {', '.join(old)}\n")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
