"""What the scheduler says of queued rows, just before it shares them out, is what then happens to them."""

from typing import Any

from scaler.scheduler.core.explaining import Reason, explain
from scaler.scheduler.core.scheduler_core import SchedulerCore
from scaler.scheduler.state.batch_records import AGENT, QUEUED
from simulator.checks import THOROUGH, require
from simulator.world import World


def check_explanations(world: World, core: SchedulerCore) -> None:
    """From now on a few queued rows are explained, now and then, before they are shared out: runnable means placed."""
    worklist: Any = core._worklist
    share_out, state = worklist.share_out, core.state

    def checked() -> None:
        explained = []
        if THOROUGH or world.look.random() < 0.03:
            spans = [span for _, queue in state.queues.items() for span in queue]
            for batch, lo, hi in world.look.sample(spans, min(4, len(spans))):
                row = world.look.randrange(lo, hi)
                require(batch.place[row] == QUEUED, f"row {row} is in a queue and not queued", f"batch={batch.id}")
                explained.append((batch, row, explain(state, state.clients[batch.client], batch, row)))
        share_out()
        for batch, row, told in explained:
            is_placed = batch.place[row] >= AGENT
            require(
                is_placed == (told.reason == Reason.RUNNABLE),
                f"client {batch.client}, row {batch.id + row} was said to be: {told.reason} ({told.lines}), "
                f"and it {'was' if is_placed else 'was not'} placed",
                f"batch={batch.id}",
            )
            world.explained[told.reason] += 1

    worklist.share_out = checked
