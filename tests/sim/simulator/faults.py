"""What goes wrong, from the seed. Everything is mended when the time of faults is over."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from scaler.journal.directory import Directory
from simulator.world import TICK


@dataclass(frozen=True)
class Mix:
    """How often things go wrong: expected number in a run."""

    name: str
    kill_worker: float = 0.0
    #: something stops a worker for some time
    stop_worker: float = 0.0
    bad_starts: float = 0.0
    snap: float = 0.0
    #: connections that are reset on their way; schedulers hear of all that close
    reset: float = 0.0
    partition: float = 0.0
    #: two hosts do not reach each other's stores, though both reach the scheduler
    cut_way: float = 0.0
    stop_agent: float = 0.0
    kill_agent: float = 0.0
    leave_agent: float = 0.0
    stop_client: float = 0.0
    kill_client: float = 0.0
    leave_client: float = 0.0
    stop_scheduler: float = 0.0
    kill_scheduler: float = 0.0
    #: the same, and a client ends before the next one is there, while agents have rows of it and of others
    miss_client: float = 0.0
    local_agent: bool = True
    wild: float = 0.15
    #: there are two schedulers, one of which leads; cut off from each other, from a host, or handed over
    pair: bool = False
    cut_pair: float = 0.0
    cut_host: float = 0.0
    hand_over: float = 0.0
    #: jobs that are to outlive schedulers
    durable: int = 0
    #: a pair keeps durable jobs in a journal, in a directory that both share, or each has a copy of its own
    journal: Literal["", "shared", "copied"] = ""
    #: of such a pair: one ends in order, or loses power; or is killed when it comes to lead, or writes to its disk;
    #: a host is lost with its disk; somebody who knows that one is gone promotes the other
    end_scheduler: float = 0.0
    cut_power: float = 0.0
    kill_leading: float = 0.0
    kill_syncing: float = 0.0
    lose_disk: float = 0.0
    promote: float = 0.0
    #: chance that rows that were made together take several slots each
    threads: float = 0.0
    #: agents that somebody drains, perhaps to think better of it; agents whose end is announced, and comes
    drain_agent: float = 0.0
    announce_agent: float = 0.0
    graces: tuple[float, ...] = (0.0, 0.05, 1.0, 10.0)
    #: chance that an agent has a walltime
    walltime: float = 0.0
    #: how often a row may be lost
    retries_on_loss: int = 3
    #: bytes that all clients together may have kept: whoever has most is given up, and its program ends
    kept_bytes: int = 1 << 62
    #: a message is lost, or comes late, without its connection breaking
    drop: float = 0.0
    late: float = 0.0
    #: chance that a worker hears what it is told on its control socket later than what is said after that on the other
    late_control: float = 0.0
    #: chance that a value can't be written, or moved from disk or to it
    full: float = 0.02
    #: somebody removes a file of a host's store
    lose_file: float = 0.0
    #: chance that rows that were made together need workers that have run nothing
    fresh: float = 0.0
    #: chance that a value is large; None: each user draws its own
    large: float | None = None
    #: chance that a user looks at a value that is stored some time after it has ended
    late_reads: float = 0.0
    #: chance that a task submits another one like itself and does not wait for it, for ever
    unwaited: float = 0.0
    #: chance that a user who cancels something cancels much, one by one
    one_by_one: float = 0.0
    #: features of `FEATURES` that nobody uses
    without: frozenset[str] = frozenset()
    #: each seed draws features and faults of its own
    is_swarm: bool = False

    @property
    def loses_clients(self) -> bool:
        """Schedulers may think of a client that is there that it is gone."""
        return bool(
            self.stop_client or self.snap or self.reset or self.partition or self.drop or self.late or self.cut_host
            or self.kill_scheduler or self.stop_scheduler or self.hand_over or self.miss_client
        )  # fmt: skip


#: what users do and may leave
FEATURES = (
    "maps", "graphs", "needs", "cancels", "claims", "objects", "bursts", "priorities", "capabilities", "timeouts",
    "retries", "nested", "failures", "poison", "blocking", "printing", "slow", "memory",
)  # fmt: skip

#: faults that a swarm may draw, and the most of each
_WORST = {
    "kill_worker": 12.0, "snap": 6.0, "partition": 3.0, "stop_agent": 2.0, "kill_agent": 2.0, "leave_agent": 1.0,
    "stop_client": 1.5, "kill_client": 1.5, "leave_client": 1.0, "stop_scheduler": 1.0, "kill_scheduler": 2.0,
    "drop": 6.0, "late": 6.0,
}  # fmt: skip


def drawn(seed: int) -> Mix:
    """The mix of a seed of the swarm: each feature and each fault is there or not, by lot."""
    random, apart = Random(seed), Random(f"{seed}, since later")
    faults = {name: worst * random.random() for name, worst in _WORST.items() if random.random() < 0.35}
    return Mix(
        "swarm",
        **faults,
        bad_starts=random.choice((0.0, 0.0, 0.1, 0.3)),
        local_agent=random.random() < 0.5,
        wild=random.choice((0.05, 0.2, 0.5)),
        threads=random.choice((0.0, 0.0, 0.3)),
        fresh=random.choice((0.0, 0.0, 0.2)),
        full=random.choice((0.0, 0.02, 0.3)),
        large=random.choice((None, 0.0, 0.6)),
        late_control=apart.choice((0.0, 0.0, 0.1)),
        late_reads=apart.choice((0.0, 0.3, 0.8)),
        stop_worker=apart.choice((0.0, 0.0, 6.0)),
        without=frozenset(feature for feature in FEATURES if random.random() < 0.4),
        unwaited=apart.choice((0.0, 0.0, 0.05)),
    )


#: faults that a pair with durable jobs may draw, and the most of each
_WORST_OF_PAIRS = {
    "kill_scheduler": 4.0, "cut_power": 3.0, "end_scheduler": 2.0, "stop_scheduler": 2.0, "hand_over": 4.0,
    "cut_pair": 3.0, "cut_host": 3.0, "snap": 6.0, "kill_worker": 4.0, "kill_agent": 1.0, "stop_agent": 1.0,
    "kill_leading": 2.0, "kill_syncing": 3.0, "lose_disk": 1.5, "promote": 2.0,
}  # fmt: skip


def drawn_pair(seed: int, mix: Mix) -> Mix:
    """The mix of a seed of pairs with a journal: each fault is there or not, by lot."""
    random = Random(seed)
    return replace(
        mix, **{name: worst * random.random() for name, worst in _WORST_OF_PAIRS.items() if random.random() < 0.3}
    )


MIXES = {
    mix.name: mix
    for mix in (
        Mix("calm", wild=0.0),
        Mix("rows", wild=0.4),
        Mix("workers", kill_worker=12, bad_starts=0.2),
        Mix("stopped workers", stop_worker=12, kill_worker=1, wild=0.3, late_control=0.1),
        Mix(
            "stopped workers and faults",
            stop_worker=8,
            kill_worker=2,
            snap=2,
            stop_agent=1,
            kill_agent=0.5,
            kill_client=0.7,
            leave_client=0.5,
            kill_scheduler=1.5,
            threads=0.1,
            local_agent=False,
        ),
        Mix("connections", snap=8, partition=3, kill_worker=2),
        Mix(
            "agents",
            kill_agent=2,
            stop_agent=2,
            leave_agent=1,
            kill_worker=2,
            snap=2,
            local_agent=False,
            late_reads=0.3,
        ),
        Mix(
            "one by one",
            one_by_one=0.8,
            kill_worker=2,
            snap=2,
            stop_client=1,
            leave_client=0.5,
            kill_agent=0.3,
            kill_scheduler=0.7,
            stop_scheduler=0.5,
            wild=0.1,
            local_agent=False,
        ),
        Mix("clients", stop_client=1.5, kill_client=1.5, leave_client=1, snap=2, kill_worker=1),
        Mix("unwaited", unwaited=0.1, kill_client=1.5, leave_client=1, kill_worker=1),
        Mix(
            "unwaited and faults",
            unwaited=0.1,
            kill_client=1,
            leave_client=1,
            stop_client=1,
            kill_worker=1,
            snap=2,
            kill_agent=0.5,
            stop_agent=0.5,
            kill_scheduler=1.5,
            stop_scheduler=0.5,
            local_agent=False,
        ),
        Mix("scheduler", stop_scheduler=1, kill_scheduler=1, snap=1, local_agent=False),
        Mix(
            "schedulers alone",
            kill_scheduler=6,
            local_agent=False,
            wild=0.0,
            full=0.0,
            without=frozenset({"cancels", "timeouts", "memory"}),
        ),
        Mix("restarts", kill_scheduler=3, local_agent=False, late_reads=0.3),
        Mix(
            "crowded",
            kept_bytes=30_000,
            durable=2,
            kill_worker=2,
            kill_agent=0.5,
            kill_scheduler=1,
            snap=2,
            late_reads=0.3,
            local_agent=False,
            without=frozenset({"nested"}),
        ),
        Mix("missed clients", miss_client=2, drain_agent=1, local_agent=False, wild=0.4),
        Mix("durable", kill_scheduler=3, kill_worker=2, durable=4),
        Mix(
            "durable and faults",
            kill_scheduler=2,
            kill_agent=2,
            stop_agent=1,
            snap=3,
            kill_worker=2,
            stop_worker=3,
            durable=3,
        ),
        Mix("pair", pair=True, kill_scheduler=1.5, hand_over=1, kill_worker=1, local_agent=False),
        Mix(
            "pair and faults",
            pair=True,
            kill_scheduler=1.5,
            stop_scheduler=0.7,
            hand_over=0.5,
            cut_pair=1,
            cut_host=2,
            kill_agent=0.5,
            stop_agent=0.5,
            snap=2,
            kill_worker=1,
            stop_worker=2,
            kill_client=0.3,
            local_agent=False,
        ),
        Mix("shared journal", pair=True, journal="shared", is_swarm=True, local_agent=False),
        Mix("copied journal", pair=True, journal="copied", is_swarm=True, local_agent=False),
        Mix(
            "copied journal and stopped workers",
            pair=True,
            journal="copied",
            is_swarm=True,
            local_agent=False,
            stop_worker=6,
        ),
        Mix("threads", threads=0.3, wild=0.3),
        Mix("leaving", drain_agent=3, announce_agent=1.5, walltime=0.3, local_agent=False, wild=0.0, retries_on_loss=1),
        Mix(
            "leaving and schedulers",
            drain_agent=1,
            announce_agent=4,
            graces=(60.0,),
            kill_scheduler=4,
            local_agent=False,
            wild=0.0,
            full=0.0,
            without=frozenset({"cancels", "timeouts", "memory"}),
        ),
        Mix(
            "leaving and faults",
            drain_agent=2,
            announce_agent=2,
            walltime=0.3,
            threads=0.1,
            kill_worker=3,
            stop_worker=3,
            kill_agent=1,
            snap=3,
            partition=1,
            stop_agent=1,
            kill_client=0.5,
            kill_scheduler=1,
            local_agent=False,
        ),
        Mix("threads and faults", threads=0.2, kill_worker=4, bad_starts=0.1, snap=2, stop_agent=1, kill_agent=1),
        Mix(
            "stores",
            kill_scheduler=1,
            kill_agent=0.6,
            kill_worker=3,
            wild=0.4,
            large=0.6,
            full=0.1,
            local_agent=False,
            late_control=0.1,
            late_reads=0.5,
        ),
        Mix("ways", cut_way=12, wild=0.2, large=0.9, full=0.0, late_reads=0.3, without=frozenset({"capabilities"})),
        Mix(
            "ways and faults",
            cut_way=4,
            kill_worker=2,
            stop_worker=2,
            kill_agent=0.7,
            kill_scheduler=0.7,
            snap=1,
            wild=0.1,
            large=0.6,
            full=0.05,
            local_agent=False,
            late_reads=0.3,
        ),
        Mix(
            "disks",
            kill_worker=2,
            kill_client=1,
            wild=0.1,
            large=0.8,
            full=0.5,
            lose_file=8,
            late_control=0.1,
            late_reads=0.3,
        ),
        Mix(
            "resets",
            reset=10,
            snap=1,
            kill_worker=2,
            kill_agent=1,
            stop_agent=0.5,
            kill_client=1,
            kill_scheduler=0.5,
            local_agent=False,
            late_reads=0.3,
        ),
        Mix("swarm", is_swarm=True),
        Mix(
            "everything",
            kill_worker=3,
            stop_worker=2,
            bad_starts=0.1,
            snap=3,
            partition=1,
            stop_agent=1,
            kill_agent=1,
            leave_agent=0.5,
            stop_client=1,
            kill_client=0.5,
            leave_client=0.5,
            stop_scheduler=0.3,
            kill_scheduler=0.3,
        ),
    )
}


class Faults:
    """Spreads the faults of a mix over a time."""

    def __init__(self, cluster: Any, mix: Mix, duration: float) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._duration = duration
        for name, expected in vars(mix).items():
            act = getattr(self, f"_{name}", None)
            if act is not None and expected:
                whole, part = divmod(expected, 1)
                for _ in range(int(whole) + (self._world.random.random() < part)):
                    self._world.after(self._world.random.uniform(0, duration), act)

    def _length(self) -> float:
        return self._world.random.choice((0.1, 1.0, 4.0, 14.0))

    def _kill_worker(self) -> None:
        workers = [
            worker
            for host in self._cluster.hosts
            if host.alive
            for worker in host.workers.values()
            if worker.alive and not worker.is_stopped  # the row that it has not read would be suspected
        ]
        if workers:
            self._world.random.choice(workers).die(11)

    def _stop_worker(self) -> None:
        """For so long that it may be ended for it, or not; a client in its task is not stopped with it.

        At once, or as soon as one begins a row while it keeps back how the one before it has ended.
        """
        random = self._world.hearing
        length = random.choice((0.01, 0.2, random.uniform(0.25, 0.32), 0.4, 1.0, 4.0, 9.0))
        workers = [
            worker
            for host in self._cluster.hosts
            if host.alive
            for worker in host.workers.values()
            if worker.may_be_stopped
        ]
        if random.random() < 0.5:
            self._world.stops.append(length)
        elif workers:
            random.choice(workers).stop(length)

    def _snap(self) -> None:
        lines = [p.line for p in self._cluster.peers if p.alive and p.line is not None]
        if lines:
            self._world.random.choice(lines).snap()

    def _reset(self) -> None:
        line = self._connection()
        if line is not None:
            line.reset()

    def _connection(self) -> Any:
        lines = [p.line for p in self._cluster.peers if p.alive and p.line is not None]
        return self._world.random.choice(lines) if lines else None

    def _drop(self) -> None:
        line = self._connection()
        if line is not None:
            line.disturb("lost")

    def _late(self) -> None:
        line = self._connection()
        if line is not None:
            line.disturb("late")

    def _partition(self) -> None:
        network = self._cluster.network
        processes = [
            p
            for p in [*self._cluster.hosts, *self._cluster.clients]
            if p.alive and p.line is not None and p.line._kind == "tcp"
        ]
        if processes:
            host = self._world.random.choice(processes).line._host
            self._world.note("network", f"{host} is cut off")
            network.partitioned[host] = self._world.now + self._length()

    def _cut_way(self) -> None:
        hosts = [host for host in self._cluster.hosts if host.alive]
        if len(hosts) > 1:
            one, other = self._world.random.sample(hosts, 2)
            ways = [(one.name, other.name)]
            if self._world.hearing.random() < 0.7:
                ways.append((other.name, one.name))
            length, cut = self._length(), self._cluster.network.ways
            if "store" in (one.role, other.role):  # who reads by way of that gives up after some 15 s
                length = 0.0 if cut.keys() & {*ways} else min(length, 4.0)
            self._world.note("network", f"stores do not reach others for {length} s: {ways}")
            cut.update(dict.fromkeys(ways, self._world.now + length))

    def _stop(self, processes: list[Any]) -> None:
        processes = [p for p in processes if p.alive and not p.stopped]
        if processes:
            process = self._world.random.choice(processes)
            process.stop()
            self._world.after(self._length(), process.go_on)

    def _stop_agent(self) -> None:
        self._stop([host for host in self._cluster.hosts if host.line is not None])

    def _stop_client(self) -> None:
        self._stop(self._cluster.outer_clients)

    def _stop_scheduler(self) -> None:
        self._stop(list(self._cluster.network.servers.values()))

    def _replace(self, end: str) -> None:
        hosts = [host for host in self._cluster.hosts if host.alive and host.line is not None]
        if hosts:
            host = self._world.random.choice(hosts)
            getattr(host, end)()
            self._cluster.hosts.remove(host)
            self._world.after(
                self._world.random.uniform(0, 3),
                self._cluster.add_host,
                host.core.state.workers.target,
                host.capabilities,
            )

    def _kill_agent(self) -> None:
        self._replace("die")

    def _leave_agent(self) -> None:
        self._replace("leave")

    def _leavers(self) -> list[Any]:
        return [host for host in self._cluster.hosts if host.alive and host.line is not None and host.number]

    def _drain_agent(self) -> None:
        """Somebody drains an agent, or two; now and then it shall stay after all."""
        hosts = self._leavers()
        if not hosts:
            return
        chosen = self._world.random.sample(hosts, min(len(hosts), self._world.random.choice((1, 1, 2))))
        numbers = [host.number for host in chosen]
        self._cluster.operator.command("drain", numbers)
        if self._world.random.random() < 0.3:
            self._world.after(self._world.random.uniform(0, 0.5), self._cluster.operator.command, "undrain", numbers)

    def _announce_agent(self) -> None:
        """An agent gets SIGTERM, and SIGKILL after its grace."""
        hosts = self._leavers()
        if hosts:
            host = self._world.random.choice(hosts)
            host.announce(self._world.random.choice(self._cluster.mix.graces))

    def _lose_file(self) -> None:
        """Somebody removes a file of a store: not the store itself, and nobody is told."""
        kept = [(host.store, table) for host in self._cluster.hosts if host.alive for table in host.store.tables]
        found = [(store, table, key) for store, table in kept for key in table]
        if found:
            store, table, key = self._world.random.choice(found)
            self._world.note(store.host.name, f"somebody removes the file of {key}")
            del table[key]

    def _kill_client(self) -> None:
        clients = [client for client in self._cluster.outer_clients if client.alive]
        if clients:
            self._world.random.choice(clients).die()

    def _leave_client(self) -> None:
        clients = [client for client in self._cluster.outer_clients if client.alive]
        if clients:
            client = self._world.random.choice(clients)
            client.user(client.disconnect)

    def _cut_pair(self) -> None:
        network = self._cluster.network
        until = self._world.now + self._length()
        self._world.note("network", "the schedulers are cut off from each other")
        network.cut["site-0", 1] = network.cut["site-1", 0] = until

    def _cut_host(self) -> None:
        """Somebody does not reach one of the schedulers, perhaps all do not."""
        network, random = self._cluster.network, self._world.random
        site, until = random.randrange(2), self._world.now + self._length()
        processes = [p for p in self._cluster.peers if p.alive and p.line is not None]
        if processes and random.random() < 0.5:
            processes = [random.choice(processes)]
        self._world.note("network", f"{[p.name for p in processes]} do not reach site {site}")
        for process in processes:
            network.cut[process.line._host, site] = until

    def _hand_over(self) -> None:
        server = self._cluster.server
        if server.alive and not server.stopped:
            server.succession.hand_over(0, 0, self._world.now)

    def _start_again(self, server: Any) -> None:
        """Some time; if there is a copy of a journal, also after the other one has gone on alone."""
        random = self._world.random
        pause = random.uniform(0.1, 3)
        if self._cluster.mix.journal and random.random() < 0.3:
            pause = random.uniform(5, 12)
        self._world.after(pause, self._cluster.start_at, server.site)

    def _one_of_both(self) -> Any:
        server = self._world.random.choice(self._cluster.pair.servers)
        return server if server.alive else None

    def _end_scheduler(self) -> None:
        """SIGTERM."""
        server = self._one_of_both()
        if server is not None and not server.stopped:
            self._world.note(server.name, "SIGTERM")
            server.end()
            self._start_again(server)

    def _cut_power(self) -> None:
        server = self._one_of_both()
        if server is not None:
            self._world.note(server.name, "loses power")
            server.die()
            if server.keeper is not None or not self._cluster.journals.is_shared:
                self._cluster.journals.lose_power(self._world, server.site)
            self._start_again(server)

    def _kill_leading(self) -> None:
        """Whoever leads next is killed a moment later."""
        self._cluster.pair.on_lead = self._kill_soon

    def _kill_soon(self, server: Any) -> None:
        self._cluster.pair.on_lead = None
        self._world.after(self._world.random.choice((0.0, 0.0005, 0.01, 0.3)), self._kill_this, server)

    def _kill_this(self, server: Any) -> None:
        if server.alive:
            server.die()
            self._start_again(server)

    def _kill_syncing(self) -> None:
        """One is killed when it writes to its disk next."""
        server = self._one_of_both()
        if server is not None:
            self._cluster.journals.doomed = server
            self._world.after(0.1, self._see_to, server)

    def _see_to(self, server: Any) -> None:
        if not server.alive:
            self._start_again(server)
        elif self._cluster.journals.doomed is server:
            self._world.after(0.1, self._see_to, server)

    def _lose_disk(self) -> None:
        """A host is lost with what its scheduler had on disk; the other one has all that counts."""
        server = self._one_of_both()
        if server is None or not self._cluster.may_lose_disk(server.site):
            return
        self._world.note(server.name, "is lost with its disk")
        server.die()
        self._cluster.journals.wipe(server.site)
        self._cluster.pair.replaced.add(server.site)
        self._start_again(server)

    def _promote(self) -> None:
        """One of both is gone, and somebody says so; not before the other one has any copy."""
        for server in self._cluster.pair.servers:
            other = self._cluster.pair.servers[1 - server.site]
            has_met = bool(Directory(self._cluster.journals.of(server.site)).history().turns)
            if server.alive and not server.stopped and not other.alive and has_met:
                self._world.note(server.name, "is promoted")
                server.succession.promote(self._world.now)
                server.post(TICK)
                return

    def _kill_scheduler(self) -> None:
        if self._cluster.pair is not None:
            server = self._world.random.choice(self._cluster.pair.servers)
            if server.alive:
                server.die()
                self._start_again(server)
            return
        if self._cluster.server.alive:
            self._cluster.server.die()
            self._world.after(self._world.random.uniform(0.1, 3), self._cluster.start_server)

    def _miss_client(self) -> None:
        """A client does not come to the next scheduler; meanwhile agents give rows back, or others lose values."""
        random = self._world.random
        if len([client for client in self._cluster.outer_clients if client.alive]) > 1 and self._cluster.server.alive:
            self._kill_scheduler()
            self._kill_client()
            for fault in (self._drain_agent, self._kill_agent):
                self._world.after(random.uniform(0.2, 6), fault)
