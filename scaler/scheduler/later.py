"""The modules that a scheduler starts without, and may need later."""

#: each behind those that it imports
LATER = (
    "scaler.scheduler.core.relaying",
    "scaler.scheduler.core.rehearsal",
    "scaler.protocol.messages.cluster_view",
    "scaler.scheduler.views.demand",
    "scaler.scheduler.core.explaining",
    "scaler.scheduler.views.task_pages",
    "scaler.scheduler.core.answering",
    "scaler.scheduler.core.commanding",
    "scaler.scheduler.core.rebuilding",
    "scaler.scheduler.missing_agents",
    "scaler.protocol.views",
    "scaler.scheduler.views.cluster_view",
    "scaler.scheduler.views.snapshot",
    "scaler.scheduler.state.validate",
)
#: of one that may be one of a pair
OF_PAIRS = (
    "scaler.protocol.initiator",
    "scaler.scheduler.partner_link",
    "scaler.journal",
    "scaler.journal.records",
    "scaler.journal.layout",
    "scaler.journal.history",
    "scaler.journal.directory",
)
