"""What something costs, in calls: unlike time, the same in each run."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
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
    total = 0

    def note(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal total
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        total += event == "opcode"
        return note

    before = sys.gettrace()
    gc.disable()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return total
