"""Workers can't start since the system lets there be no more processes or threads: they are tried again for ever.

An agent that may end is left to whoever runs hosts, who reads its log. The program of a local cluster would wait for
ever: when no worker could start for a while, its rows end with an error that names the limit, as where what workers
call first has failed (`preloads`), until one starts.
"""

from scaler.agent.core.outgoing import Outgoing
from scaler.agent.state.host import HostState
from scaler.agent.state.worker_records import STARTING

#: seconds without any worker after which rows end with an error
PATIENCE = 30.0


def take_failed_start(state: HostState, out: Outgoing, trouble: str, delay: float) -> None:
    """A worker could not start for this reason, and is tried again in so many seconds."""
    pool = state.workers
    if any(record.state is not STARTING for record in pool.records.values()):
        return
    if pool.failing_since is None:
        pool.failing_since = state.now
    if state.may_end or pool.is_unfit or state.now + delay - pool.failing_since < PATIENCE:
        return
    pool.is_unfit, pool.failed_preload = True, trouble
    out.log("ERROR", f"no worker of this host can start: {trouble}; tasks fail until one can, which is tried again")
