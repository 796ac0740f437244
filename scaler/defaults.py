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
#: seconds for which a client looks for a scheduler that it has lost
RECONNECT = 10.0
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
#: seconds between two looks of a provisioner at its cluster, and between two questions for the state of its jobs
PROVISION_INTERVAL, LIST_INTERVAL = 1.0, 5.0
#: hosts that a provisioner keeps at least, and at most
MINIMUM_HOSTS, MAXIMUM_HOSTS = 0, 10
#: seconds in which a queue should be worked off
DRAIN_TIME = 60.0
#: seconds that a task counts as whose duration is not known
DURATION_GUESS = 1.0
#: seconds without anything to do after which a host goes
HOST_IDLE_TIME = 30.0
#: hosts that are asked for and not there, at most
MAX_PENDING_HOSTS = 100
#: seconds after which a job is given up that has not begun, and whose agent did not come
PENDING_TIMEOUT, START_TIMEOUT = 86_400.0, 120.0
#: seconds before the end of a host's walltime at which another is asked for
WALLTIME_LEAD = 30.0
#: seconds for which a request for hosts that has failed may have been taken all the same
SETTLE_TIME = 5.0
#: seconds without a scheduler after which hosts, and who provides them, end
ORPHAN_TIMEOUT = 600.0
