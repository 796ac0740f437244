"""Durable jobs as a scheduler's process has them: a defect of theirs ends them there, and nothing else.

What is on disk stays. Other clients go on, and whoever asks for a job is told to have the scheduler started again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scaler.common import findings
from scaler.common.effects import Log
from scaler.protocol.messages import DisconnectRequest, JobAnswer, JobQuestion, JobSubmit, Message
from scaler.scheduler.jobs.jobs_core import JobTerms
from scaler.scheduler.jobs.keeper import JobKeeper, OpenJournal
from scaler.scheduler.residents import Reply, ResidentWish, Say

if TYPE_CHECKING:
    from scaler.scheduler.jobs.result_files import ResultFiles


class ContainedKeeper(JobKeeper):
    """A `JobKeeper` that does not raise once it was made."""

    def __init__(
        self,
        journal: OpenJournal,
        terms: JobTerms,
        files: ResultFiles | None = None,
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(journal, terms, files, is_alone)
        #: why there are no jobs any more; empty: there are
        self._defect = ""
        #: who has asked and was not answered, and the number of the question; a dict serves as an ordered set
        self._unanswered: dict[tuple[int, int], None] = {}
        #: numbers of jobs at the core
        self._residents: set[int] = set()

    @property
    def wake(self) -> float | None:
        return None if self._defect else super().wake

    def ask(self, monitor: int, message: JobSubmit | JobQuestion) -> None:
        self._unanswered[monitor, message.number] = None
        super().ask(monitor, message)

    def lose_monitor(self, monitor: int) -> None:
        self._unanswered = {each: None for each in self._unanswered if each[0] != monitor}
        super().lose_monitor(monitor)

    def welcome(self, resident: int, number: int) -> None:
        self._residents.add(number)
        super().welcome(resident, number)

    def hear(self, number: int, message: Message) -> None:
        if not self._defect:
            super().hear(number, message)

    def forget(self, number: int, reason: str) -> None:
        self._residents.discard(number)
        super().forget(number, reason)

    def handle(self, now: float) -> list[ResidentWish]:
        """As that of `JobKeeper`; after a defect those who ask are told of it, and the core has no jobs any more."""
        if self._defect:
            return self._refuse()
        try:
            wishes = super().handle(now)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self._defect = f"durable jobs met a defect of the scheduler ({what}), whose log says more"
            return [_log_of(error), *self._refuse()]
        for wish in wishes:
            if type(wish) is Reply and isinstance(wish.message, JobAnswer):
                self._unanswered.pop((wish.monitor, wish.message.number), None)
        return wishes

    def _refuse(self) -> list[ResidentWish]:
        """Answer all who ask, and leave the core."""
        self._events, self.has_news = [], False
        unanswered, self._unanswered = self._unanswered, {}
        residents, self._residents = self._residents, set()
        answers = [Reply(monitor, JobAnswer(number, self._defect, bodies=[b""])) for monitor, number in unanswered]
        return [*answers, *(Say(number, DisconnectRequest(), 0) for number in sorted(residents))]


def _log_of(error: Exception) -> Log:
    where = findings.told(error, "what durable jobs heard")
    consequence = "there are none until it is started again, which goes on with them"
    return Log("ERROR", f"a defect of the scheduler, met by durable jobs: {consequence}:\n{where}")
