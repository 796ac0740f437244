"""Blocks of code that Ctrl-C does not leave in the middle."""

import signal
import threading
from collections.abc import Iterator

import pytest

from scaler.common.interrupts import Uninterrupted


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_heard_of_at_the_end() -> None:
    done = []

    def work() -> None:
        with Uninterrupted():
            press_ctrl_c()
            with Uninterrupted():
                press_ctrl_c()
            done.append("all")
        done.append("more")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_the_program_is_called_and_stays() -> None:
    heard: list[object] = []

    def note(number: int, frame: object) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, note)
    with Uninterrupted():
        press_ctrl_c()
        assert not heard
    assert heard == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is note
    with Uninterrupted():
        pass
    assert heard == [signal.SIGINT]


def test_what_is_ignored_stays_ignored_and_an_error_passes() -> None:
    def fail() -> None:
        with Uninterrupted():
            press_ctrl_c()
            raise ValueError("of the block")

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(ValueError, match="of the block"):
        fail()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def look() -> None:
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
