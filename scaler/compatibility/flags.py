"""Flags of the original's programs that have no meaning here: they are taken, and change nothing.

Those that mean something stand beside ours, in `scaler.config`.
"""

from __future__ import annotations

#: of the cluster; a value other than 0 would limit all tasks, which is said to be the client's business
TASK_TIMEOUT = ("--task-timeout-seconds", "-tt", "-tts")
TASK_TIMEOUT_ADVICE = (
    "--task-timeout-seconds has no effect: Client.with_options(timeout=seconds) limits what its tasks may take"
)

#: how much an agent has in advance follows from how long tasks take
_QUEUES = (
    (("--per-worker-queue-size", "-qs"), False),
    (("--per-worker-task-queue-size", "-wtqs"), False),
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
        (("--allocate-policy", "-ap"), False),
    ),
    "cluster": (
        *_QUEUES,
        (("--io-threads", "-it"), False),
        (("--worker-names", "-wn"), False),
        (("--garbage-collect-interval-seconds", "-gc"), False),
        (("--trim-memory-threshold-bytes", "-tm"), False),
        (("--hard-processor-suspend", "-hps"), True),
        (("--object-storage-address", "-osa"), False),
        (TASK_TIMEOUT, False),
    ),
    "symphony": (
        (("--io-threads", "-it"), False),
        (("--logging-config-file",), False),
    ),
    "top": (),
}
