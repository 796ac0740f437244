"""Flags of the original's programs that have no meaning here: they are taken, and change nothing.

Those that mean something stand beside ours, in `scaler.config`.
"""

from __future__ import annotations

#: how much an agent has in advance follows from how long tasks take
_QUEUES = (
    (("--per-worker-queue-size", "-qs"), False),
    (("--per-worker-task-queue-size",), False),
)
#: for each program: the names of a flag, and whether it stands without a value
IGNORED: dict[str, tuple[tuple[tuple[str, ...], bool], ...]] = {
    "scheduler": (
        *_QUEUES,
        (("--io-threads",), False),
        (("--max-number-of-tasks-waiting", "-mt"), False),
        (("--object-retention-seconds", "-ot"), False),
        (("--load-balance-seconds", "-ls"), False),
        (("--load-balance-trigger-times", "-lbt"), False),
        (("--object-storage-address", "-osa"), False),
    ),
    "cluster": (
        *_QUEUES,
        (("--io-threads", "-it"), False),
        (("--worker-names", "-wn"), False),
        (("--garbage-collect-interval-seconds", "-gc"), False),
        (("--trim-memory-threshold-bytes", "-tm"), False),
        (("--hard-processor-suspend", "-hps"), True),
    ),
}
