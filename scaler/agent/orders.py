"""What an agent tells its zygote, and what the zygote reports; the zygote and its warm process talk the same way."""

from __future__ import annotations

import struct

#: what, slot; a FORK brings two file descriptors (task, control); LOAD has no slot: workers forked from then on have
#: loaded what a client in a task is made of
COMMAND = struct.Struct("=II")
FORK, KILL, LOAD = 1, 2, 3
#: sockets of a worker at its agent
SOCKETS = 2

#: what, slot, pid, wait status; of one that could not be forked the negative of the system's error instead of the pid
REPORT = struct.Struct("=IIiI")
#: READY is said by the warm process alone: it has loaded all, and can fork
STARTED, EXITED, READY = 1, 2, 3
