"""The directory for large results of durable jobs in a run: what workers write there outlives everybody."""

import pickle
from collections.abc import Callable
from typing import Any
from zlib import crc32

from scaler.protocol.codes import GRAPH, WANTED_ALONE
from scaler.results.reference import PART, Reference, file_name, path_of
from scaler.scheduler.jobs import events as ev
from scaler.worker_protocol import messages as wm
from simulator.checks import require
from simulator.world import World

#: chance that it can't be written, and that a worker leaves a draft as if it had been killed
REFUSES, LEAVES_DRAFT = 0.1, 0.05
#: what each journal calls its part
IDENTITY = "f" * 32


class SharedFiles:
    """What is there, by name."""

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}

    def write(self, world: World, run: wm.Run, row: int, value: Any) -> bytes | None:
        """As a worker does: what stands for the file; None if that can't be written, or is not to be."""
        is_wanted = run.form != GRAPH or (run.wanted is not None and run.wanted[row - run.lo] == WANTED_ALONE)
        if not run.results or not is_wanted or world.random.random() < REFUSES:
            return None
        job, data, tag = int(run.results.rpartition("/")[2], 16), pickle.dumps(value), world.random.getrandbits(64)
        part = run.results.split("/")[-2]
        name = f"{part}/{file_name(job, run.batch + row, tag)}"
        require(name not in self.there, f"file {name} is written twice")
        self.there[name] = data
        if world.random.random() < LEAVES_DRAFT:
            self.there[f"{part}/{file_name(job, run.batch + row, tag ^ 1)}{PART}"] = b""
        return Reference(run.batch + row, tag, len(data), crc32(data)).pack()

    def read(self, prefix: str, reference: Reference) -> Any:
        """As a client does that has the directory."""
        name = "/".join(path_of(prefix, reference).split("/")[-2:])
        require(name in self.there, f"file {name} is in the journal, and not there")
        require(crc32(self.there[name]) == reference.checksum, f"file {name} is another one")
        return pickle.loads(self.there[name])


class SimFiles:
    """A scheduler's side of it; `wake` is called when something is done."""

    directory = "/shared"

    def __init__(
        self,
        world: World,
        shared: SharedFiles,
        wake: Callable[[], None],
        number: int = -1,
        identity_of: Callable[[str], str] = lambda known: IDENTITY,
    ) -> None:
        """`identity_of`: what the journal calls its part, if its jobs call it so, or nothing."""
        self._world = world
        self._shared = shared
        self._wake = wake
        self._done: list[Any] = []
        self._is_open = True
        self._number = number
        self._identity_of = identity_of
        self._identity = ""

    def begin(self, known: str, is_anew: bool) -> str:
        """As the real one."""
        self._identity = self._identity_of(known)
        return self._identity

    def fileno(self) -> int:
        """That it was given: there is none."""
        return self._number

    def do(self, work: Any) -> None:
        """Do it, some time."""
        self._world.after(self._world.random.choice((0.0003, 0.01, 0.3)), self._perform, work)

    def _perform(self, work: Any) -> None:
        if not self._is_open:
            return
        there = self._shared.there
        if isinstance(work, ev.ListFiles):
            self.look(work.identity)
            return
        if isinstance(work, ev.RemoveFiles):
            for name in work.names:
                there.pop(f"{work.identity}/{name}", None)
        else:
            name = f"{work.identity}/{file_name(work.job, work.file.row, work.file.tag)}"
            require(name in there, f"the core needs file {name}, which is not there")
            self._done.append(ev.FileRead(work.number, there[name][work.offset :][: work.size]))
        self._wake()

    def look(self, identity: str = "") -> None:
        """Say what is there, in this part or its journal's own."""
        identity = identity or self._identity
        names = [name.partition("/")[2] for name in self._shared.there if name.startswith(f"{identity}/")]
        self._done.append(ev.Listed(identity, names))
        self._wake()

    def take(self) -> list[Any]:
        """As the real one."""
        done, self._done = self._done, []
        return done

    def give_up(self, now: float) -> list[Any]:
        """Everything comes to an end here."""
        return []

    #: so nothing is due
    wake = None

    def close(self, timeout: float = 0.0) -> None:
        """The scheduler is killed, or ends."""
        self._is_open = False
