"""Gates: who waits at one and is interrupted harms neither itself nor who opens it."""

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from scaler.common.gate import Gate


class InterruptedAt:
    """Raises KeyboardInterrupt at the so many-th line or call of what is traced, as Ctrl-C may."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "call") and frame.f_code.co_name != "stop":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def run(self, work: Any) -> bool:
        """Whether `work` was interrupted; nothing else may come out of it."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def test_an_interrupt_at_any_point_of_waiting_leaves_the_gate_whole() -> None:
    for point in range(2, 200):
        gate = Gate()
        interrupted = InterruptedAt(point).run(lambda gate=gate: gate.wait(0.001))
        opener = threading.Thread(target=gate.open)
        opener.start()
        assert gate.wait(10)
        opener.join(10)
        if not interrupted:
            assert point > 8
            return
    pytest.fail("waiting has more points than that")


def test_an_event_is_no_gate() -> None:
    """Why there are gates; once this fails they may go."""

    def interrupt_everywhere() -> None:
        for point in range(2, 200):
            InterruptedAt(point).run(lambda: threading.Event().wait(0.001))

    with pytest.raises(RuntimeError, match="release unlocked lock"):
        interrupt_everywhere()


def test_all_that_wait_pass_and_later_ones_until_it_is_closed() -> None:
    gate = Gate()
    passed: list[bool] = []
    threads = [threading.Thread(target=lambda: passed.append(gate.wait(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.open()
    for thread in threads:
        thread.join(20)
    assert passed == [True] * 4
    gate.close()
    assert not gate.wait(0.001)
    gate.open()
    gate.open()
    assert gate.wait(None)
