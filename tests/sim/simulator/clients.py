"""A client's process: the real SessionCore, and what its user asks of it; checks every row's end."""

import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from scaler.client.core import events as ev
from scaler.client.core.session import SessionCore
from scaler.protocol import failures
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Established
from scaler.protocol.messages import (
    EACH,
    GRAPH,
    KEEP,
    NESTINGS,
    PLACE,
    TOGETHER,
    DisconnectRequest,
    DisconnectResponse,
    HeartbeatEcho,
    ObjectRequest,
    ObjectResponse,
    StoreRequest,
    Task,
    u8,
    u32,
    u64,
)
from simulator.checks import Wrong, check_session
from simulator.jobs import Block, Constant, Job, ends_of
from simulator.network import Line
from simulator.world import TICK, Process


class SimClient(Process):
    """See the module's text. `cluster` is the run it belongs to."""

    #: as which its boundaries count
    role = "client"
    #: it is a process of its own
    is_outer = True

    def __init__(self, cluster: Any, name: str, kind: str, host: str, store: str = "") -> None:
        super().__init__(cluster.world, name)
        self.cluster = cluster
        self.session = SessionCore()
        self.line = Line(self, cluster.network, kind, host, hello_of("client", name, 0, store=(store, "", "")))
        self._begun = False
        self._later: list[Callable[[], None]] = []
        #: tokens that have not ended
        self.waiting: dict[int, Any] = {}
        self.jobs: list[Job] = []
        self.constants: list[Constant] = []
        self.functions: dict[str, int] = {}
        self.left = False
        self.gone = False
        #: when it was gone
        self.left_at = 0.0
        #: rows whose values are stored, until it has read them
        self.reading: dict[int, Job] = {}
        #: of these, those that its user has not looked at yet
        self._unread: set[int] = set()
        #: objects to be written again
        self._to_restore: list[Constant] = []
        #: the stores it may use: number of the agent, and directory
        self._offers: dict[int, str] = {}
        #: what it has made or heard of, by id
        self._values: dict[int, Any] = {}
        #: when rows that are held back are to go on; infinite while none are
        self._due = math.inf
        #: rows that this client promised to run itself
        self.claimed = 0
        #: as workers are told
        self.claims_below = NESTINGS
        self._pulse()

    def _pulse(self) -> None:
        if self.alive:
            self.post(TICK)
            self.world.after(0.5, self._pulse)

    @property
    def may_be_given_up(self) -> bool:
        """Schedulers may know it no more, or have good reason to think that it has left."""
        return self.left or not self.alive or self.cluster.mix.loses_clients

    # ---- the loop --------------------------------------------------------------------------------------------------
    def user(self, call: Callable[[], None]) -> None:
        """The user does something; a process that is stopped does it when it goes on."""
        self.post(("user", call))

    def step(self, items: list[Any]) -> None:
        """Like `Link._run`."""
        for heard in self.line.receive(items):
            if isinstance(heard, Established):
                if not (heard.resumed or heard.returned):
                    self._offers = {}
                    self._to_restore.clear()
                    self.world.forgotten_clients += self._begun
                welcome = heard.welcome
                self._handle(ev.Welcomed(heard.resumed, welcome.heartbeat, welcome.workers, heard.returned))
                if not heard.resumed:
                    self._handle(ev.Request(StoreRequest()))
                self._begun = True
            else:
                if not isinstance(heard, HeartbeatEcho):
                    self.world.note(self.name, ("hears", heard))
                self._handle(ev.Arrived(heard))
        self._later += [item[1] for item in items if item[0] == "user"]
        if self._begun:
            calls, self._later = self._later, []
            for call in calls:
                if not self.left:
                    call()
            self._handle()
        check_session(self.world, self)

    def _handle(self, *events: ev.Event) -> None:
        effects = self.session.handle(events, self.world.now)
        for effect in effects:
            self.world.boundary(self.role, self)
            if isinstance(effect, ev.Transmit):
                self.line.send(effect.message)
            elif isinstance(effect, ev.Resolve):
                self._resolve(effect)
            elif isinstance(effect, ev.ClaimGranted):
                self._granted(effect)
            elif isinstance(effect, ev.ClaimRefused):
                for token in effect.tokens:
                    self._answered(token, "claim")
            elif isinstance(effect, ev.CancelRefused):
                for token in effect.tokens:
                    self._answered(token, "cancel")
            elif isinstance(effect, ev.ProvideObject):
                self._supply(effect.id)
            elif isinstance(effect, ev.StoreAnswered) and isinstance(effect.message, ObjectResponse):
                self._told(effect.message)
            elif isinstance(effect, ev.StoreAnswered):
                self._offers = dict(zip(effect.message.agents, effect.message.paths, strict=True))
            elif isinstance(effect, ev.StoresRenewed):
                for job in self.reading.values():
                    job.renewed = job.renewed or not effect.kept
                    if job.id not in self._unread:
                        self._read(job)
            elif isinstance(effect, ev.RestoreObjects):
                self._to_restore += [announce.source for announce in effect.objects]
                self.user(self._restore)
            elif isinstance(effect, ev.RequestAnswered) and isinstance(effect.message, DisconnectResponse):
                self.gone = True
                self.left_at = self.world.now
                self.line.close()
                self.alive = False
        if effects:
            self.world.boundary(self.role, self)
        due = self.session.holding.due
        if due not in (self._due, math.inf):
            self.world.after(max(0.0, due - self.world.now), self._look)
        self._due = due

    def _look(self) -> None:
        if self.alive:
            self.post(TICK)

    def _answered(self, token: Any, what: str) -> None:
        if isinstance(token, Job):
            token.asked.pop(what, None)
        if what == "claim" and token is not None:
            self.refused(token)

    def refused(self, token: Any) -> None:
        """A claim was refused."""

    def changed(self) -> None:
        """Some token ended."""

    # ---- what ends -------------------------------------------------------------------------------------------------
    def _resolve(self, effect: ev.Resolve) -> None:
        ends = ends_of(effect.span)
        tokens = list(effect.tokens)
        if tokens and isinstance(tokens[0], Block):
            tokens = tokens[0].jobs[effect.span.lo : effect.span.hi]
        if len(tokens) != len(ends):
            raise Wrong(f"{len(tokens)} tokens for {len(ends)} rows of {effect.span}")
        for row_id, (job, end) in enumerate(zip(tokens, ends, strict=True), effect.span.batch + effect.span.lo):
            if job is not None:
                job.id = row_id  # of a block it was not known
                self._values[row_id] = job
                self._end(job, end)

    # ---- stored values ---------------------------------------------------------------------------------------------
    def _read(self, job: Job) -> None:
        self._handle(ev.Request(ObjectRequest(u32([0]), u64([job.id]))))

    def _look_at(self, job: Job) -> None:
        self._unread.discard(job.id)
        if job.id in self.reading:
            self._read(job)

    def _told(self, message: ObjectResponse) -> None:
        for value_id, outcome in zip(message.ids, message.outcomes, strict=True):
            job = self.reading.get(value_id)
            if job is None:
                continue
            if outcome:
                self._have_read(job, ("object", message.reason))
                continue
            key = self.number, value_id
            hosts = self._hosts(self._offers[message.agent]) if message.agent in self._offers else []
            if not hosts:
                self._handle(ev.Request(StoreRequest()))
            found = hosts[0].store.find(key) if hosts else None
            if found is not None:
                self._have_read(job, ("value", found[0]))
            else:  # its host has died
                self.world.after(0.05, lambda job=job: self.user(lambda: self._read_again(job)))  # type: ignore[misc]

    def _read_again(self, job: Job) -> None:
        if job.id in self.reading:
            self._read(job)

    def _have_read(self, job: Job, end: tuple[Any, ...]) -> None:
        del self.reading[job.id]
        self._check(job, end)
        self._handle(ev.Release([job.id]))

    @property
    def number(self) -> int:
        """This client's number."""
        welcome = self.line.welcome
        assert welcome is not None
        return welcome.number

    def _stored(self, constant: Constant) -> ev.Announce | None:
        """Write an object into some store; None if there is none that it may use."""
        stores = [(number, host) for number, path in self._offers.items() for host in self._hosts(path)]
        if not stores:
            self._handle(ev.Request(StoreRequest()))
            return None
        number, host = self.world.random.choice(stores)
        host.store.files[self.number, constant.id] = constant.number, constant.stored
        host.store.written[self.number, constant.id] = self.world.now
        place = PLACE.pack(constant.stored, number)
        return ev.Announce(constant.id, place, stored=True, source=constant, generation=self.session.generation)

    def _hosts(self, path: str) -> list[Any]:
        return [host for host in self.cluster.hosts if host.alive and f"/store/{host.name}" == path]

    def _restore(self) -> None:
        """Write objects again, for new stores."""
        while self._to_restore:
            made = self._stored(self._to_restore[-1])
            if made is None:
                self.world.after(0.1, lambda: self.user(self._restore))
                return
            self._to_restore.pop()
            self._handle(ev.Restored(made.id, made))

    def _end(self, job: Job, end: tuple[Any, ...]) -> None:
        if end[0] == "stored":
            if end[1] != job.stored:
                raise Wrong(f"{job} is stored with {end[1]} bytes", f"job-{job.uid}.", str(job.id))
            job.asked.clear()
            self.waiting.pop(job.uid, None)
            self.reading[job.id] = job
            if self.world.habits.random() < self.cluster.mix.late_reads:
                self._unread.add(job.id)
                delay = self.world.habits.choice((0.01, 0.3, 3.0, 15.0))
                self.world.after(delay, lambda: self.user(lambda: self._look_at(job)))
            else:
                self._read(job)
            return
        self._check(job, end)

    def _check(self, job: Job, end: tuple[Any, ...]) -> None:
        problem = job.ended(end, self.world.lost_agents)
        if problem is not None:
            raise Wrong(problem, f"job-{job.uid}.", f"batch={job.id}", str(job.id))
        job.asked.clear()
        self.waiting.pop(job.uid, None)
        self.changed()

    # ---- what the user does ----------------------------------------------------------------------------------------
    def function(self, name: str) -> int:
        """The id of a function object that the scheduler has."""
        if name not in self.functions:
            self.functions[name] = self.session.take_ids(1)
            self._handle(ev.Announce(self.functions[name], b"function " + name.encode()))
        return self.functions[name]

    def announce(self, number: int) -> Constant:
        """`send_object`."""
        constant = Constant(self.session.take_ids(1), number, self.world.random.choice((0, 0, 150_000, 3_000_000)))
        self.constants.append(constant)
        self._values[constant.id] = constant
        made = self._stored(constant) if constant.stored else None
        if made is None:
            constant.stored = 0
            made = ev.Announce(constant.id, pickle.dumps(number))
        self._handle(made)
        return constant

    def release(self, constant: Constant) -> None:
        """The user's reference is gone."""
        self.constants.remove(constant)
        self._handle(ev.Release([constant.id]))

    def _await(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.jobs.append(job)
            self.waiting[job.uid] = job
            self.cluster.jobs[job.uid] = job

    def _task(self, name: str, rows: int, form: int, first: Job, options: dict[str, Any]) -> Task:
        flags = options.get("flags", 0)
        task = Task(
            0, self.session.take_ids(rows), rows, form, flags, 0, 0, name,
            options.get("priority", 0), first.retries, first.timeout, options.get("capabilities", ()), u32([0, rows]),
            threads=options.get("threads", 0), root=options.get("root", 0),
        )  # fmt: skip
        return task

    def submit(self, name: str, jobs: list[Job], **options: Any) -> None:
        """Calls with payloads of their own; what they need and has ended is sent along."""
        if "again" not in options:
            self._await(jobs)
        function = self.function(name)
        sent_needs: list[list[Any]] = []
        payloads = []
        for job in jobs:
            values = job.needs
            if "again" not in options and not any(
                isinstance(need, Job) and need.end is not None and need.end[0] != "value" for need in job.needs
            ):
                values = [need for need in job.needs if not (isinstance(need, Job) and need.end is not None)]
            if len(values) != len(job.needs):  # values that are there are no needs any more
                values = job.needs = values
                job._value = None
            sent_needs.append(list(values))
            payloads.append(pickle.dumps(job.spec))
        task = self._task(name, len(jobs), EACH, jobs[0], options)
        task.function = function
        task.sizes = u32(map(len, payloads))
        task.bodies = [b"".join(payloads)]
        if any(sent_needs):
            task.dependency_counts = u32(map(len, sent_needs))
            task.dependencies = u64(need.id for needs in sent_needs for need in needs)
        self._handle(ev.Submit(task, jobs, needs=sent_needs if any(sent_needs) else (), template=(name, options)))

    def map(self, name: str, jobs: list[Job], whole: bool, **options: Any) -> None:
        """Calls whose arguments travel together."""
        self._await(jobs)
        function = self.function(name)
        arguments = self.session.take_ids(1)
        task = self._task(name, len(jobs), TOGETHER, jobs[0], options)
        task.function, task.arguments = function, arguments
        task.objects = u64([arguments])
        task.bodies = [pickle.dumps([job.spec for job in jobs])]
        self._handle(ev.Submit(task, [Block(jobs)] if whole else jobs, whole=whole, template=(name, options)))

    def graph(self, runs: list[list[Job]], wanted: set[int], release: list[Constant], **options: Any) -> None:
        """Rows that depend on each other, in runs; `wanted` are the uids of those whose values are asked for.

        They may also need jobs that were submitted before.
        """
        everything = [job for run in runs for job in run]
        for job in everything:  # small values that are there are no needs any more
            job.needs = [need for need in job.needs if not (isinstance(need, Job) and need.is_here)]
        for job in everything:
            job.group = everything
            self.cluster.jobs[job.uid] = job
        self._await([job for job in everything if job.uid in wanted])
        functions = [self.session.take_ids(1) for _ in runs]
        first = self.session.take_ids(len(everything))
        ids = {job.uid: first + i for i, job in enumerate(everything)}
        uses = dict.fromkeys(ids, 0)
        for job in everything:
            for need in job.needs:
                if isinstance(need, Job) and need.uid in ids:
                    uses[need.uid] += 1
        outside = {n.id: n for job in everything for n in job.needs if isinstance(n, Job) and n.uid not in ids}
        group = ev.BatchGroup(len(wanted), keep=outside)
        events: list[ev.Event] = []
        for run, function in zip(runs, functions, strict=True):
            start = ids[run[0].uid]
            is_apart = all(
                job.uid in wanted
                and not uses[job.uid]
                and not any(isinstance(n, Job) and n.uid in ids for n in job.needs)
                for job in run
            )
            task = Task(
                0, start, len(run), GRAPH, 0 if is_apart else KEEP, function, 0, "graph", options.get("priority", 0),
                run[0].retries, 0.0, options.get("capabilities", ()), u32([0, len(run)]), graph=first,
                threads=options.get("threads", 0),
            )  # fmt: skip
            task.dependency_counts = u32([len(job.needs) for job in run])
            needs = [need for job in run for need in job.needs]
            task.dependencies = u64([ids.get(n.uid, n.id) if isinstance(n, Job) else n.id for n in needs])
            task.uses = u32([uses[job.uid] for job in run])
            task.wanted = u8([job.uid in wanted for job in run])
            task.objects = u64([function])
            task.bodies = [pickle.dumps([job.spec for job in run])]
            events.append(ev.Submit(task, [job if job.uid in wanted else None for job in run], group=group))
        if release:
            events.append(ev.Release([constant.id for constant in release]))
            for constant in release:
                self.constants.remove(constant)
        self._handle(*events)

    def cancel_one_by_one(self, jobs: list[Job], force: bool, streak: int = 0) -> None:
        """Cancel these, each when the one before it is answered for, as `for future in futures: future.cancel()`."""
        if streak and jobs[streak - 1 :] and jobs[streak - 1].asked.get("cancel") is not None:
            self.world.after(0.001, lambda: self.user(lambda: self.cancel_one_by_one(jobs, force, streak)))
            return
        if streak < len(jobs):
            self.cancel([jobs[streak]], force, streak)
            self.user(lambda: self.cancel_one_by_one(jobs, force, streak + 1))

    def cancel(self, tokens: list[Any], force: bool, streak: int = 0) -> None:
        """Cancel what has not ended."""
        for token in tokens:
            for job in token.jobs if isinstance(token, Block) else [token]:
                job.cancelled = True
                if job.end is None and isinstance(token, Job) and job.id not in self.reading:
                    job.asked.setdefault("cancel", self.world.now)
        waiting = [token for token in tokens if isinstance(token, Job) and token.end is None]
        self._handle(ev.Cancel(tokens, force, streak))
        for job in waiting:
            job.ended_here = job.end is not None
            self.world.ended_here += job.ended_here

    def claim(self, token: Any) -> None:
        """Offer to run it here."""
        if isinstance(token, Job) and token.end is None and token.id not in self.reading:
            token.asked.setdefault("claim", self.world.now)
        self._handle(ev.Claim(token, below=self.claims_below))

    def _granted(self, effect: ev.ClaimGranted) -> None:
        token = effect.token
        job = token.jobs[effect.row] if isinstance(token, Block) else token
        job.asked.pop("claim", None)
        if self.resubmits(job):
            self.world.note(self.name, f"resubmits job-{job.uid}.")
            name, options = effect.template
            self.submit(name, [job], **{**options, "again": True})
        else:
            self.claimed += 1
            self.world.note(self.name, f"runs claimed job-{job.uid}. itself")
            self.world.after(job.us * 1e-6, self._run_claimed, job)

    def resubmits(self, job: Job) -> bool:
        """The user doesn't wait any more for a row that was granted."""
        return job.behaviour in ("poison", "deadly", "nest") or self.world.random.random() < 0.3

    def _run_claimed(self, job: Job) -> None:
        if not self.alive:
            return
        if any(isinstance(need, Job) and need.end is None for need in job.needs):
            self.world.after(0.01, self._run_claimed, job)
            return
        self.claimed -= 1
        bad = [need.end for need in job.needs if isinstance(need, Job) and need.end[0] != "value"]
        if bad:
            self._end(job, bad[0])
        elif job.behaviour == "fail" or (job.behaviour == "flaky" and job.parameter > 0):
            if job.behaviour == "flaky":
                job.retries = -1
            self._end(job, ("raised", f"job {job.uid}"))
        else:
            self._end(job, ("value", job.value()))

    def _supply(self, value_id: int) -> None:
        need = self.session.pending.need(value_id) or self.session.lineage.need(value_id)
        token = need or self._values.get(value_id)
        if isinstance(token, Constant):
            made = self._stored(token) if token.stored else ev.Announce(value_id, pickle.dumps(token.number))
            if made is not None:
                self._handle(made)
            elif self.alive:
                self.world.after(0.1, lambda: self.user(lambda: self._supply(value_id)))
        elif isinstance(token, Job) and token.end is None:
            if self.alive:
                self.world.after(0.01, lambda: self.user(lambda: self._supply(value_id)))
        elif isinstance(token, Job) and not self._has_let_go_of(token):
            if token.end[0] == "value":
                self._handle(ev.Announce(value_id, pickle.dumps(token.end[1])))
            else:
                self._handle(
                    ev.Announce(
                        value_id, ErrorRecord(ErrorKind[token.end[0].upper()], "an argument").encode(), failed=True
                    )
                )
        else:
            self._handle(
                ev.Announce(value_id, failures.object_lost(f"{value_id} is unknown here").encode(), failed=True)
            )

    def _has_let_go_of(self, job: Job) -> bool:
        """Nobody has a future of it any more; for other rows of its graph none is kept."""
        if job.group is None or job.end is None or job.end[0] != "value" or self.world.hearing.random() < 0.5:
            return False
        return not any(job in other.needs and other.group is not job.group for other in self.cluster.jobs.values())

    def disconnect(self) -> None:
        """An orderly goodbye: what is pending is cancelled by its user's side."""
        self.left = True
        self._handle(ev.Request(DisconnectRequest()))

    def die(self) -> None:
        """The process is killed."""
        super().die()
        self.gone = True
        self.left_at = self.world.now
        self.line.close()


class NestedClient(SimClient):
    """A client inside a task: submits, claims or waits, and ends."""

    role = "task"
    is_outer = False

    def __init__(self, cluster: Any, worker: Any, parent: Job, then: Callable[[], None], kind: str, host: str) -> None:
        super().__init__(cluster, f"nested-{parent.uid}", kind, host, f"/store/{host}")
        self.worker = worker
        self._then = then
        self._blocked = False
        self.depth = parent.parameter
        self.claims_below = worker.claims_below
        self.user(self._begin)

    def _begin(self) -> None:
        depth = self.depth
        jobs = []
        for _ in range(self.world.random.randint(1, 3)):
            behaviour = "nest" if depth > 0 else "value"
            job = Job(self.world.next_id(), self.world.random.choice((20, 300, 5000)), behaviour, depth - 1)
            if depth <= 0 and job.uid % 8 == 0 and "poison" not in self.cluster.mix.without:
                job.behaviour = "poison"
            jobs.append(job)
        threads = 2 if self.cluster.mix.threads and self.world.random.random() < 0.3 else 0
        if self.world.random.random() < 0.5:
            self.map("nested", jobs, whole=False, threads=threads)
        else:
            self.submit("nested", jobs, threads=threads)
        self._wait()

    def _wait(self) -> None:
        pending = next((job for job in self.jobs if job.end is None), None)
        if pending is None:
            if self._blocked:
                self.worker.blocked(False)
            self.disconnect()
            self._then()
        elif not self.claimed and not pending.asked and not self._blocked:
            self.claim(pending)

    def _run_claimed(self, job: Job) -> None:
        if self.alive and job.behaviour == "poison":
            self.worker.die_of_claimed(job)
        else:
            super()._run_claimed(job)

    def resubmits(self, job: Job) -> bool:
        """It still waits; whether it leaves the row to others."""
        if not self.worker.take_yield():
            return False
        self.refused(job)
        return True

    def refused(self, token: Any) -> None:
        """It runs elsewhere: give the slot away."""
        if not self._blocked:
            self._blocked = True
            self.worker.blocked(True)

    def changed(self) -> None:
        """On with the next one."""
        if self._blocked and any(job.end is None for job in self.jobs):
            return
        self.user(self._wait)


class LastingClient(SimClient):
    """The client of a worker process, by which its tasks submit what none of them waits for; ends with the worker."""

    role = "task"
    is_outer = False

    def __init__(self, cluster: Any, worker: Any, kind: str, host: str) -> None:
        super().__init__(cluster, f"lasting-{worker.name}", kind, host, f"/store/{host}")
        self.worker = worker

    def go_on_with(self, parent: Job, root: int) -> None:
        """A task submits another one like itself."""
        job = Job(self.world.next_id(), parent.us, "unwaited", stored=parent.stored)
        job.root = self.cluster.root_of(root)
        self.user(lambda: self.submit("unwaited", [job], root=root))
