"""Feeds the targets with bytes that reach new code: `make fuzz RUNS=100000 TARGET=codec`.

Each target runs in a process of its own, within 1 GB of memory. What fails is written to `.fuzz/`, with the command
that runs it again; mended, it belongs into `corpus/TARGET/`, which the tests replay.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "sim")]
#: megabytes that a target may take
MEMORY = 1024

_PROTOCOL = ["scaler.protocol"]
#: the packages whose branches guide the choice of inputs
INSTRUMENTED = {
    "codec": _PROTOCOL, "framing": ["scaler.transport.framing"], "acceptor": _PROTOCOL, "initiator": _PROTOCOL,
    "scheduler": ["scaler.scheduler"], "agent": ["scaler.agent", "scaler.worker_protocol"],
    "client": ["scaler.client.core"],
}  # fmt: skip


def beginnings(target: str) -> list[bytes]:
    """Inputs that reach something: encoded messages for the codec, and bytes by lot for what draws from them."""
    lot = random.Random(1)
    if target in ("codec", "framing"):
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
    return [lot.randbytes(size) for size in (20, 100, 400, 800, 1600) for _ in range(20)]


def feed(target: str, runs: int, place: Path) -> None:
    """Run one target in this process; it ends with it."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED[target]):
        from fuzz.targets import TARGETS
    seeds = place / target
    seeds.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(beginnings(target)):
        (seeds / f"begin{number}").write_bytes(data)
    options = [f"-runs={runs}", f"-rss_limit_mb={MEMORY}", "-max_len=2000", "-print_final_stats=1", "-verbosity=1"]
    atheris.Setup([sys.argv[0], str(seeds), *options, f"-artifact_prefix={place}/{target}-"], TARGETS[target])
    atheris.Fuzz()


def main() -> int:
    """All targets, or one; 1 if any fails."""
    names = ["codec", "framing", "acceptor", "initiator", "scheduler", "agent", "client"]
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
