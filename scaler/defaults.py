"""Defaults of options that others show too, each said once. `scaler.config` says what the options mean.

They stand by themselves so that `SchedulerClusterCombo`, whose signature has them, can start its process before the
rest of the program is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `scaler`

if TYPE_CHECKING:
    from typing import Final

EVENT_LOOP: Final = "auto"
PROTECTED = True
#: seconds between two heartbeats
HEARTBEAT_INTERVAL = 1.0
#: seconds between two snapshots for those who watch
MONITOR_INTERVAL = 1.0
#: seconds after which a client of which nothing is heard is gone
CLIENT_TIMEOUT = 10.0
#: seconds after which an agent of which nothing is heard is gone
AGENT_TIMEOUT = 10.0
#: how often a row runs again after the loss of its worker or host, at most: one time less than it runs
RETRIES_ON_LOSS = 3
#: bytes in a message, at most
MAX_MESSAGE_BYTES = 1 << 30
LOG_LEVEL: Final = "INFO"
#: of a local cluster, whose log appears between what its program prints
LOCAL_LOG_LEVEL = "WARNING"
LOG_PATH = "/dev/stdout"
#: percent of the memory that the host has or its container allows which an agent uses
MEMORY_PERCENT = 60
#: where the dashboard's pages are
DASHBOARD_PORT = 8081
#: seconds that a host may take to leave in order: batch systems wait 30 s between SIGTERM and SIGKILL
DRAIN_GRACE = 20.0
