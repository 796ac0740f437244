"""Looking at a cluster from outside: `Watcher` gives `Snapshot`s, and says when there is no scheduler.

    with Watcher("ipc:///tmp/127.0.0.1_2345_monitor") as watcher:   # or the scheduler's address, tcp://host:port
        for seen in watcher:                                        # blocks; ends when the watcher is closed
            if seen.is_connected:
                print(seen.snapshot.rows.finished)
            else:
                print(f"no scheduler since {seen.since}: {seen.reason}")

What is in a `Snapshot` is in columns, one array for each figure: `scaler.protocol.messages.cluster_view` and `watching`
say what each is.
"""

from scaler.monitor.snapshot import Snapshot
from scaler.monitor.watcher import Seen, Watcher
from scaler.protocol.codes import AgentFlag, WorkerFlag

__all__ = ["AgentFlag", "Seen", "Snapshot", "Watcher", "WorkerFlag"]
