"""What something costs, in calls: unlike time, the same in each run."""

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def calls_of(work: Callable[[], Any]) -> int:
    """Calls of functions, Python's and others, while this is done; the collector's are none of them."""
    total = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal total
        total += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return total


def steps_of(work: Callable[[], Any]) -> int:
    """Steps of the interpreter while this is done, in Python's functions: loops count by their turns."""
    gc.disable()
    try:
        return _traced(work) if sys.version_info < (3, 12) else _monitored(work)
    finally:
        gc.enable()


def _traced(work: Callable[[], Any]) -> int:
    total = 0

    def note(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal total
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        total += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return total


def _monitored(work: Callable[[], Any]) -> int:
    """Python 3.12.1 traces a function's steps only the first time."""
    assert sys.version_info >= (3, 12)
    total, monitoring = 0, sys.monitoring
    instruction = monitoring.events.INSTRUCTION

    def note(code: CodeType, offset: int) -> None:
        nonlocal total
        total += 1

    monitoring.use_tool_id(monitoring.PROFILER_ID, "steps")
    try:
        monitoring.register_callback(monitoring.PROFILER_ID, instruction, note)
        monitoring.set_events(monitoring.PROFILER_ID, instruction)
        work()
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    return total
