"""Each host that was asked for, from the request to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scaler.provisioning.core.events import Agent
from scaler.provisioning.core.limits import Limits
from scaler.provisioning.provider import Job, JobState


class Stage(StrEnum):
    """Where a job is."""

    #: asked for; its agent has not come
    PENDING = "pending"
    #: its agent is, or was, connected
    RUNNING = "running"
    #: its agent is told to go
    DRAINING = "draining"
    #: the provider is told to end it
    ENDING = "ending"


@dataclass
class JobRecord:
    """One job."""

    id: str
    #: when it was asked for, or found
    since: float
    stage: Stage = Stage.PENDING
    #: when the provider first said that it runs; None: not yet
    began: float | None = None
    #: when its agent was first missed after that, or after it had been there
    missed: float | None = None
    #: its agent as last seen, if it is connected
    agent: Agent | None = None
    #: when the provider was last told to end it, or the scheduler to drain it
    told: float = 0.0
    #: lists without it since one had it, and when the first of them was
    absent: int = 0
    absent_since: float = 0.0
    #: the provider's words; it has logged them itself
    reason: str = ""
    is_logged: bool = False

    @property
    def is_staying(self) -> bool:
        """It is, or will be, there for work."""
        return self.stage in (Stage.PENDING, Stage.RUNNING)


@dataclass
class Jobs:
    """All jobs of this cluster that have not ended, by id."""

    by_id: dict[str, JobRecord] = field(default_factory=dict)
    #: ids of those that ended: a list that is late may name them still
    over: dict[str, float] = field(default_factory=dict)
    #: who is connected is known; if not, an agent that was is no sign that its job is there
    sees_agents: bool = False

    def add(self, ids: tuple[str, ...], now: float) -> None:
        """Jobs of a request that was taken, unless a list has shown them already."""
        for each in ids:
            if each not in self.over:
                self.by_id.setdefault(each, JobRecord(each, now))

    def take_list(self, listed: tuple[Job, ...], began: float, now: float) -> tuple[list[JobRecord], list[JobRecord]]:
        """What the provider says as of `began`; jobs that are over without an agent ever having come, and adopted."""
        said: dict[str, Job] = {}
        for job in listed:  # an id that is there twice counts once; of two states the later one in a job's life
            if job.id not in said or job.state is JobState.ENDED or said[job.id].state is JobState.PENDING:
                said[job.id] = job
        failed: list[JobRecord] = []
        adopted: list[JobRecord] = []
        for job in said.values():
            record = self.by_id.get(job.id)
            if job.state is JobState.ENDED:
                if record is not None and self._end(record, now):
                    record.reason, record.is_logged = job.reason, job.is_logged
                    failed.append(record)
                continue
            if record is None:
                if job.id in self.over and began < self.over[job.id] + Limits.LATE:
                    continue
                self.over.pop(job.id, None)
                record = self.by_id[job.id] = JobRecord(job.id, now)
                adopted.append(record)
            record.absent = 0
            record.reason = job.reason
            if job.state is JobState.RUNNING and record.began is None:
                record.began = now
        for record in list(self.by_id.values()):
            if record.id in said or began < record.since:
                continue
            if not record.absent:
                record.absent_since = began
            record.absent += 1
            is_long = began - record.absent_since >= Limits.MISSED_SECONDS or record.stage is Stage.ENDING
            is_there = self.sees_agents and record.agent is not None
            if record.absent >= Limits.MISSED_LISTS and is_long and not is_there and self._end(record, now):
                failed.append(record)
        for each in [each for each, at in self.over.items() if now - at > 600.0]:
            del self.over[each]
        return failed, adopted

    def _end(self, record: JobRecord, now: float) -> bool:
        """A job is over; True if its agent never came although it was waited for."""
        del self.by_id[record.id]
        self.over[record.id] = now
        return record.stage is Stage.PENDING

    def take_agents(self, agents: tuple[Agent, ...], now: float) -> int:
        """Who is connected; how many have come."""
        self.sees_agents = True
        came = 0
        present = {agent.job: agent for agent in agents if agent.job in self.by_id}
        for record in self.by_id.values():
            agent = record.agent = present.get(record.id)
            if agent is None:
                if record.missed is None and (record.began is not None or record.stage is not Stage.PENDING):
                    record.missed = now
                continue
            record.missed = None
            if record.stage is Stage.PENDING:
                record.stage = Stage.RUNNING
                came += 1
            if agent.is_draining and record.stage is Stage.RUNNING:
                record.stage = Stage.DRAINING
                record.told = now
        return came

    def lose_sight(self) -> None:
        """There is no scheduler: nobody is missed."""
        self.sees_agents = False
        for record in self.by_id.values():
            record.missed = None

    def of(self, *stages: Stage) -> list[JobRecord]:
        """Those in one of these stages."""
        return [record for record in self.by_id.values() if record.stage in stages]
