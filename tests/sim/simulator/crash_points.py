"""A fixed piece of work, and the same once more for each boundary between two effects, where one process is killed.

A process carries out one effect of its core after the other: it sends a message, starts a worker, drops an object.
Killed between two of them, it leaves the others with what it has done so far. Random faults hit few of these points;
here each is hit, of every role: schedulers, agents, clients, workers, and clients inside tasks.

The work has what goes through several hands: calls, a map, a graph with large values, objects that were sent, tasks
that wait for tasks, cancellations. As only one process is killed and it is replaced, more holds than in other runs:
every row of a client that lives has its value, and as long as all agents live none runs twice, unless a worker that was
ended since the client of its row is gone had just begun it.
"""

from typing import Any

from simulator.checks import require
from simulator.clients import SimClient
from simulator.faults import Mix
from simulator.jobs import Job
from simulator.runs import Cluster, failure_of
from simulator.world import Fuse

MIX = Mix("crash points", local_agent=False, full=0.0, without=frozenset({"memory", "poison"}))
ROLES = ("scheduler", "agent", "client", "worker", "task")
#: seconds after which a process that was killed is replaced
SCHEDULER_AFTER, HOST_AFTER = 0.2, 0.5
#: seconds in which the work is given
DURATION = 0.2
#: seconds after the last client has left in which boundaries still count
AFTERWARDS = 0.05


class Script:
    """What one user does, always the same."""

    def __init__(self, cluster: Cluster, client: SimClient, offset: float) -> None:
        self._cluster = cluster
        self._client = client
        self._first: list[Job] = []
        for at, act in enumerate((self._calls, self._graph, self._map, self._cancelled, self._nested, self._more)):
            cluster.world.after(offset + 0.005 * at, client.user, act)

    def _jobs(self, count: int, us: int, stored: int = 0, behaviour: str = "value", parameter: int = 0) -> list[Job]:
        world = self._cluster.world
        return [Job(world.next_id(), us, behaviour, parameter, stored=stored) for _ in range(count)]

    def _calls(self) -> None:
        self._first = self._jobs(2, 300) + self._jobs(1, 2_000, 200_000)
        self._client.submit("f", self._first)

    def _graph(self) -> None:
        sources = self._jobs(2, 1_000, 1_000_000)
        middle = self._jobs(3, 2_000, 150_000)
        last = self._jobs(2, 500)
        for job in middle:
            job.needs += sources
        last[0].needs += middle
        last[1].needs += [*middle[:1], self._first[2]]
        wanted = {job.uid for job in (*last, middle[2])}
        self._client.graph([sources, middle, last], wanted, [])

    def _map(self) -> None:
        self._client.map("each", self._jobs(12, 1_500), whole=True)
        self._client.map("g", self._jobs(3, 100), whole=False, capabilities=("gpu",))

    def _cancelled(self) -> None:
        jobs = self._jobs(6, 8_000)
        self._client.submit("slow", jobs)
        self._cluster.world.after(0.004, self._client.user, lambda: self._client.cancel(jobs[:2], force=False))
        self._cluster.world.after(0.006, self._client.user, lambda: self._client.cancel(jobs[3:5], force=True))

    def _nested(self) -> None:
        self._client.submit("outer", self._jobs(1, 100, behaviour="nest", parameter=1))

    def _more(self) -> None:
        constants = [self._client.announce(number) for number in (1, 2, 3)]
        jobs = self._jobs(3, 700)
        for job in jobs:
            job.needs = [*constants, self._first[2]]
        self._client.submit("h", jobs)
        self._client.user(lambda: self._client.release(constants[0]))


def is_lost_with_its_host(job: Job) -> bool:
    """Whether its value, or one that it needs, died with the host of the scheduler that knew how to make it again."""
    if job.end is None or job.end[0] != "object":
        return False
    return job.renewed or any(isinstance(need, Job) and is_lost_with_its_host(need) for need in job.needs)


class CrashPoints:
    """The work of one seed. `is_local`: an agent is in the scheduler's process, as in a local cluster."""

    def __init__(self, seed: int, is_local: bool) -> None:
        self._seed = seed
        self._is_local = is_local

    def count(self, role: str) -> int:
        """How many boundaries processes of a role pass until all clients have left."""
        cluster = self.run(role, None)
        assert cluster.world.fuse is not None
        left = max(client.left_at for client in cluster.clients)
        return sum(when <= left + AFTERWARDS for when in cluster.world.fuse.passed)

    def run(self, role: str, at: int | None) -> Cluster:
        """The work, with the process killed that passes this boundary of a role. Raises Failure."""
        cluster = None
        try:
            cluster = Cluster(self._seed, MIX, lambda made: self._populate(made, Fuse(role, at)))
            cluster.run()
            self._check(cluster)
            return cluster
        except Exception as error:
            kind = "local cluster" if self._is_local else "cluster"
            again = f"boundary {at} of {role} with seed {self._seed} in a {kind}"
            raise failure_of(error, cluster, again) from error

    def _populate(self, cluster: Cluster, fuse: Fuse) -> None:
        world = cluster.world
        world.fuse = fuse
        world.killers = {
            "scheduler": lambda server: self._restart(cluster),
            "agent": lambda host: self._replace(cluster, host),
            "client": lambda client: client.die(),
            "worker": lambda worker: worker.die(9),
            "task": lambda nested: nested.worker.die(9),
        }
        cluster.faulty = DURATION
        cluster.network.delay = 200e-6
        cluster.local_workers = 2 if self._is_local else 0
        cluster.start_server()
        if not self._is_local:
            cluster.add_host(2, (), "unix")
        cluster.add_host(2, ("gpu",), "tcp")
        for number, kind in enumerate(("unix", "tcp")):
            client = SimClient(cluster, f"client-{number}", kind, f"far-{number}")
            cluster.clients.append(client)
            Script(cluster, client, 0.04 + 0.007 * number)

    @staticmethod
    def _restart(cluster: Cluster) -> None:
        cluster.server.die()
        cluster.world.after(SCHEDULER_AFTER, cluster.start_server)

    def _replace(self, cluster: Cluster, host: Any) -> None:
        if host.line is None:
            self._restart(cluster)
            return
        host.die()
        cluster.hosts.remove(host)
        target = host.core.state.workers.target
        cluster.world.after(HOST_AFTER, cluster.add_host, target, host.capabilities, host.kind)

    @staticmethod
    def _ended_with(cluster: Cluster, job: Job) -> int:
        """Workers that were ended for a row of the client that was killed, and had begun this one just then."""
        return sum(what.endswith(f" with job-{job.uid}.") for _, _, what in cluster.world.events if type(what) is str)

    def _check(self, cluster: Cluster) -> None:
        fuse = cluster.world.fuse
        killed = fuse.killed if fuse is not None else None
        no_agent_died = killed is None or (fuse.role in ("scheduler", "client") and not self._is_local)
        for client in cluster.clients:
            for job in client.jobs:
                words = f"job-{job.uid}.", f"batch={job.id}", str(job.id)
                is_right = job.end is not None and (job.end[0] == "value" or job.cancelled)
                is_right = is_right or (self._is_local and is_lost_with_its_host(job))
                require(is_right or not client.is_outer or client is killed, f"{job} has no value", *words)
                begun = self._ended_with(cluster, job) if fuse is not None and fuse.role == "client" else 0
                again = job.runs > 1 + begun
                require(not (again and no_agent_died), f"{job} ran {job.runs} times, and all agents live", *words)
