"""What a snapshot costs the scheduler: `python -m bench.monitoring [AGENTS] [WORKERS]`.

Agents, workers and functions are synthetic; the core, the view and the codec are the real ones.
"""

import statistics
import sys
import time
from typing import Any

from bench.synthetic import SyntheticCluster
from scaler.monitor.reading import decoded
from scaler.protocol.acceptor import Acceptor, Terms
from scaler.protocol.codec import decode, encode
from scaler.protocol.messages import PROTOCOL_VERSION, Hello, Snapshot, Watch
from scaler.scheduler.composition import Composition
from scaler.scheduler.core import events as ev
from scaler.scheduler.core.scheduler_core import Limits, SchedulerCore
from scaler.scheduler.publishing import Publisher
from scaler.scheduler.state.function_records import FunctionRecord

ROUNDS = 30


def hello(role: str, name: str, workers: int = 0) -> Hello:
    """A Hello as far as the core looks at it."""
    return Hello(role, name, 1, PROTOCOL_VERSION, "3.11", "", "here", 1, workers=workers)


def main(agents: int, workers: int) -> None:
    """Print the times of one snapshot, milliseconds."""
    core = SchedulerCore(Limits(1e9, 1e9, 3, True))
    terms = Terms(1, PROTOCOL_VERSION, True, 1.0, 1e9, 1e9, 1 << 30)
    publisher = Publisher(1, "tcp://127.0.0.1:2345", Composition(core, Acceptor(terms)), None, insecure=False)
    synthetic = SyntheticCluster(agents, workers)
    core.handle([ev.Joined(1, hello("monitor", "bench")), *_joins(agents, workers)], 0.0)
    for name in range(200):
        record = FunctionRecord(2 + agents, f"module.function_{name}", admitted=100, finished=50)
        for step in range(40):
            record.durations.add(1, 10 + step * step * 100)
        core.state.clients[2 + agents].functions[record.name] = record
    core.handle([ev.Received(1, Watch(1000))], 0.0)
    reports = [decode(encode(report)).message for report in synthetic.reports()]
    core.handle([ev.Received(2 + i, report) for i, report in enumerate(reports)], 0.0)
    making, encoding, size, number = [], [], 0, 0
    for step in range(1, 1 + ROUNDS):
        core.state.monitors[1].is_ready = True
        for record in list(core.state.clients[2 + agents].functions.values())[::5]:
            record.durations.add(3, 40 * step)  # as if a fifth of all functions had run
        began = time.process_time()
        effects: list[Any] = core.handle([ev.Tick()], 10.0 * step)
        made = time.process_time()
        (wish,) = [effect for effect in effects if isinstance(effect, ev.Publish)]
        frames = encode(publisher.complete(wish), step, 0)
        encoding.append(time.process_time() - made)
        making.append(made - began)
        size, number = sum(map(len, frames)), number + 1
    began = time.process_time()
    message = decode(frames).message
    assert isinstance(message, Snapshot)
    decoded(message)
    reading = time.process_time() - began
    totals = [1e3 * (a + b) for a, b in zip(making, encoding, strict=True)]
    print(f"{agents} agents x {workers} workers: a snapshot of {size:,} bytes")
    print(f"core {1e3 * statistics.median(making):.2f} ms, encoding {1e3 * statistics.median(encoding):.2f} ms")
    print(f"together: median {statistics.median(totals):.2f} ms, fastest {min(totals):.2f}, slowest {max(totals):.2f}")
    print(f"a monitor reads it in {1e3 * reading:.2f} ms")


def _joins(agents: int, workers: int) -> list[ev.Event]:
    hosts = [ev.Joined(2 + i, hello("agent", f"host-{i}", workers)) for i in range(agents)]
    return [*hosts, ev.Joined(2 + agents, hello("client", "client"))]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3] or (1000, 64)))
