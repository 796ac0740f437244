"""Real processes under load while something is killed, stopped, cut off or filled: `make soak HOURS=2`.

Hosts are network namespaces (root on Linux; without them it says why and ends). At the end every call has to have ended
with the right value, and memory, descriptors, threads and files are to be as in the beginning: their slopes are in the
report, which is printed and written as JSON to `.soak/`.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import psutil  # noqa: E402
from support.namespaces import why_not  # noqa: E402

from soak.site import Site  # noqa: E402

#: seconds between two faults, and between two looks
EVERY = 5.0
#: share of the time after which slopes are measured: caches fill before
WARM = 0.25
MARK = "SCALER_SOAK"


class Faults:
    """What goes wrong, one after the other, by lot."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill worker": (5, site.kill_worker),
            "kill agent": (2, site.kill_agent),
            "kill client": (2, site.kill_client),
            "kill scheduler": (3, site.kill_scheduler),
            "stop a process": (3, self._stop),
            "cut": (2, self._cut),
            "full /dev/shm": (1, lambda: self._fill("/dev/shm")),
            "full disk": (1, lambda: self._fill("disk")),
        }

    def one(self) -> None:
        """The next one; returns when it is over."""
        names = list(self._kinds)
        (name,) = self._site.lot.choices(names, [self._kinds[name][0] for name in names])
        self._kinds[name][1]()
        self.counts[name] += 1

    def _stop(self) -> None:
        process = self._site.lot.choice(self._site.processes())
        try:
            process.send_signal(signal.SIGSTOP)
            time.sleep(self._site.lot.choice((0.3, 1.0, 3.0)))
            process.send_signal(signal.SIGCONT)
        except psutil.NoSuchProcess:
            pass

    def _cut(self) -> None:
        host = self._site.lot.choice([*self._site.hosts, self._site.desk])
        host.cut(self._site.centre)
        try:
            time.sleep(self._site.lot.choice((0.5, 2.0, 4.0)))
        finally:
            host.mend(self._site.centre)

    def _fill(self, what: str) -> None:
        number = self._site.lot.randrange(2)
        host = self._site.hosts[number]
        place = what if what.startswith("/") else f"{self._site.directory}/disk{number}"
        filler = host.start(
            "fill", "sh", "-c", f"cat /dev/zero > {place}/filler 2>/dev/null; sleep 3; rm {place}/filler"
        )
        filler.ends(60)


def look(site: Site) -> dict[str, float]:
    """Sums over all processes of the engine."""
    seen = Counter[str]()
    for process in site.processes():
        try:
            with process.oneshot():
                seen["megabytes"] += process.memory_full_info().pss / 1e6
                seen["descriptors"] += process.num_fds()
                seen["threads"] += process.num_threads()
                seen["processes"] += 1
        except psutil.Error:
            continue
    return {**seen, "files": site.files()}


def slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Of a line through the points, an hour, and its standard error."""
    n = len(points)
    if n < 3:
        return 0.0, 0.0
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mx) ** 2 for x, _ in points)
    a = sum((x - mx) * (y - my) for x, y in points) / spread
    rest = sum((y - my - a * (x - mx)) ** 2 for x, y in points) / (n - 2)
    return 3600 * a, 3600 * (rest / spread) ** 0.5


def told(site: Site) -> dict[str, Any]:
    """What the clients have said."""
    total: dict[str, Any] = {"rounds": 0, "ok": 0, "wrong": 0, "hung": 0, "errors": Counter[str](), "longest": 0.0}
    for path in sorted(site.directory.glob("told*")):
        for line in path.read_text().splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue  # it was killed while it wrote
            total["rounds"] += 1
            for key in ("ok", "wrong", "hung"):
                total[key] += said[key]
            total["errors"].update(said["errors"])
            total["longest"] = max(total["longest"], said["seconds"])
    return total


def marked() -> list[str]:
    """Processes of this run that are still there."""
    left = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == os.environ[MARK]:
                left.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
        except psutil.Error:
            continue
    return left


def soak(site: Site, seconds: float) -> dict[str, Any]:
    """Faults for so long, then peace until all has ended; the report."""
    faults, looks, begun = Faults(site), [], time.monotonic()
    while (now := time.monotonic() - begun) < seconds:
        time.sleep(max(0.0, EVERY - (time.monotonic() - begun - now)) if looks else EVERY)
        looks.append((time.monotonic() - begun, look(site)))
        faults.one()
        faults.counts["agents that ended"] += site.revive()
    site.stop_file.touch()
    endings = []
    for client in site.clients:
        try:
            endings.append(client.ends(240))
        except AssertionError as error:
            endings.append(str(error)[-2000:])
    time.sleep(EVERY)
    last = look(site)
    for agent in site.agents:
        agent.stop()
    files = site.files()
    site.scheduler.stop()
    warm = [(at, seen) for at, seen in looks if at > WARM * seconds]
    slopes = {key: slope([(at, seen.get(key, 0.0)) for at, seen in warm]) for key in last}
    return {
        "minutes": seconds / 60, "faults": dict(faults.counts), "clients": told(site), "endings": endings,
        "first": looks[0][1], "last": last, "slopes per hour": slopes, "files at the end": files, "looks": looks,
    }  # fmt: skip


def main() -> int:
    """0 if nothing was lost, wrong, hung or left behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(f"no soak: {reason}")
        return 0
    os.environ[MARK] = f"{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        site = Site(Path(directory), options.seed)
        try:
            report = soak(site, options.hours * 3600)
        finally:
            site.close()
            kept = Path(".soak")
            kept.mkdir(exist_ok=True)
            for log in Path(directory).glob("*.log"):
                (kept / log.name).write_bytes(log.read_bytes()[-200_000:])
    report["seed"], report["left behind"] = options.seed, marked()
    (kept / "report.json").write_text(json.dumps(report, indent=1))
    clients = report["clients"]
    print(f"soak of {report['minutes']:.1f} minutes, seed {options.seed}")
    print(f"  faults: {sum(report['faults'].values())}: {report['faults']}")
    print(f"  {clients['ok']:,} right, {clients['wrong']} wrong, {clients['hung']} hung, {clients['longest']:.1f} s")
    print(f"  errors: {dict(clients['errors'])}")
    print(f"  clients ended with {report['endings']}")
    for key, (a, error) in report["slopes per hour"].items():
        first, last = report["first"].get(key, 0), report["last"].get(key, 0)
        print(f"  {key}: {first:.0f} in the beginning, {last:.0f} at the end, {a:+.0f} ± {error:.0f} an hour")
    print(f"  left behind: {report['files at the end']} files, processes {report['left behind']}")
    bad = clients["wrong"] or clients["hung"] or clients["errors"] or any(report["endings"])
    return 1 if bad or report["files at the end"] or report["left behind"] else 0


if __name__ == "__main__":
    sys.exit(main())
