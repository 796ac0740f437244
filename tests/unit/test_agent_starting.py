"""Workers that can't start since there can be no more processes."""

from simulator.scripted import FakeAgent

from scaler.agent.core import events as ae
from scaler.agent.core.preloads import PATIENCE
from scaler.protocol.messages import ObjectMissing
from scaler.worker_protocol import messages as wm

TROUBLE = "no more processes or threads may be started here: the control group x may have 8"


def try_for(fake: FakeAgent, seconds: float) -> int:
    """Workers fail to start, as often as they are tried."""
    tries, until = 0, fake.now + seconds
    while fake.now < until:
        tries += 1
        fake.handle(ae.WorkerExited(0, 0, 1 << 8, (0, -1), TROUBLE))
        fake.now = min(fake.core.state.workers.start_at.values())
        fake.handle(ae.Tick())
    return tries


def test_rows_of_a_local_cluster_end_with_an_error_that_names_the_limit() -> None:
    fake = FakeAgent(1, ready=False, may_return=False)
    try_for(fake, PATIENCE / 10)
    fake.give(10, 0, 2)
    assert not fake.heard(ObjectMissing), "it may pass"
    tries = try_for(fake, PATIENCE)
    assert tries < 20
    (missing,) = fake.heard(ObjectMissing)
    assert missing.unfit
    assert [(batch, lo, hi) for _, batch, lo, hi in missing.rows] == [(10, 0, 2)]
    assert f"no worker of this host can start: {TROUBLE}; tasks fail until one can" in "\n".join(map(str, fake.logged))


def test_when_a_worker_has_started_rows_run_again() -> None:
    fake = FakeAgent(1, ready=False, may_return=False)
    try_for(fake, 2 * PATIENCE)
    assert fake.core.state.workers.is_unfit
    fake.handle(ae.FromWorker(0, wm.Ready(100)))
    assert not fake.core.state.workers.is_unfit
    assert fake.core.state.workers.failing_since is None
    fake.give(10, 0, 2)
    assert fake.running(0)


def test_an_agent_goes_on_trying_and_says_why() -> None:
    fake = FakeAgent(1, ready=False)
    try_for(fake, 3 * PATIENCE)
    assert not fake.core.state.workers.is_unfit
    assert f"worker 0 could not start: {TROUBLE}; another try in" in "\n".join(map(str, fake.logged))
