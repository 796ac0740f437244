"""What a snapshot of the cluster says to those who provide hosts."""

from __future__ import annotations

from scaler.monitor.snapshot import Snapshot
from scaler.protocol.codes import AgentFlag
from scaler.provisioning.core.events import Agent, Asked, Observed

#: a walltime that has no end, as the column says it
_NO_END = 2**32 - 1


def observed(snapshot: Snapshot) -> Observed:
    """The agents with workers, and what there is to do."""
    columns, demand = snapshot.agents, snapshot.view.demand
    agents = []
    for n in range(len(columns)):
        if columns.flags[n] & AgentFlag.STORE_ONLY:
            continue
        left = columns.walltimes[n]
        agents.append(
            Agent(
                columns.jobs[n], columns.workers[n], columns.rows[n], columns.idle[n] / 1000,
                bool(columns.flags[n] & AgentFlag.DRAINING), None if left == _NO_END else left / 1000,
                _names(columns.capabilities[n]),
            )
        )  # fmt: skip
    asked = [
        Asked(_names(names), queued, work / 1e6, unknown, at_agents, hardly_known)
        for names, queued, work, unknown, at_agents, hardly_known in zip(
            demand.capabilities,
            demand.queued,
            demand.work_us,
            demand.unknown,
            demand.at_agents,
            demand.hardly_known,
            strict=True,
        )
    ]
    return Observed(tuple(agents), tuple(asked))


def _names(joined: str) -> frozenset[str]:
    return frozenset(name for name in joined.split(",") if name)
