"""How a session begins: who is there, and whether it may be."""

import re
from array import array

from scaler.common.records import record
from scaler.protocol.codes import LONGEST_NAME, MAX_JOB, MAX_NUMBER, MAX_PATH, MAX_WORKERS, NEVER, Leaving, Role
from scaler.protocol.messages.columns import column, u8, u32
from scaler.protocol.messages.message import Message, check_capabilities, require

#: where a store listens; what else there is to a host, whoever connects there finds out
_PLACE = re.compile(r"tcp://(\[[^\[\]\s]+\]|[^\[\]:/@,\s]+):([0-9]{1,5})")


def _is_place(text: str) -> bool:
    found = _PLACE.fullmatch(text)
    return found is not None and text.isprintable() and int(found[2]) < 1 << 16


@record
class Hello(Message):
    """The first message on every connection."""

    role: str
    name: str
    session: int
    protocol: int
    python: str
    #: versions of what encodes its payloads, "name=version name=version"
    packages: str
    boot_id: str
    pid: int
    epoch: int = 0
    received: int = 0
    #: of an agent: its own; of a client that comes back: in the whole cluster, as it was told last, or fewer
    workers: int = 0
    capabilities: tuple[str, ...] = ()
    #: of an agent: the directory of its store and the proof of being on its host; where other hosts fetch objects. Of a
    #: client in a worker: the directory of its agent's store
    store: str = ""
    token: str = ""
    data: str = ""
    #: how payloads are encoded that this peer makes and reads, as `Encoding`; none: it never looks into one
    encodings: "array[int]" = column(u8)
    #: its number at the scheduler that it was welcomed by last; 0 for none
    number: int = 0
    #: of a client: numbers of the agents that may have something of it, as it was told last
    agents: "array[int]" = column(u32)
    #: of an agent: the batch system's id of the job that it runs in; empty for none
    job: str = ""
    #: of an agent: milliseconds until its batch system ends it; 0: it does not
    walltime: int = 0
    #: of an agent: `Leaving`
    leaving: int = 0
    #: at how many other addresses it looks for a scheduler
    others: int = 0
    #: of an agent: how many agents a pair of schedulers had, as it was told last; 0: there was no pair
    roster: int = 0
    #: of a client: where each of `agents` listens, and its boot id, or "" if it does not; of all of them or of none
    whereabouts: tuple[str, ...] = ()

    def validate(self) -> None:
        require(len(self.whereabouts) in (0, len(self.agents)), "the whereabouts of all agents, or of none")
        require(len(self.name) <= LONGEST_NAME, f"a name has at most {LONGEST_NAME:,} characters")
        for what in (self.python, self.packages, self.boot_id, self.token):
            require(len(what) <= LONGEST_NAME, f"what is said of a process has at most {LONGEST_NAME:,} characters")
        require(len(self.store) <= MAX_PATH, f"the path of a store has at most {MAX_PATH:,} characters")
        check_capabilities(self.capabilities)
        require(len(self.job) <= MAX_JOB, f"a job's id has at most {MAX_JOB} characters")
        require(self.leaving in list(Leaving), f"no reason to leave: {self.leaving}")
        require(self.role in list(Role), f"unknown role {self.role!r}")
        require(self.workers <= MAX_WORKERS, f"more than {MAX_WORKERS:,} workers in an agent")
        require(self.number < MAX_NUMBER, f"numbers of peers are below {MAX_NUMBER:,}")
        require(
            not self.data or _is_place(self.data), f"others fetch objects at tcp://host:port, not {self.data[:99]!r}"
        )


@record
class Welcome(Message):
    """The scheduler's answer to `Hello`."""

    epoch: int
    number: int
    resumed: bool
    received: int
    workers: int
    protected: bool
    heartbeat: float
    timeout: float
    limit: int
    #: as in `HeartbeatEcho`
    roster: int = 0

    def validate(self) -> None:
        require(0.0 <= self.heartbeat < NEVER and 0.0 <= self.timeout < NEVER, "times that a calendar has")


@record
class Refused(Message):
    """The scheduler's other answer to `Hello`, or its last word to a peer that broke the protocol."""

    reason: str
    #: another scheduler leads, or may soon: whoever knows of others asks them, and this one again
    elsewhere: bool = False
    #: to say the same again does not help
    final: bool = False


@record
class Ack(Message):
    """Nothing but the header's `ack`."""
