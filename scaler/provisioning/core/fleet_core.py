"""The provisioner's decisions: `handle(events, now) -> effects`.

Each time it compares what is wanted with what there is. *Staying* are jobs that are there for work or will be; of them
those whose walltime is nearly over no longer count, so that others are asked for in time. All jobs that have not ended,
whatever becomes of them, stay below the maximum. Nothing is asked for before the provider's list was read once, while a
request is under way, while there is no scheduler, or shortly after a failure, whose jobs may exist all the same.

Whom nobody needs goes: first what has not come, then who has nothing to do; who works goes only when the maximum was
lowered. Jobs of others, and agents that no job of ours runs, are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from scaler.common.attempts import growing_pause
from scaler.provisioning.core.events import (
    Adapt,
    Cancel,
    Drain,
    Effect,
    End,
    Event,
    Listed,
    ListFailed,
    Log,
    Observed,
    Status,
    Submit,
    SubmitFailed,
    Submitted,
    Unseen,
)
from scaler.provisioning.core.jobs import JobRecord, Jobs, Stage
from scaler.provisioning.core.limits import Limits
from scaler.provisioning.core.wanted import Wanted

#: lines that `Status` has, at most
_LINES = 8
#: characters of the reasons in one of them
_WORDS = 500


class FleetCore:
    """The hosts of one provider."""

    def __init__(self, limits: Limits, now: float, is_new: bool = False) -> None:
        """`is_new`: nobody has asked for hosts of this cluster yet, so that no request can be under way."""
        self.limits = limits
        self.jobs = Jobs()
        self.wanted = limits.minimum
        self._wanted = Wanted()
        #: above those of all jobs that were seen
        self._next_request = 1
        #: the request that is not answered, and its hosts
        self._under_way: tuple[int, int] | None = None
        #: jobs of agents that others have asked for: they were there when no job of this cluster could be unknown
        self._of_others: frozenset[str] = frozenset()
        #: when the provider's list was last asked for of those that were read
        self._listed: float | None = None
        self._is_ending = False
        #: hosts may be made fewer although they work
        self._has_new_maximum = False
        #: failures since the last host came, and until when nothing is asked for
        self._failures = 0
        self._not_before = 0.0
        #: lists that were asked for before this may miss jobs of a failed request; how many that are later are needed
        #: until it is known which those are, as one may leave some out
        self._doubted_until = 0.0 if is_new else now + 2 * limits.settle_time
        self._lists_needed = 0 if is_new else Limits.MISSED_LISTS
        self._trouble = ""

    # ---- the entry point -------------------------------------------------------------------------------------------
    def handle(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Take what has happened, and say what is to be done."""
        effects: list[Effect] = []
        for event in events:
            self._take(event, effects, now)
        if self._is_ending:
            self._cancel(list(self.jobs.by_id.values()), effects, now)
            return effects
        if self.jobs.sees_agents and self._listed is not None:
            self._give_up(effects, now)
            self._shrink(effects, now)
            self._grow(effects, now)
        return effects

    @property
    def is_over(self) -> bool:
        """It was to end, and no job is left, nor can one turn up."""
        return self._is_ending and self._under_way is None and not self.is_in_doubt and not self.jobs.by_id

    @property
    def is_in_doubt(self) -> bool:
        """There may be jobs that are not known: more lists are needed before more can be asked for."""
        return self._lists_needed > 0

    def status(self, now: float) -> Status:
        """How things stand."""
        pending = self.jobs.of(Stage.PENDING)
        words: dict[str, int] = {}
        for record in pending:
            if record.reason:
                words[record.reason] = words.get(record.reason, 0) + 1
        lines = [self._trouble] if self._trouble else []
        lines += [f"{count} × {text}" for text, count in sorted(words.items(), key=lambda item: -item[1])]
        under_way = self._under_way[1] if self._under_way is not None else 0
        return Status(
            self.wanted,
            len(pending) + under_way,
            sum(record.agent is not None for record in self.jobs.of(Stage.RUNNING)),
            len(self.jobs.of(Stage.DRAINING, Stage.ENDING)),
            max((now - record.since for record in pending), default=0.0),
            tuple(lines[:_LINES]),
        )

    # ---- events ----------------------------------------------------------------------------------------------------
    def _take(self, event: Event, effects: list[Effect], now: float) -> None:
        match event:
            case Observed():
                if self.jobs.take_agents(event.agents, now):
                    self._failures, self._trouble = 0, ""
                self.wanted = self._wanted.update(event, self.limits, self._own_jobs(event), now)
            case Unseen():
                self.jobs.lose_sight()
                self._wanted.lose_sight()
            case Listed():
                self._take_list(event, effects, now)
            case ListFailed():
                if event.reason != self._trouble:
                    effects.append(Log("WARNING", event.reason))
                self._trouble = event.reason
            case Submitted():
                self._under_way = None
                self.jobs.add(event.ids, now)
            case SubmitFailed():
                self._under_way = None
                self._doubted_until = now + self.limits.settle_time
                self._lists_needed = Limits.MISSED_LISTS
                self._fail(event.reason, effects, now)
                if event.is_final:
                    self._not_before = now + Limits.WRONG_BACK_OFF
            case Adapt():
                self._has_new_maximum |= event.maximum < self.limits.maximum
                self.limits = replace(self.limits, minimum=event.minimum, maximum=event.maximum)
                self.wanted = self._wanted.bounded(self.limits)
            case End():
                if self.is_in_doubt and not self._is_ending:
                    effects.append(Log("INFO", "looks for jobs that are not known yet, as these have to end, too"))
                self._is_ending = True
                self.wanted = 0

    def _own_jobs(self, observed: Observed) -> frozenset[str]:
        """Jobs of this cluster, and those that may be: an agent may be there before the answer to its request."""
        unknown = frozenset(agent.job for agent in observed.agents if agent.job and agent.job not in self.jobs.by_id)
        if self._under_way is None and not self.is_in_doubt:
            self._of_others = unknown
        return frozenset(self.jobs.by_id) | (unknown - self._of_others)

    def _take_list(self, event: Listed, effects: list[Effect], now: float) -> None:
        if self._listed is None or event.began > self._listed:
            self._listed = event.began
            if event.began >= self._doubted_until:
                self._lists_needed = max(0, self._lists_needed - 1)
        if not self._failures:
            self._trouble = ""
        failed, adopted = self.jobs.take_list(event.jobs, event.began, now)
        for job in event.jobs:
            number = job.name.rpartition("-")[2]
            if number.isascii() and number.isdigit():
                self._next_request = max(self._next_request, int(number) + 1)
        if adopted:
            effects.append(Log("INFO", f"found {len(adopted)} jobs of this cluster: {_ids(adopted)}"))
        if failed:
            reasons = "; ".join(dict.fromkeys(record.reason for record in failed if record.reason)) or "no reason given"
            what = f"job {failed[0].id} ended before its host"
            if len(failed) > 1:
                what = f"{len(failed)} jobs ended before their hosts"
                reasons = f"{_ids(failed)}: {reasons}"
            is_news = not all(record.is_logged for record in failed)
            self._fail(f"{what} came: {reasons[:_WORDS]}", effects, now, is_news)

    def _fail(self, reason: str, effects: list[Effect], now: float, is_news: bool = True) -> None:
        """A request failed, or a host that never came: ask again later."""
        pause = growing_pause(self._failures + 1, Limits.BACK_OFF, Limits.LONGEST_BACK_OFF)
        if now + pause > self._not_before:
            self._not_before = now + pause
        self._failures += 1
        if is_news and reason != self._trouble:
            effects.append(Log("WARNING", reason))
        self._trouble = reason

    # ---- decisions -------------------------------------------------------------------------------------------------
    def _give_up(self, effects: list[Effect], now: float) -> None:
        """What never came, or came and was lost, is cancelled, and what was cancelled and is still there again."""
        late: list[JobRecord] = []
        for record in self.jobs.by_id.values():
            if record.stage is Stage.ENDING:
                late.append(record)
            elif record.missed is not None and record.agent is None:
                patience = Limits.SAY_AGAIN if record.stage is Stage.DRAINING else self.limits.start_timeout
                if now - record.missed >= patience:
                    late.append(record)
            elif record.stage is Stage.PENDING and now - record.since >= self.limits.pending_timeout:
                late.append(record)
        never = [record for record in late if record.stage is Stage.PENDING]
        if never:
            waited = max(now - record.since for record in never)
            self._fail(f"{len(never)} hosts did not come in {waited:.0f} s: {_ids(never)} cancelled", effects, now)
        self._cancel(late, effects, now)

    def _shrink(self, effects: list[Effect], now: float) -> None:
        staying = [record for record in self.jobs.by_id.values() if record.is_staying]
        surplus = len([record for record in staying if not self._is_going(record)]) - self.wanted
        over = len(staying) - self.limits.maximum
        surplus = max(surplus, over)
        if surplus > 0:
            pending = sorted(self.jobs.of(Stage.PENDING), key=lambda record: -record.since)[:surplus]
            self._cancel(pending, effects, now)
            surplus -= len(pending)
        leaving: list[JobRecord] = []
        if surplus > 0:
            leaving = [record for record in staying if self._may_go(record)]
            leaving = sorted(leaving, key=_first_to_go)[:surplus]
        if not self._has_surplus_at_work(staying):
            self._has_new_maximum = False
        for record in leaving:
            record.stage = Stage.DRAINING
            record.told = -math.inf
        self._drain(effects, now)

    def _may_go(self, record: JobRecord) -> bool:
        agent = record.agent
        if record.stage is not Stage.RUNNING or agent is None:
            return False
        if self._has_new_maximum:
            return True
        return not agent.rows and agent.idle >= self.limits.idle_time

    def _has_surplus_at_work(self, staying: list[JobRecord]) -> bool:
        return len([record for record in staying if record.is_staying]) > self.limits.maximum

    def _drain(self, effects: list[Effect], now: float) -> None:
        """Tell those that are to go, and tell those again that do not seem to have heard."""
        deaf = [
            record for record in self.jobs.of(Stage.DRAINING)
            if record.agent is not None and not record.agent.is_draining and now - record.told >= Limits.SAY_AGAIN
        ]  # fmt: skip
        for record in deaf:
            record.told = now
        if deaf:
            effects.append(Drain(tuple(record.id for record in deaf)))

    def _grow(self, effects: list[Effect], now: float) -> None:
        if self._under_way is not None or now < self._not_before:
            return
        if self.is_in_doubt:
            return
        staying = [record for record in self.jobs.by_id.values() if record.is_staying]
        short = self.wanted - len([record for record in staying if not self._is_going(record)])
        room = self.limits.maximum - len(self.jobs.by_id)
        most = self.limits.max_pending - len(self.jobs.of(Stage.PENDING))
        n = min(short, room, most)
        if n > 0:
            if self._failures > 1:
                n = 1  # until one has come that proves the others right
                if self.jobs.of(Stage.PENDING):
                    return
            self._under_way = (self._next_request, n)
            self._next_request += 1
            effects.append(Submit(self._under_way[0], n))

    def _is_going(self, record: JobRecord) -> bool:
        """Its walltime is nearly over: another one is needed in its place."""
        agent = record.agent
        return agent is not None and agent.left is not None and agent.left < self.limits.lead

    def _cancel(self, records: list[JobRecord], effects: list[Effect], now: float) -> None:
        ids = []
        for record in records:
            if record.stage is not Stage.ENDING or now - record.told >= Limits.SAY_AGAIN:
                record.stage = Stage.ENDING
                record.told = now
                ids.append(record.id)
        if ids:
            effects.append(Cancel(tuple(ids)))


def _first_to_go(record: JobRecord) -> tuple[int, float]:
    """Who has least to do goes first; of those without work who has waited longest."""
    assert record.agent is not None
    return record.agent.rows, -record.agent.idle


def _ids(records: list[JobRecord]) -> str:
    shown = ", ".join(record.id for record in records[:5])
    return f"{shown}, ..." if len(records) > 5 else shown
