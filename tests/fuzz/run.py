"""Feeds the targets with bytes that reach new code: `make fuzz RUNS=100000 TARGET=codec`.

Each target runs in a process of its own, within 1 GB of memory. What fails is written to `.fuzz/`, with the command
that runs it again; mended, it belongs into `corpus/TARGET/`, which the tests replay.
"""

import argparse
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "sim")]
#: megabytes that a target may take
MEMORY = 1024

_SESSIONS = ("scaler.protocol.channel", "scaler.protocol.compatibility")
_CORES = ("scaler.common", "scaler.protocol.results")
#: the packages and modules whose branches guide the choice of inputs
INSTRUMENTED = {
    "codec": ("scaler.protocol",),
    "framing": ("scaler.transport.framing",),
    "acceptor": ("scaler.protocol.acceptor", *_SESSIONS),
    "initiator": ("scaler.protocol.initiator", *_SESSIONS),
    "scheduler": ("scaler.scheduler", *_CORES),
    "peers": ("scaler.scheduler", *_CORES),
    "partner": ("scaler.scheduler", "scaler.protocol.acceptor", *_CORES),
    "copies": ("scaler.scheduler.copies", "scaler.journal", *_CORES),
    "restart": ("scaler.scheduler", *_CORES),
    "jobs": ("scaler.scheduler", "scaler.journal", *_CORES),
    "hosts": ("scaler.scheduler", "scaler.agent", "scaler.worker_protocol", *_CORES),
    "agent": ("scaler.agent", "scaler.worker_protocol", "scaler.store.index", *_CORES),
    "client": ("scaler.client.core", *_CORES),
}
#: what only looks at a core's state, and a loop in each step over what is due, which tells itself that it was
UNGUIDED = ("scaler.scheduler.state.validate", "scaler.agent.state.validate", "scaler.agent.core.phases")
#: targets that take bytes as they are; others draw messages by them, and have no use for the constants in comparisons
AS_THEY_ARE = ("codec", "framing")
#: bytes of an input: what is drawn of more reaches the end of a run
LONGEST, LONGEST_DRAWN = 2000, 600
#: as the shortest inputs that reach a branch are short lives, long ones are kept
LONG_LIVES = ("-reduce_inputs=0", "-prefer_small=0", "-len_control=0")
#: objects made until cycles of them are looked for: a core is a few thousand, which all are garbage after a run
GARBAGE = 20_000


def beginnings(target: str) -> list[bytes]:
    """Inputs that reach something: encoded messages for the codec, and bytes by lot for what draws from them."""
    lot = random.Random(1)
    if target in AS_THEY_ARE:
        from simulator.hostile_messages import Hostile

        from scaler.protocol.codec import encode
        from scaler.transport.framing import encode as frame

        drawn, found = Hostile(lot, (0, 1, 2), (1, 10, 11)), []
        for _ in range(200):
            frames = [bytes(part) for part in encode(drawn.message(), 1, 1)]
            if target == "framing":
                found.append(b"\0\x10" + b"".join(bytes(part) for part in frame(frames, 1 << 20)))
            else:
                found.append(bytes([len(frames[0]) // 8]) + b"".join(frames))
        return found
    return [lot.randbytes(size) for size in (20, 100, 200, 400, LONGEST_DRAWN) for _ in range(20)]


def unguided(target: str) -> list[str]:
    """The modules whose branches guide nothing: atheris instruments the whole package but for those."""
    files = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "scaler").rglob("*.py"))
    modules = (".".join(path.parts).removesuffix(".__init__") for path in files)
    guides = tuple(f"{name}." for name in INSTRUMENTED[target])
    return [module for module in modules if not f"{module}.".startswith(guides) or module in UNGUIDED]


def once_for_each_branch(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The target, with libFuzzer told of the branches of a run behind it, once of each.

    A core passes some thousand branches in a run and a few hundred different ones, and telling is as slow as what is
    told of.
    """
    import atheris

    passed: set[int] = set()
    note = passed.add
    tell: Callable[[int], None] | None = None

    def run(data: bytes) -> None:
        nonlocal tell
        if tell is None:  # this is libFuzzer's only from the first run on
            tell, atheris._trace_branch = atheris._trace_branch, note
        target(data)
        for branch in passed:
            tell(branch)
        passed.clear()

    return run


def feed(target: str, runs: int, place: Path) -> None:
    """Run one target in this process; it ends with it."""
    import atheris
    from atheris.import_hook import HookManager

    draws = target not in AS_THEY_ARE
    with HookManager({"scaler"}, set(unguided(target)), enable_loader_override=True, trace_dataflow=not draws):
        from fuzz.targets import TARGETS
        from scaler.protocol import layouts
    layouts.FEW = sys.maxsize  # what is compiled has no branches to see, and would be another path after some inputs
    seeds = place / target
    seeds.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(beginnings(target)):
        (seeds / f"begin{number}").write_bytes(data)
    options = [f"-runs={runs}", f"-rss_limit_mb={MEMORY}", "-print_final_stats=1", "-verbosity=1"]
    options += [f"-max_len={LONGEST_DRAWN if draws else LONGEST}", f"-artifact_prefix={place}/{target}-"]
    options += LONG_LIVES if draws else ()
    fed = once_for_each_branch(TARGETS[target]) if draws else TARGETS[target]
    gc.freeze()
    gc.set_threshold(GARBAGE)
    atheris.Setup([sys.argv[0], str(seeds), *options], fed)
    atheris.Fuzz()


def main() -> int:
    """All targets, or one; 1 if any fails."""
    names = list(INSTRUMENTED)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="executions for each target")
    parser.add_argument("--target", choices=names, help="this one alone")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    place = ROOT / ".fuzz"
    if options.inside:
        feed(options.target, options.runs, place)
    failed, env = False, {**os.environ, "PYTHONHASHSEED": "0"}
    for name in [options.target] if options.target else names:
        begun = time.monotonic()
        command = [sys.executable, __file__, "--inside", "--target", name, "--runs", str(options.runs)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
        stats = [line.removeprefix("stat::") for line in done.stderr.splitlines() if line.startswith("stat::")]
        seconds = time.monotonic() - begun
        word = "FAILED" if done.returncode else "ok"
        print(f"{name}: {word} in {seconds:.0f} s; {'; '.join(stats)}", flush=True)
        if done.returncode:
            failed = True
            print("\n".join((done.stdout + done.stderr).splitlines()[-40:]))
    return failed


if __name__ == "__main__":
    sys.exit(main())
