"""Blocks of code that Ctrl-C does not leave in the middle, and how it is told from other ends of coroutines."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Iterator

import pytest
from support import signals_at
from support.signals_at import signals_at_each_point

from scaler.common.interrupts import Heed, Uninterrupted, ends_event_loop, interrupts_blocked, is_interrupt


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


class Raised(Exception):
    """By a handler."""


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """What the handlers of two signals were called for, the first of which raises."""
    heard: list[int] = []

    def note(number: int, frame: object) -> None:
        heard.append(number)
        if number == signal.SIGUSR2:
            raise Raised

    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    before = {number: signal.signal(number, note) for number in numbers}
    yield heard
    for number, handler in before.items():
        assert signal.signal(number, handler) is note


def test_handlers_of_all_signals_are_called_at_the_end_in_their_order_whatever_one_raises(heard: list[int]) -> None:
    def work() -> None:
        with Uninterrupted():
            for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM):
                signal.raise_signal(number)
            assert not heard

    with pytest.raises(Raised):
        work()
    assert heard == [signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1]


def test_a_handler_that_raises_at_any_point_of_a_block_leaves_all_handlers_as_they_were(heard: list[int]) -> None:
    def block() -> None:
        with Uninterrupted():
            pass

    def look() -> None:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with Uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            heard.append(0)
        assert heard == [0, signal.SIGTERM]
        heard.clear()

    assert signals_at_each_point(block, look) > 20


def test_a_child_that_another_thread_forks_meanwhile_has_the_handlers(heard: list[int]) -> None:
    def fork() -> None:
        pid = os.fork()
        if not pid:
            signal.raise_signal(signal.SIGUSR1)
            os._exit(heard != [signal.SIGUSR1])
        ended.append(os.waitpid(pid, 0)[1])

    ended: list[int] = []
    thread = threading.Thread(target=fork)
    with Uninterrupted():
        thread.start()
        thread.join()
    assert ended == [0]


async def _told(seen: list[bool], press: int, cancel: bool = False) -> None:
    """Ctrl-C is pressed so many times while a coroutine waits, or it is cancelled; whether it is told that by that."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    waiter.add_done_callback(lambda _: seen.append(ends_event_loop()))

    def end() -> None:
        for _ in range(press):
            press_ctrl_c()
        if cancel:
            task.cancel()

    task = asyncio.current_task()
    assert task is not None
    loop.call_soon(end)
    try:
        await waiter
    except asyncio.CancelledError as error:
        seen.append(is_interrupt(error))
        raise


@pytest.mark.parametrize("press", [1, 2])
def test_cancellations_by_asyncio_run_after_ctrl_c_are_told(press: int) -> None:
    seen: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(_told(seen, press))
    assert seen == [True, True]


def test_cancellations_after_ctrl_c_has_left_a_loop_are_told() -> None:
    seen: list[bool] = []
    loop = asyncio.new_event_loop()
    task = loop.create_task(_told(seen, 1))
    try:
        loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        loop.close()
    assert seen == [True, True]


def test_cancellations_without_ctrl_c_are_told_apart() -> None:
    seen: list[bool] = []
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_told(seen, 0, cancel=True))
    assert seen == [False, False]
    assert not ends_event_loop()


async def _blocks(is_pressed_before: bool) -> None:
    if is_pressed_before:
        press_ctrl_c()
    heed = Heed()
    if not is_pressed_before:
        heed()
        press_ctrl_c()
    heed()


@pytest.mark.parametrize("is_pressed_before", [True, False])
def test_who_blocks_an_event_loop_hears_of_ctrl_c(is_pressed_before: bool) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        asyncio.run(_blocks(is_pressed_before))
    assert any(entry.name == "_blocks" for entry in caught.traceback)


def test_who_cleans_up_after_ctrl_c_may_block() -> None:
    done = []

    async def cleans_up() -> None:
        try:
            asyncio.get_running_loop().call_soon(press_ctrl_c)
            await asyncio.sleep(60)
        finally:
            Heed()()
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cleans_up())
    assert done == ["all"]


def test_a_signal_at_any_point_does_not_leave_ctrl_c_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals_at, "FILES", (*signals_at.FILES, signal.__file__, contextlib.__file__))
    came: list[bool] = []

    def block() -> None:
        with interrupts_blocked():
            came.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    def look() -> None:
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert signals_at_each_point(block, look) > 100
    assert came
    assert all(came)


def test_a_stack_without_room_for_the_end_of_a_block_has_none_for_its_beginning() -> None:
    def block() -> None:
        with Uninterrupted():
            pass

    def descend() -> None:
        """To the end of the stack, and do it on the way back, one level higher each time."""
        try:
            descend()
        finally:
            if len(seen) < 40:
                with contextlib.suppress(RecursionError):
                    block()
                seen.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    seen: list[bool] = []
    with pytest.raises(RecursionError):
        descend()
    assert len(seen) == 40
    assert all(seen)
