"""One run: a cluster, its users and its faults, until all rows have ended and all clients have gone."""

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from scaler.defaults import HEARTBEAT_INTERVAL
from scaler.journal.directory import JournalError
from scaler.protocol.messages import APART, GRAPH, JobQuestion, Task
from scaler.scheduler.core import roots
from scaler.scheduler.succession import Succession
from simulator.checks import Wrong, check_empty, check_stores, require
from simulator.clients import LastingClient, NestedClient, SimClient
from simulator.durable import Disk, DurableUser, SimKeeper
from simulator.durable_job import DurableJob
from simulator.faults import MIXES, Faults, Mix, drawn, drawn_pair
from simulator.hosts import Host
from simulator.job_users import JobUser
from simulator.jobs import Job
from simulator.journals import Journals
from simulator.limits import default_limits
from simulator.network import Network
from simulator.operator import Operator
from simulator.pair import Pair
from simulator.server import Server
from simulator.shared_files import SharedFiles, SimFiles
from simulator.workload import User
from simulator.world import TICK, World

FAULTY = 12.0
#: slots that a row takes, at most
MOST_THREADS = 6
#: virtual seconds after the last fault by which every row must have ended
BOUND = 120.0
#: and until somebody sees that all hosts are about to go
RELIEF = 5.0


class Cluster:
    """All processes of a run."""

    def __init__(
        self,
        seed: int,
        mix: Mix,
        populate: "Callable[[Cluster], None] | None" = None,
        journals: Journals | None = None,
    ) -> None:
        """`populate` says who is there and does what; without it, that is drawn from the seed.

        `journals` are those of a pair.
        """
        self.world = World(seed)
        self.mix = mix
        #: virtual seconds in which things may go wrong
        self.faulty = FAULTY
        #: seconds between two heartbeats
        self.heartbeat = HEARTBEAT_INTERVAL
        self.network = Network(self.world)
        self.network.tells_ends = bool(mix.reset)
        self.jobs: dict[int, Job] = {}
        self.hosts: list[Host] = []
        self.clients: list[SimClient] = []
        #: the scheduler, if there is no pair of them
        self._server: Any = None
        self.pair = Pair(self.world) if mix.pair else None
        self.network.sites = 2 if mix.pair else 1
        #: schedulers that were started after the first
        self.restarts = -1
        self.disk = Disk()
        self.journals = journals
        #: users of durable jobs with sessions of their own; and all those jobs, by their tokens
        self.users: list[JobUser] = []
        self.durable_jobs: dict[int, DurableJob] = {}
        self.shared = SharedFiles()
        #: schedulers have a directory for large results of durable jobs
        self.shares_files = bool(mix.durable or mix.journal) and self.world.random.random() < 0.6
        #: by their numbers, which are below 0
        self.durable: dict[int, DurableUser] = {}
        #: workers of the agent in the scheduler's process
        self.local_workers = 0
        self.operator: Operator | None = None
        (populate or (Cluster._populate_pair if mix.journal else Cluster._populate))(self)

    def _populate(self) -> None:
        mix, random = self.mix, self.world.random
        self.network.delay = random.choice((50e-6, 200e-6, 5e-3))
        self.local_workers = random.randint(1, 4) if mix.local_agent and random.random() < 0.5 else 0
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
        self.durable.update({-n: DurableUser(self, -n) for n in range(1, mix.durable + 1)})
        Faults(self, mix, FAULTY)

    def _populate_pair(self) -> None:
        """A pair that keeps durable jobs: their users, few agents, and perhaps somebody with other work."""
        mix, random = self.mix, self.world.random
        self.faulty = FAULTY + 4.0
        self.network.delay = random.choice((50e-6, 200e-6, 5e-3))
        self.start_server()
        for number in range(random.randint(1, 4)):
            self.add_host(random.randint(1, 3), () if number else ("gpu",))
        for number in range(random.randint(1, 3)):
            self.users.append(JobUser(self, number, self.world.now + self.faulty))
        if random.random() < 0.3:
            client = SimClient(self, "client", random.choice(("unix", "tcp")), "far")
            self.clients.append(client)
            User(self.world, client, self.faulty, 5, mix)
        Faults(self, mix, self.faulty)

    @property
    def peers(self) -> list[Any]:
        """All that have a connection to the scheduler."""
        return [*self.hosts, *self.clients, *self.users]

    @property
    def server(self) -> Any:
        """The scheduler; of a pair the one that leads."""
        return self._server if self.pair is None else self.pair.leader

    @property
    def outer_clients(self) -> list[SimClient]:
        """Those that are processes of their own."""
        return [client for client in self.clients if client.is_outer]

    def start_server(self) -> None:
        """Start the scheduler, or start it again."""
        if self.pair is not None:
            for site in range(2):
                self.start_at(site)
            return
        self.restarts += 1
        limits = default_limits(retries_on_loss=self.mix.retries_on_loss, kept_bytes=self.mix.kept_bytes)
        self._server = Server(self.world, self.network, limits, self.add_store, self.heartbeat)
        self._server.is_listening = self._is_listening
        if self.mix.durable:
            self.server.keep_jobs(SimKeeper(self, self.server))
        self.world.note("scheduler", "starts")
        if self.local_workers:
            local = Host(self, "local", self.local_workers, ("gpu",), None)
            self.hosts.append(local)
            self.server.host_agent(local)

    def _is_listening(self, whereabouts: str) -> bool:
        return any(host.alive and whereabouts.startswith(f"tcp://{host.name}:1 ") for host in self.hosts)

    def start_at(self, site: int, succession: Succession | None = None) -> None:
        """Start one of a pair, or start it again; with `succession` after it has stepped down."""
        assert self.pair is not None
        if site in self.network.servers:
            return
        self.restarts += 1
        limits = default_limits(retries_on_loss=self.mix.retries_on_loss, kept_bytes=self.mix.kept_bytes)
        server = Server(
            self.world, self.network, limits, lambda: self.add_store(site), self.heartbeat, site, self.pair,
            succession or self.pair.succession_at(site), self.start_at,
        )  # fmt: skip
        server.is_listening = self._is_listening
        self.world.note(f"scheduler-{site}", "starts")
        if self.journals is None:
            return
        server.on_task = self._check_handed_out
        try:
            server.begin_keeping(self.journals, self._files_of if self.shares_files else None)
        except JournalError as error:  # whoever supervises it starts it again
            self.world.note(server.name, f"ends: {error}")
            server.die()
            self.world.after(1.0, self.start_at, site)

    def _files_of(self, site: int, wake: Callable[[], None], wakeup: int) -> SimFiles:
        assert self.journals is not None
        return SimFiles(self.world, self.shared, wake, wakeup, partial(self.journals.identity_of, self.world, site))

    def may_lose_disk(self, site: int) -> bool:
        """The scheduler at the other site has all that counts, or will not need this one."""
        assert self.pair is not None
        leader, other = self.pair.leader, self.pair.servers[1 - site]
        if self.mix.journal != "copied" or not other.alive or other.stopped or not leader.alive:
            return False
        journal = leader.keeping.journal
        if journal is None or leader.succession.journal.is_held:  # the only copy may be the other one's
            return False
        return leader is other or journal.sending.is_in_step

    def _check_handed_out(self, server: Server, to: Any, task: Task) -> None:
        """What was shown to somebody does not run again."""
        assert self.pair is not None
        token = server.token_of(task.client)
        if token is None or server is not self.pair.leader:
            return
        made = self.durable_jobs[token]
        for lo, hi in zip(task.spans[::2], task.spans[1::2], strict=True):
            for row in range(lo, hi):
                job = made.by_id.get(task.batch + row)
                is_known = job is not None and job.end is not None and made.made > self.pair.warned
                if task.form == GRAPH and task.flags & APART:
                    continue  # what was made of it is lost, and it is computed again for that
                require(
                    not is_known, f"{made.name}: a row is handed out to {to.name} that was shown: {job}",
                    f"job-{job.uid}." if job is not None else "", f"batch={task.batch}",
                )  # fmt: skip

    def add_host(self, workers: int, capabilities: tuple[str, ...], kind: str | None = None) -> None:
        """Another agent; `kind` of its connection is drawn if it is not said."""
        name = f"agent-{self.world.next_id()}"
        kind = kind or self.world.random.choice(("unix", "tcp", "tcp"))
        walltime = math.inf
        if self.mix.walltime and self.world.now < 1000 + FAULTY and self.world.random.random() < self.mix.walltime:
            walltime = self.world.random.uniform(2.0, 14.0)
        host = Host(self, name, workers, capabilities, kind, walltime=walltime)
        if self.mix.bad_starts:
            host.bad_starts = self.mix.bad_starts
        self.hosts.append(host)

    def add_store(self, site: int = 0) -> None:
        """The store beside the scheduler."""
        self.hosts.append(Host(self, f"store-{self.world.next_id()}", 0, (), "unix", "store"))

    def nested_client(self, worker: Any, job: Job, then: Any) -> NestedClient:
        """A client in the task that a worker runs."""
        host = worker.host
        client = NestedClient(self, worker, job, then, host.kind or "unix", host.name)
        self.clients.append(client)
        return client

    def lasting_client(self, worker: Any) -> LastingClient:
        """The client of a worker process."""
        client = LastingClient(self, worker, worker.host.kind or "unix", worker.host.name)
        self.clients.append(client)
        return client

    def root_of(self, root: int) -> SimClient:
        """The client that a task has as its root, one of those that are processes of their own."""
        found = next((client for client in self.outer_clients if roots.root_of(client.line.session) == root), None)
        if found is None:
            raise Wrong(f"a task has the root {root}, which is no client's")
        return found

    def run(self) -> None:
        """All of it. Raises Wrong."""
        world = self.world
        world.run(world.now + self.faulty)
        self.network.cut.clear()
        self.network.ways.clear()
        for process in [*self.network.servers.values(), *self.peers]:
            process.go_on()
        world.after(RELIEF, self._relieve)
        done = world.run(world.now + BOUND, self._all_ended)
        if not done and all(self.has_ended(client) for client in self._awaited_clients):
            asked = [(user.name, str(user._asked)[:80]) for user in self.users if not user.is_done]
            raise Wrong(f"users wait: {asked}", "scheduler-", *(name for name, _ in asked))
        if not done:
            waiting = [(c, job) for c in self.clients if c.alive for job in c.waiting.values()]
            client, job = waiting[0] if waiting else (None, None)
            words = (
                (f"job-{job.uid}.", f"batch={job.id}", f"{job.id}") if job is not None and client is not None else ()
            )
            raise Wrong(f"rows have not ended: {[(c.name, job) for c, job in waiting[:3]]}", *words)
        for client in self._awaited_clients:
            if world.random.random() < 0.5:
                client.user(client.disconnect)
            else:
                client.die()
        world.run(world.now + 30.0)
        self._end_lasting_clients()
        self._check_leavers()
        self._check_restarts()
        if self.operator is not None:
            self.operator.line.close()
            self.operator.die()
            world.run(world.now + 1.0)
        for user in self.durable.values():
            user.check()
        if self.pair is not None and self.pair.warned > float("-inf") and self.server.keeper is not None:
            self._delete_what_came_back()
        require(
            not self.disk.segments, f"all jobs are deleted, and the journal has segments {list(self.disk.segments)}"
        )
        if self.shares_files:
            self._look_at_files()
        if self.journals is not None:
            self._check_journals(self.journals)
        require(
            self.mix.journal == "copied" or not self.shared.there,
            f"all jobs are deleted, and there are files {list(self.shared.there)}",
        )
        check_empty(self.server.core, {host.name: host.core for host in self.hosts if host.alive})
        check_stores([host for host in self.hosts if host.alive])
        left = [client.name for client in self.clients if client.alive and not client.gone]
        if left:
            raise Wrong(f"clients wait for an answer to their goodbye: {left}")

    def _end_lasting_clients(self) -> None:
        """All roots have left, and with them what tasks have submitted for them; then the workers' clients leave.

        Those whose workers were ended with a root's rows are missed some time after those roots were.
        """
        lasting = [client for client in self.clients if isinstance(client, LastingClient)]
        for client in lasting:
            if not client.alive:
                continue
            for job in client.waiting.values():
                raise Wrong(f"{job} of {client.name} goes on without its root", f"job-{job.uid}.", str(job.id))
            client.user(client.disconnect)
        if lasting:
            self.world.run(self.world.now + 30.0)

    def _relieve(self) -> None:
        """Where all hosts drain, and wait for somebody to take over what they have, another one comes."""
        hosts = [host for host in self.hosts if host.alive and host.core.state.workers.target]
        if hosts and all(host.core.state.departure.is_under_way for host in hosts):
            self.add_host(hosts[0].core.state.workers.target, hosts[0].capabilities, "tcp")

    def _look_at_files(self) -> None:
        files = self.server.keeper.files if self.pair is None else self.server.keeper._files
        files.look()
        self.server.post(TICK)
        self.world.run(self.world.now + 1.0)

    def _delete_what_came_back(self) -> None:
        """Jobs that were deleted, when it was said that something may be missing: that they are deleted, for one."""
        for job in list(self.server.keeper._core._table.by_name):
            self.server.keeper.ask(-1, JobQuestion(0, "delete", job))
        self.server.post(TICK)
        self.world.run(self.world.now + 5.0)

    def _check_journals(self, journals: Journals) -> None:
        """All jobs are deleted, and a copy is the same."""
        assert self.pair is not None
        require(bool(self.pair.leader.keeper is not None), "the one that leads keeps no jobs", "scheduler-")
        require(not self.pair.leader.keeper.jobs, "there are jobs that were deleted", "scheduler-")
        for site in range(2):
            left = list(journals.segments(site))
            require(not left, f"all jobs are deleted, and the journal at {site} has {left}", "scheduler-")
        if not journals.is_shared:
            journal = self.pair.leader.keeping.journal
            require(journal.sending.is_in_step, "the copy of the journal is not in step", "scheduler-")

    def _check_leavers(self) -> None:
        """Whoever was to go has gone; where nobody was killed no row ran twice, and none was lost."""
        for host in self.hosts:
            if host.alive and host.core.state.departure.is_under_way:
                raise Wrong(f"{host.name} was to go, and is still there", host.name, f"agent {host.number}")
        if self.mix.name != "leaving":
            return
        for client in self.clients:
            for job in client.jobs:
                if job.end is not None and job.end[0] == "lost":
                    raise Wrong(f"{job} was lost, and all losses were announced", f"job-{job.uid}.", str(job.id))
                if job.runs > 1 and not self.world.kills:
                    raise Wrong(f"{job} ran {job.runs} times", f"job-{job.uid}.", f"batch={job.id}", str(job.id))

    def _all_ended(self) -> bool:
        if not all(self.has_ended(client) for client in self._awaited_clients):
            return False
        return all(user.is_done for user in [*self.durable.values(), *self.users])

    @property
    def _awaited_clients(self) -> list[SimClient]:
        """Those whose work comes to an end: what tasks submit that nobody waits for does not."""
        return [c for c in self.clients if c.alive and not c.left and not isinstance(c, LastingClient)]

    def _check_restarts(self) -> None:
        """Where only schedulers were killed, and agents left in time, each row has its value, and none ran twice."""
        if self.mix.name not in ("schedulers alone", "leaving and schedulers"):
            return
        for client in self.clients:
            for job in client.jobs:
                words = f"job-{job.uid}.", f"batch={job.id}", str(job.id)
                require(job.end is not None and job.end[0] == "value", f"{job} has no value", *words)
                require(job.runs <= 1, f"{job} ran {job.runs} times", *words)

    @staticmethod
    def has_ended(client: SimClient) -> bool:
        """All that a client has asked for has ended, and it has looked at it."""
        return not (client.waiting or client.reading or client.claimed or client._later or not client._begun)


class Failure(Exception):
    """A run went wrong; the text says how to run it again, and what happened."""


def run(seed: int, mix: str) -> Cluster:
    """One run. Raises Failure."""
    cluster = None
    drawn_mix = MIXES[mix]
    if drawn_mix.is_swarm:
        drawn_mix = drawn_pair(seed, drawn_mix) if drawn_mix.pair else drawn(seed)
    try:
        with Journals() if drawn_mix.journal else contextlib.nullcontext() as journals:
            if journals is not None:
                journals.is_shared = drawn_mix.journal == "shared"
            cluster = Cluster(seed, drawn_mix, journals=journals)
            cluster.run()
        return cluster
    except Exception as error:
        raise failure_of(error, cluster, f"SCALER_SIM_SEED={seed} with the mix {mix!r}") from error


def failure_of(error: Exception, cluster: Cluster | None, again: str) -> Failure:
    """What went wrong in a run, how to have it again, and the story of what it is about."""
    words = error.words if isinstance(error, Wrong) else ()
    story = cluster.world.story(words) if cluster is not None else ""
    when = cluster.world.now - 1000 if cluster is not None else 0.0
    return Failure(f"{type(error).__name__}: {error}\nat {when:.6f}; again: {again}\n{story}")
