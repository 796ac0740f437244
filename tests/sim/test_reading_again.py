"""Values of a graph are lost before anybody has read them, and read one by one: each is computed again, for itself.

What two of them are made of is thus made, let go of, and made again by the same worker, which may hear of the first
one's end after it has made the second.
"""

import pytest
from simulator.checks import Wrong
from simulator.clients import SimClient
from simulator.faults import Mix
from simulator.jobs import Job
from simulator.runs import Cluster

LARGE = 2_400_000
GPU = ("gpu",)
MIX = Mix("reading again", local_agent=False, late_control=0.5, without=frozenset({"memory"}))


class LateReader(SimClient):
    """Its user looks at stored values when told to, one after the other."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        super().__init__(cluster, "client", kind, "far")
        self.unread: list[Job] = []
        self._may_read = False

    def _end(self, job: Job, end: tuple[object, ...]) -> None:
        if end[0] == "stored" and not self._may_read:
            self.waiting.pop(job.uid, None)
            self.unread.append(job)
        else:
            super()._end(job, end)

    def read_next(self) -> None:
        """Look at one, and then at the others."""
        self._may_read = True
        if self.unread:
            job = self.unread.pop(0)
            self.reading[job.id] = job
            self._read(job)

    def _have_read(self, job: Job, end: tuple[object, ...]) -> None:
        super()._have_read(job, end)
        self.user(self.read_next)


class Play:
    """A graph of four sums, each of two of four other values; and its user."""

    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed, MIX, self._populate)
        world = self.cluster.world
        made = [Job(world.next_id(), 300, stored=LARGE) for _ in range(4)]
        self.sums = [Job(world.next_id(), 300, needs=[made[n], made[(n + 1) % 4]], stored=LARGE) for n in range(4)]
        wanted = {job.uid for job in self.sums}
        self.user.user(lambda: self.user.graph([made, self.sums], wanted, [], capabilities=GPU))

    def _populate(self, cluster: Cluster) -> None:
        cluster.start_server()
        self._add_host(cluster)
        self.user = LateReader(cluster, cluster.world.random.choice(("unix", "tcp")))
        cluster.clients.append(self.user)

    @staticmethod
    def _add_host(cluster: Cluster) -> None:
        cluster.add_host(1, GPU, "tcp")
        cluster.hosts[-1].live_limit = 1 << 40

    def lose_host(self) -> None:
        """It is gone, and another one comes; in some runs the scheduler is killed first."""
        cluster, world = self.cluster, self.cluster.world
        if world.random.random() < 0.5:
            cluster.server.die()
            cluster.start_server()
            world.run(world.now + world.random.uniform(0, 1))
        host = next(host for host in cluster.hosts if host.capabilities == GPU)
        host.die()
        cluster.hosts.remove(host)
        self._add_host(cluster)

    def run(self) -> None:
        """All of it. Raises Wrong."""
        world = self.cluster.world
        assert world.run(world.now + 20, lambda: len(self.user.unread) == len(self.sums))
        self.lose_host()
        self.user.user(self.user.read_next)
        if not world.run(world.now + 60, lambda: all(job.end is not None for job in self.sums)):
            raise Wrong(f"not all is read: {self.sums}", *(f"job-{job.uid}." for job in self.sums))


@pytest.mark.parametrize("seed", range(30))
def test_each_is_computed_again(seed: int) -> None:
    Play(seed).run()
