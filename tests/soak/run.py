"""Real processes under load while something is killed, stopped, cut off or filled: `make soak HOURS=2`.

Hosts are network namespaces (root on Linux; without them it says why and ends). At the end every call has to have ended
with the right value, and memory, descriptors, threads and files are to be as in the beginning: their slopes are in the
report, which is printed and written as JSON to `.soak/`. Ctrl-C and SIGTERM end it early, with the same report; a
second one at once.
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
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import psutil  # noqa: E402
from support.namespaces import why_not  # noqa: E402

from soak.accounts import MARK, in_use, marked, told  # noqa: E402
from soak.growth import Found, Growth, descriptors, memory  # noqa: E402
from soak.site import Site  # noqa: E402

#: seconds between two faults, and between two looks
EVERY = 5.0
#: the part of the time after which a process's growth is measured, and that in seconds at least and at most
WARM, WARM_LEAST, WARM_MOST = 1 / 10, 60.0, 600.0
#: the last part of the time, in which nothing is killed but workers of one host: all others grow old, and are measured
LASTING = 1 / 3
MILD = ("kill worker", "stop a process", "cut", "full /dev/shm", "full disk", "clock jump")
#: bytes beside what is used, while there is little memory
ROOM = 8 << 20
#: seconds by which a clock is off
JUMPS = (-86_400, -60, -1, 0, 1, 60, 86_400)


class Faults:
    """What goes wrong, one after the other, by lot."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.counts = Counter({"agents that ended": 0, "clients that ended": 0})
        #: when what happened, seconds of the monotonic clock
        self.told: list[tuple[float, str]] = []
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill worker": (5, site.kill_worker),
            "kill agent": (2, site.kill_agent),
            "kill client": (2, site.kill_client),
            "kill scheduler": (3, site.kill_scheduler),
            "little memory": (1, self._squeeze),
            "stop a process": (3, self._stop),
            "cut": (2, self._cut),
            "full /dev/shm": (1, lambda: self._fill("/dev/shm")),
            "full disk": (1, lambda: self._fill("disk")),
        }
        if site.clocks.are_there:
            self._kinds["clock jump"] = 2, self._jump
        #: those that end no process but workers of one host
        self._mild = {n: self._kinds[n] for n in MILD if n in self._kinds}
        self._mild["kill worker"] = 5, site.kill_young_worker

    def one(self, mild: bool) -> None:
        """The next one; returns when it is over. A `mild` one ends no process but a worker of one host."""
        kinds = self._mild if mild else self._kinds
        (name,) = self._site.lot.choices(list(kinds), [weight for weight, _ in kinds.values()])
        self.told.append((time.monotonic(), name))
        kinds[name][1]()
        self.counts[name] += 1

    def _stop(self) -> None:
        _, process = self._site.lot.choice(self._site.processes())
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

    def _squeeze(self) -> None:
        group = self._site.lot.choice(self._site.groups)
        before = group.killed
        group.squeeze(ROOM, 3.0)
        self.counts["processes killed for their memory"] += group.killed - before

    def _jump(self) -> None:
        lot = self._site.lot
        self._site.clocks.jump(lot.choice(("centre", "host0", "host1", "desk")), lot.choice(JUMPS))

    def _fill(self, what: str) -> None:
        number = self._site.lot.randrange(2)
        host = self._site.hosts[number]
        place = what if what.startswith("/") else f"{self._site.directory}/disk{number}"
        filler = host.start(
            "fill", "sh", "-c", f"cat /dev/zero > {place}/filler 2>/dev/null; sleep 3; rm {place}/filler"
        )
        filler.ends(60)


class Looks:
    """What each process takes, again and again."""

    def __init__(self, site: Site, warm: float) -> None:
        self._site = site
        self._growth = Growth(warm)

    def look(self) -> dict[str, float]:
        """Look at all processes; the sums."""
        seen, used = Counter[str](), in_use(self._site.directory)
        for role, process in self._site.processes():
            try:
                age = time.time() - process.create_time()
                takes = {**memory(process.pid), **descriptors(process.pid), "threads": process.num_threads()}
            except (psutil.Error, OSError):
                continue
            if process.pid in used:
                takes["megabytes in use"] = used[process.pid]
            seen.update(takes)
            seen["processes"] += 1
            self._growth.note(role, process, age, takes)
        return {**seen, "files": self._site.files()}

    def growth(self) -> dict[str, dict[str, Found]]:
        """By role and measure, how what processes take has grown until now."""
        return self._growth.found()


def soak(site: Site, seconds: float, early: list[int]) -> dict[str, Any]:
    """Faults for so long, or until `early` has something, then peace until all has ended; the report."""
    warm = min(max(WARM * seconds, WARM_LEAST), WARM_MOST)
    faults, looks, begun = Faults(site), Looks(site, warm), time.monotonic()
    seen: list[tuple[float, dict[str, float]]] = []
    while (now := time.monotonic() - begun) < seconds and not (seen and early):
        time.sleep(max(0.0, EVERY - (time.monotonic() - begun - now)) if seen else EVERY)
        seen.append((time.monotonic() - begun, looks.look()))
        faults.one(mild=now > (1 - LASTING) * seconds)
        for what, status in site.revive():
            faults.counts[f"{what} that ended"] += 1
            faults.told.append((time.monotonic(), f"one of the {what} had ended with {status}"))
    lasted = time.monotonic() - begun
    site.stop_file.touch()
    endings = []
    for client in site.clients:
        try:
            endings.append(client.ends(240))
        except AssertionError as error:
            endings.append(str(error)[-2000:])
    time.sleep(EVERY)
    last = looks.look()
    for agent in site.agents:
        agent.stop()
    files = site.files()
    site.scheduler.stop()
    return {
        "minutes": lasted / 60, "faults": dict(faults.counts), "clients": told(site.directory), "endings": endings,
        "first": seen[0][1], "last": last, "growth per hour": looks.growth(), "files at the end": files,
        "told": faults.told, "looks": seen,
    }  # fmt: skip


def _end(early: list[int], number: int, _frame: object) -> None:
    """Somebody ends the soak: the first time with a report of what there was until then, the second time at once."""
    if early:
        sys.exit(128 + number)
    early.append(number)


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
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_end, early))
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        site = Site(Path(directory), options.seed)
        try:
            report = soak(site, options.hours * 3600, early)
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
    print(f"  errors: {dict(clients['errors'])}; late: {clients['late']}")
    print(f"  clients ended with {report['endings']}")
    for key, last in report["last"].items():
        print(f"  {key}: {report['first'].get(key, 0):.0f} in the beginning, {last:.0f} at the end")
    for role, growth in report["growth per hour"].items():
        for measure, (a, error, count, oldest) in growth.items():
            print(
                f"  {role}: {measure} {a:+.1f} ± {error:.1f} an hour, of {count}, the oldest {oldest:.0f} minutes old"
            )
    print(f"  left behind: {report['files at the end']} files, processes {report['left behind']}")
    bad = clients["wrong"] or clients["hung"] or clients["errors"] or any(report["endings"])
    bad = bad or report["faults"]["clients that ended"]
    return 1 if bad or report["files at the end"] or report["left behind"] else 0


if __name__ == "__main__":
    sys.exit(main())
