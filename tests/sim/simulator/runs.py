"""One run: a cluster, its users and its faults, until all rows have ended and all clients have gone."""

import math
from typing import Any

from simulator.checks import Wrong, check_empty, check_stores
from simulator.clients import NestedClient, SimClient
from simulator.faults import MIXES, Faults, Mix
from simulator.hosts import Host
from simulator.jobs import Job
from simulator.limits import default_limits
from simulator.network import Network
from simulator.operator import Operator
from simulator.server import Server
from simulator.workload import User
from simulator.world import World

FAULTY = 12.0
#: slots that a row takes, at most
MOST_THREADS = 6
#: virtual seconds after the last fault by which every row must have ended
BOUND = 120.0


class Cluster:
    """All processes of a run."""

    def __init__(self, seed: int, mix: Mix) -> None:
        self.world = World(seed)
        self.mix = mix
        self.network = Network(self.world)
        self.jobs: dict[int, Job] = {}
        self.hosts: list[Host] = []
        self.clients: list[SimClient] = []
        self.server: Any = None
        random = self.world.random
        self.network.delay = random.choice((50e-6, 200e-6, 5e-3))
        #: workers of the agent in the scheduler's process
        self._local = random.randint(1, 4) if mix.local_agent and random.random() < 0.5 else 0
        self.start_server()
        self.operator = Operator(self) if mix.drain_agent else None
        for _ in range(random.randint(0 if self.hosts else 1, 4)):
            self.add_host(random.randint(1, 6), ("gpu",) if random.random() < 0.4 else ())
        if not any(host.capabilities for host in self.hosts):
            self.add_host(2, ("gpu",))
        if mix.threads:
            self.add_host(MOST_THREADS, ("gpu",))
        for i in range(random.randint(1, 4)):
            client = SimClient(self, f"client-{i}", random.choice(("unix", "tcp")), f"far-{i}")
            self.clients.append(client)
            User(self.world, client, FAULTY * random.choice((0.02, 0.3, 1.0)), random.choice((3, 15, 40)), mix)
        Faults(self, mix, FAULTY)

    @property
    def outer_clients(self) -> list[SimClient]:
        """Those that are processes of their own."""
        return [client for client in self.clients if not isinstance(client, NestedClient)]

    def start_server(self) -> None:
        """Start the scheduler, or start it again."""
        limits = default_limits(retries_on_loss=self.mix.retries_on_loss)
        self.server = Server(self.world, self.network, limits, self.add_store)
        self.world.note("scheduler", "starts")
        if self._local:
            local = Host(self, "local", self._local, ("gpu",), None)
            self.hosts.append(local)
            self.server.host_agent(local)

    def add_host(self, workers: int, capabilities: tuple[str, ...]) -> None:
        """Another agent."""
        name = f"agent-{self.world.next_id()}"
        kind = self.world.random.choice(("unix", "tcp", "tcp"))
        walltime = math.inf
        if self.mix.walltime and self.world.now < 1000 + FAULTY and self.world.random.random() < self.mix.walltime:
            walltime = self.world.random.uniform(2.0, 14.0)
        host = Host(self, name, workers, capabilities, kind, walltime=walltime)
        if self.mix.bad_starts:
            host.bad_starts = self.mix.bad_starts
        self.hosts.append(host)

    def add_store(self) -> None:
        """The store beside the scheduler."""
        self.hosts.append(Host(self, f"store-{self.world.next_id()}", 0, (), "unix", "store"))

    def nested_client(self, worker: Any, job: Job, then: Any) -> NestedClient:
        """A client in the task that a worker runs."""
        host = worker.host
        client = NestedClient(self, worker, job, then, host.kind or "unix", host.name)
        self.clients.append(client)
        return client

    def run(self) -> None:
        """All of it. Raises Wrong."""
        world = self.world
        world.run(world.now + FAULTY)
        for process in [self.server, *self.hosts, *self.clients]:
            process.go_on()
        done = world.run(world.now + BOUND, self._all_ended)
        if not done:
            waiting = [(c, job) for c in self.clients if c.alive for job in c.waiting.values()]
            client, job = waiting[0] if waiting else (None, None)
            words = (
                (f"job-{job.uid}.", f"batch={job.id}", f"{job.id}") if job is not None and client is not None else ()
            )
            raise Wrong(f"rows have not ended: {[(c.name, job) for c, job in waiting[:3]]}", *words)
        for client in self.clients:
            if client.alive and not client.left:
                if world.random.random() < 0.5:
                    client.user(client.disconnect)
                else:
                    client.die()
        world.run(world.now + 30.0)
        self._check_leavers()
        if self.operator is not None:
            self.operator.line.close()
            self.operator.die()
            world.run(world.now + 1.0)
        check_empty(self.server.core, {host.name: host.core for host in self.hosts if host.alive})
        check_stores([host for host in self.hosts if host.alive])
        left = [client.name for client in self.clients if client.alive and not client.gone]
        if left:
            raise Wrong(f"clients wait for an answer to their goodbye: {left}")

    def _check_leavers(self) -> None:
        """Whoever was to go has gone; where nobody was killed no row ran twice, and none was lost."""
        for host in self.hosts:
            if host.alive and host.core.state.departure.is_under_way:
                raise Wrong(f"{host.name} was to go, and is still there", host.name, f"agent {host.number}")
        if self.world.kills or self.mix.name != "leaving":
            return
        for client in self.clients:
            for job in client.jobs:
                if job.runs > 1:
                    raise Wrong(f"{job} ran {job.runs} times", f"job-{job.uid}.", f"batch={job.id}", str(job.id))

    def _all_ended(self) -> bool:
        for client in self.clients:
            if (
                client.alive
                and not client.left
                and (client.waiting or client.reading or client.claimed or client._later or not client._begun)
            ):
                return False
        return True


class Failure(Exception):
    """A run went wrong; the text says how to run it again, and what happened."""


def run(seed: int, mix: str) -> Cluster:
    """One run. Raises Failure."""
    cluster = None
    try:
        cluster = Cluster(seed, MIXES[mix])
        cluster.run()
        return cluster
    except Exception as error:
        words = error.words if isinstance(error, Wrong) else ()
        story = cluster.world.story(words) if cluster is not None else ""
        when = cluster.world.now - 1000 if cluster is not None else 0.0
        again = f"again: SCALER_SIM_SEED={seed} with the mix {mix!r}"
        raise Failure(f"{type(error).__name__}: {error}\nat {when:.6f}; {again}\n{story}") from error
