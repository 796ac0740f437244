"""Loops run a step when its time has come, and not before: who is woken too early plans nothing anew. And signals."""

import os
import signal
import time

import pytest

from scaler.common.loop import Loop, make_loop

#: 0.4 ms beyond whole ones, to which timers are rounded
SOON = 0.0014


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
def test_a_step_is_not_run_before_its_time(name: str) -> None:
    if name == "uvloop":
        pytest.importorskip("uvloop")
    early: list[float] = []
    wanted = [0.0]

    def step() -> None:
        now = time.monotonic()
        if wanted[0]:
            early.append(wanted[0] - now)
        if len(early) == 50:
            loop.stop()
        wanted[0] = now + SOON
        loop.wake_at(wanted[0])

    loop: Loop = make_loop(name, step)
    loop.soon()
    loop.run()
    assert max(early) <= 0.0, (
        f"{sum(each > 0 for each in early)} of 50 steps were early, one by {max(early) * 1e3:.2f} ms"
    )


@pytest.mark.parametrize("name", ["builtin", "uvloop"])
def test_a_signal_while_a_process_closes_does_not_end_that(name: str) -> None:
    """Whoever is told twice to end would leave files behind otherwise."""
    if name == "uvloop":
        pytest.importorskip("uvloop")
    pid = os.fork()
    if not pid:
        try:
            loop = make_loop(name, lambda: os.kill(os.getpid(), signal.SIGTERM))
            loop.soon()
            loop.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
