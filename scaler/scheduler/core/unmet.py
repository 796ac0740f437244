"""Rows that ask for what no agent has wait: the log says so, once of each function."""

from scaler.scheduler.core import placement
from scaler.scheduler.core.outgoing import Outgoing
from scaler.scheduler.state.batch_records import ANYTHING, Demand, demand_words
from scaler.scheduler.state.client_records import ClientRecord
from scaler.scheduler.state.cluster import ClusterState
from scaler.scheduler.state.function_records import FunctionRecord

#: functions that one line of the log names, at most
NAMES = 5


def say_whether_met(
    state: ClusterState, out: Outgoing, client: ClientRecord, function: FunctionRecord, demand: Demand
) -> None:
    """A client's batch asks for this. Its calls may come one by one; of many functions of a client some are named."""
    if placement.can_ever_run(state, demand):
        function.unmet.discard(demand)
    elif demand not in function.unmet:
        function.unmet.add(demand)
        more = client.unmet_lines.words(state.now)
        if more is not None:
            words = demand_words(demand)
            out.log("WARNING", f"{function.name} needs {words}, which no agent has yet: its rows wait{more}")


def name_stranded(state: ClusterState, out: Outgoing) -> None:
    """An agent was lost: say which rows wait for what none has any more; of those that did before it was said."""
    unmet = state.queues.unmet
    for key, queue in state.queues.items():
        demand = key[1]
        if key not in unmet and demand != ANYTHING and queue.rows and not placement.can_ever_run(state, demand):
            functions = list(dict.fromkeys(batch.function for batch, _, _ in queue))
            for function in functions:
                function.unmet.discard(demand)
            names = list(dict.fromkeys(function.name for function in functions))
            more = f" and {len(names) - NAMES} other functions" if len(names) > NAMES else ""
            rows = f"{queue.rows} rows of {', '.join(names[:NAMES])}{more}"
            out.log("WARNING", f"{rows} need {demand_words(demand)}, which no agent has any more: they wait")
