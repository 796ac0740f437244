"""A large cluster for hours: work comes in bursts, something goes wrong every minute, in between it is quiet.

Other runs are a minute of a few hosts that have much to do. Here it is as in a cluster of a day's work: agents say
that they live, once a second each, clients come, have their work done and go. Each minute's rows have to have ended
before the minute after the next begins, or the run fails; all that clients leave behind would add up.

What costs time without telling anything is left out: a heartbeat goes through the codec now and then, and the state
is looked at whenever something else than heartbeats was heard, else now and then.
"""

from collections import deque

from scaler.defaults import HEARTBEAT_INTERVAL
from simulator.checks import require
from simulator.clients import SimClient
from simulator.faults import Faults, Mix
from simulator.runs import Cluster, Failure, failure_of
from simulator.workload import User

MINUTE = 60.0
#: seconds of a minute in which work is given and faults happen
BUSY = 10.0
#: what each client asks for in its minute
ACTIONS = 15
#: events of the story that are kept
STORY = 100_000

#: what goes wrong, expected a minute
MIX = Mix(
    "long", kill_worker=2.0, snap=1.0, partition=0.2, stop_agent=0.2, kill_agent=0.3, leave_agent=0.1, kill_client=0.05,
    kill_scheduler=0.1, local_agent=False,
)  # fmt: skip


class LongRun:
    """One seed. `minutes` are simulated."""

    def __init__(self, seed: int, hosts: int, minutes: int, heartbeat: float = HEARTBEAT_INTERVAL) -> None:
        self._seed = seed
        self._hosts = hosts
        self._minutes = minutes
        self._heartbeat = heartbeat
        #: rows that have ended, and how often each fault was met
        self.rows = 0

    def run(self) -> Cluster:
        """All of it. Raises Failure."""
        cluster = None
        try:
            cluster = Cluster(self._seed, MIX, self._populate)
            for minute in range(self._minutes):
                self._begin(cluster, minute)
                cluster.world.run(1000.0 + MINUTE * (minute + 1))
                self._forget(cluster)
            cluster.faulty = 0.0
            cluster.run()
            return cluster
        except Failure:
            raise
        except Exception as error:
            raise failure_of(error, cluster, f"seed {self._seed} of {self._hosts} hosts") from error

    def _populate(self, cluster: Cluster) -> None:
        cluster.world.events = deque(maxlen=STORY)
        cluster.heartbeat = self._heartbeat
        cluster.world.quiet_share = 0.02
        cluster.network.delay = 200e-6
        cluster.start_server()
        for number in range(self._hosts):
            cluster.add_host(cluster.world.random.randint(2, 6), ("gpu",) if number % 4 == 0 else ())

    def _begin(self, cluster: Cluster, minute: int) -> None:
        client = SimClient(cluster, f"client-{minute}", cluster.world.random.choice(("unix", "tcp")), f"far-{minute}")
        cluster.clients.append(client)
        User(cluster.world, client, BUSY, ACTIONS, MIX)
        Faults(cluster, MIX, BUSY)

    def _forget(self, cluster: Cluster) -> None:
        """Clients whose rows have ended leave; who has left is forgotten. Those of the last minute have another one."""
        for client in cluster.outer_clients[:-1]:
            if client.alive and not client.left:
                require(not client.waiting, f"{client.name} waits for {list(client.waiting.values())[:3]}")
        for client in cluster.outer_clients:
            if client.alive and not client.left and cluster.has_ended(client):
                client.user(client.disconnect)
        for client in [client for client in cluster.clients if not client.alive]:
            self.rows += len(client.jobs)
            cluster.clients.remove(client)
        cluster.hosts[:] = [host for host in cluster.hosts if host.alive]
        open_ones = {n: c for n, c in cluster.network.connections.items() if c.open}
        cluster.network.connections = open_ones
