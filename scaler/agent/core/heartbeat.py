"""What the scheduler hears of this host now and then, and at once when there is no room any more, or some again."""

from scaler.agent.core import spilling, worker_commands
from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.protocol.messages import Heartbeat, HeartbeatEcho
from scaler.worker_protocol.messages import Drop


def attend(state: HostState, out: Outgoing) -> None:
    """Tell the scheduler if its time has come, or if there is no room any more, or some again."""
    pulse = state.pulse
    if state.now < pulse.next and (pulse.interval is None or spilling.defers_work(state) == pulse.said_full):
        return
    beat(state, out)


def beat(state: HostState, out: Outgoing) -> None:
    """Tell the scheduler, and workers which objects they need not keep."""
    pulse = state.pulse
    assert pulse.interval is not None
    pulse.next = state.now + pulse.interval
    blocked = memory = 0
    for worker in state.workers.records.values():
        memory += worker.memory
        if worker.blocked:
            blocked += state.workers.slots_of(worker)
        if worker.stale:
            worker_commands.tell(out, worker, Drop(worker.stale))
            if spilling.is_short(state):  # a row that runs may take long, and lack that room itself
                worker_commands.drop_objects(state, out, worker.slot, worker.stale)
            worker.stale = []
    is_full = pulse.said_full = spilling.defers_work(state)
    message = Heartbeat(
        state.now, state.workers.target + blocked, state.queued, state.running, pulse.cpu,
        memory, state.objects.index.total, is_full, state.bandwidth.learnt,
        int(state.departure.reason),
    )  # fmt: skip
    out.say(message)


def take_echo(state: HostState, echo: HeartbeatEcho) -> None:
    """The scheduler has heard it."""
    state.pulse.lag = state.now - echo.clock
