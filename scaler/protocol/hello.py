"""What every process says of itself in `Hello`, and the number of its session."""

import os
import sys

from scaler.common.host import boot_id
from scaler.common.utf8 import written_out
from scaler.protocol.codes import LONGEST_NAME
from scaler.protocol.messages import PROTOCOL_VERSION, Encoding, Hello, u8

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

#: bits of an epoch that are drawn by lot; those above are its term
LOT = 40


def epoch_of(term: int, lot: int) -> int:
    """The epoch of a scheduler that leads in this term: it is 0 until a standby has taken over once.

    Those of one term differ by lot; not 0.
    """
    return term << LOT | lot & (1 << LOT) - 1 | 1


def term_of(epoch: int) -> int:
    """The term of an epoch: a higher one replaces a lower one, of which agents want to hear no more."""
    return epoch >> LOT


def new_number() -> int:
    """A number, not 0, that nobody else has: of a session, or a scheduler's epoch."""
    return int.from_bytes(os.urandom(8), "little") | 1


#: numbers of clients and agents that one scheduler gives before it may come to those of another
NUMBERS = 100
#: where a scheduler may begin: whoever comes from another one begins anew only if both began at the same place
BEGINNINGS = 10_000


def first_number(reserved: int) -> int:
    """The first number that a scheduler gives, above the reserved ones.

    It is drawn by lot, since clients and agents that come from another scheduler keep theirs.
    """
    return reserved + 1 + int.from_bytes(os.urandom(4), "little") % BEGINNINGS * NUMBERS


def hello_of(
    role: str,
    name: str,
    session: int,
    workers: int = 0,
    capabilities: tuple[str, ...] = (),
    store: tuple[str, str, str] = ("", "", ""),
    packages: str = "",
    job: str = "",
    others: int = 0,
) -> Hello:
    """A Hello of this process.

    `store`, of an agent: its directory, the proof of being on its host, its address; of a client in a worker the
    directory alone, which is its agent's. `packages`, of a process that pickles or has others do it: the versions of
    what does. `job`, of an agent: what its batch system calls its job.
    `others`: at how many addresses besides one it looks for a scheduler.
    """
    directory, token, data = store
    return Hello(
        role, written_out(name)[:LONGEST_NAME], session, PROTOCOL_VERSION, PYTHON, packages, boot_id(), os.getpid(),
        workers=workers, capabilities=tuple(map(written_out, capabilities)), store=directory, token=token, data=data,
        encodings=u8([Encoding.PICKLE] if packages else ()), job=job, others=others,
    )  # fmt: skip
