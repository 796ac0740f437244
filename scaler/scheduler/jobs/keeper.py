"""The durable jobs of a scheduler's process: its journal on disk around what `jobs_core.py` decides.

A defect of theirs ends them, and nothing else: what is on disk stays, other clients go on, and whoever asks for a job
is told to have the scheduler started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from scaler.common import findings
from scaler.common.effects import Log
from scaler.errors import ProtocolError, ScalerError
from scaler.journal.directory import Damage, JournalError
from scaler.journal.layout import Layout, Place
from scaler.journal.records import RECORD_HEADER, Damaged, Frame, Record, frames_of_size, pack, read
from scaler.journal.removal import Removal
from scaler.journal.writer import ENDING
from scaler.protocol.codec import decode, encode
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.protocol.messages import FAILED, DisconnectRequest, JobAnswer, JobQuestion, JobSubmit, Message
from scaler.protocol.results import SpanResult
from scaler.scheduler.jobs import at_core
from scaler.scheduler.jobs import events as ev
from scaler.scheduler.jobs.job_records import Kind, Said
from scaler.scheduler.jobs.jobs_core import JobsCore, JobTerms
from scaler.scheduler.residents import Reply, ResidentWish, Say

if TYPE_CHECKING:
    from scaler.scheduler.jobs.result_files import ResultFiles

#: seconds between two tries to read what was written of jobs, or to remove what nobody needs
AGAIN = 5.0
#: seconds that files of large results are waited for in the end
FILES_ENDING = 1.0
#: turns of those who have written are below this: there are as many again for those that follow
MOST_TERM = 1 << 31
#: why a large result can't be had
NO_FILES = "it is in a file, and this scheduler was started without --results DIRECTORY"


class OpenJournal(Protocol):
    """A journal, as `scaler.journal.journal.Journal` says what it does."""

    def replay(self, take: Callable[[Record, Place], None]) -> tuple[Layout, Damage | None]: ...

    def fileno(self) -> int: ...

    def append(self, place: Place, buffers: list[Frame]) -> None: ...

    def take_news(self) -> tuple[int, str | None]: ...

    def read(self, segment: int, offset: int, size: int) -> bytes: ...

    @property
    def room(self) -> float: ...

    def measure_room(self) -> None: ...

    def remove(self, segment: int) -> None: ...

    def close(self, timeout: float = ...) -> None: ...


class JobKeeper:
    """Keeps them in one journal. For one thread; `close` blocks for a moment, nothing else does for long."""

    def __init__(
        self,
        journal: OpenJournal,
        terms: JobTerms,
        files: ResultFiles | None = None,
        is_alone: Callable[[], bool] = lambda: True,
    ) -> None:
        """Read the journal; blocks. Raises `JournalError` and `ResultsError`. `files`: for large results.

        Unless this keeper `is_alone`, another one may go on with a copy of the journal, and needs files that this one
        does not know: then none is looked for that nobody needs.
        """
        self._journal = journal
        self._files = files
        self._is_alone = is_alone
        self._core = JobsCore(encode, terms)
        #: one more than that of whoever wrote last
        self._term = 1
        #: records that were read
        self.replayed = 0
        layout, self.damage = journal.replay(self._restore)
        self._core.lay_out(layout)
        if files is not None:
            is_anew = self.damage is not None and not self.damage.is_cut
            self._core.keep_files(files.directory, files.begin(self._core.identity, is_anew))
        self._events: list[ev.Event] = []
        #: records that could not be copied, as they can't be read: where they are, and their bytes
        self._uncopied: dict[Place, int] = {}
        #: jobs whose parts can't be read; a dict serves as an ordered set
        self._unread: dict[int, None] = {}
        #: segments that nobody needs
        self._needless = Removal(journal.remove)
        #: when all that is tried again, seconds; None: all can be read, and removed
        self._again: float | None = None
        self._now = 0.0
        self._has_begun = False
        self.has_news = True
        #: why there are no jobs any more; empty: there are
        self._defect = ""
        #: who has asked and was not answered, and the number of the question; a dict serves as an ordered set
        self._unanswered: dict[tuple[int, int], None] = {}
        #: numbers of jobs at the core
        self._residents: set[int] = set()

    def _restore(self, record: Record, place: Place) -> None:
        self.replayed += 1
        is_believed = record.term < MOST_TERM  # else there is no turn behind it
        if is_believed:
            self._term = max(self._term, record.term + 1)
        self._core.restore(record, place, _results_in(record) if is_believed else None)

    @property
    def results(self) -> str:
        """The part of the directory for large results that is this journal's."""
        return "" if self._files is None else f"{self._files.directory}/{self._core.identity}"

    @property
    def jobs(self) -> int:
        """How many there are."""
        return self._core.jobs

    # ---- the loop --------------------------------------------------------------------------------------------------
    def filenos(self) -> list[int]:
        """Readable when more is on disk, or something was done with files."""
        return [self._journal.fileno(), *([] if self._files is None else [self._files.fileno()])]

    def gather(self) -> None:
        """Take in what is on disk by now, and what was done with files."""
        if self._files is not None:
            for done in self._files.take():
                self._tell(done)
        records, trouble = self._journal.take_news()
        self._tell(ev.OnDisk(records, trouble, self._journal.room))

    @property
    def wake(self) -> float | None:
        """When something is due though nothing happened, seconds."""
        if self._defect:
            return None
        due = self._core.wake, self._again, None if self._files is None else self._files.wake
        return min((each for each in due if each is not None), default=None)

    def close(self, timeout: float = ENDING) -> None:
        """Write what waits, as far as disks take it within so many seconds, and let somebody else have the journal."""
        if self._files is not None:
            self._files.close(min(timeout, FILES_ENDING))
        self._journal.close(timeout)

    # ---- what it hears (`Residents`) -------------------------------------------------------------------------------
    def ask(self, monitor: int, message: JobSubmit | JobQuestion) -> None:
        """A monitor wants something."""
        self._unanswered[monitor, message.number] = None
        if isinstance(message, JobQuestion):
            self._tell(ev.Asked(monitor, message))
            return
        try:
            inner = _messages(list(message.counts), message.bodies[1:])
        except ProtocolError as error:
            inner, trouble = [], f"a part of a job that is none: {error}"
            self._tell(ev.Submitted(monitor, message, inner, trouble))
            return
        self._tell(ev.Submitted(monitor, message, inner))

    def lose_monitor(self, monitor: int) -> None:
        """It wants no answer any more."""
        self._unanswered = {each: None for each in self._unanswered if each[0] != monitor}
        self._tell(ev.Gone(monitor))

    def welcome(self, resident: int, number: int) -> None:
        """A job is a client of the core."""
        self._residents.add(number)
        self._tell(ev.Welcomed(resident, number))

    def hear(self, number: int, message: Message) -> None:
        """The core says something to a job."""
        if not self._defect:
            self._tell(ev.Heard(number, message))

    def forget(self, number: int, reason: str) -> None:
        """The core does not know a job any more."""
        self._residents.discard(number)
        self._tell(ev.Forgotten(number, reason))

    def doubt(self, reason: str) -> None:
        """Another scheduler may lead meanwhile, and know of other jobs."""
        self._events.insert(0, ev.Doubted(reason))
        self.has_news = True

    def _tell(self, event: ev.Event) -> None:
        self._events.append(event)
        self.has_news = True

    # ---- what it does ----------------------------------------------------------------------------------------------
    def handle(self, now: float) -> list[ResidentWish]:
        """Let the jobs decide; what they want of the core, and of those who asked. After a defect there are none."""
        if self._defect:
            return self._refuse()
        try:
            wishes = self._decide(now)
        except Exception as error:
            return self._contain(error)
        for wish in wishes:
            if type(wish) is Reply:
                self._unanswered.pop((wish.monitor, wish.message.number), None)
        return wishes

    def _contain(self, error: Exception) -> list[ResidentWish]:
        where = findings.told(error, "what durable jobs heard")
        what = f"{type(error).__name__}: {error}"
        self._defect = f"durable jobs met a defect of the scheduler ({what}), whose log says more"
        consequence = "there are none until it is started again, which goes on with them"
        text = f"a defect of the scheduler, met by durable jobs: {consequence}:\n{where}"
        return [Log("ERROR", text), *self._refuse()]

    def _refuse(self) -> list[ResidentWish]:
        """Answer all who ask, and leave the core."""
        self._events, self.has_news = [], False
        unanswered, self._unanswered = self._unanswered, {}
        residents, self._residents = self._residents, set()
        answers = [Reply(monitor, JobAnswer(number, self._defect, bodies=[b""])) for monitor, number in unanswered]
        return [*answers, *(Say(number, DisconnectRequest(), 0) for number in sorted(residents))]

    def _decide(self, now: float) -> list[ResidentWish]:
        wishes: list[ResidentWish] = []
        self._now = now
        if self._again is not None and now >= self._again:
            wishes += self._try_again()
        if not self._has_begun:
            self._has_begun = True
            wishes += self._carry_out(self._core.begin())
        events, self._events = self._events, []
        self.has_news = False
        wishes += self._carry_out(self._core.handle(events, now))
        if self._files is not None:
            for given_up in self._files.give_up(now):
                self._tell(given_up)
        return wishes

    def _carry_out(self, effects: list[ev.Effect]) -> list[ResidentWish]:
        wishes: list[ResidentWish] = []
        for effect in effects:
            if isinstance(effect, ev.Write):
                written = Record(effect.kind, effect.owner, tuple(effect.frames), self._term)
                self._journal.append(effect.place, pack(written))
            elif isinstance(effect, ev.Copy):
                wishes += self._copy(effect)
            elif isinstance(effect, ev.Remove):
                self._needless.add(effect.segment)
                self._uncopied = {at: size for at, size in self._uncopied.items() if at.segment != effect.segment}
                wishes += self._remove_needless()
            elif isinstance(effect, ev.MeasureRoom):
                self._journal.measure_room()
            elif isinstance(effect, ev.Load):
                wishes += self._load(effect)
            elif isinstance(effect, ev.Fetch):
                self._tell(ev.Fetched(effect.number, effect.row, *self._value(effect)))
            elif isinstance(effect, ev.Answer):
                wishes.append(Reply(effect.monitor, self._whole(effect)))
            elif isinstance(effect, (ev.ReadFile, ev.RemoveFiles, ev.ListFiles)):
                if self._files is not None:
                    if self._is_alone() or not isinstance(effect, ev.ListFiles):
                        self._files.do(effect)
                elif isinstance(effect, ev.ReadFile):
                    self._tell(ev.FileRead(effect.number, b"", NO_FILES))
            else:
                wishes.append(effect)
        return wishes

    # ---- a disk that can't be read, or changed -----------------------------------------------------------------------
    def _copy(self, wanted: ev.Copy) -> list[ResidentWish]:
        """Write a record at another place; if it can't be read, one of nothing, since its successors are behind it."""
        try:
            self._journal.append(wanted.place, [self._record_at(wanted.source, wanted.size)])
        except (JournalError, Damaged) as error:
            gap = Record(Kind.GAP, 0, frames_of_size(wanted.size), self._term)
            self._journal.append(wanted.place, pack(gap))
            is_first = all(place.segment != wanted.source.segment for place in self._uncopied)
            self._uncopied[wanted.source], self._again = wanted.size, self._now + AGAIN
            self._tell(ev.NotCopied(wanted.place))
            words = f"Journal: segment {wanted.source.segment} stays until all of it can be read: {error}"
            return [ev.Log("ERROR", words)] if is_first else []
        return []

    def _record_at(self, place: Place, size: int) -> bytes:
        """The bytes of a record. Raises `JournalError` and `Damaged`."""
        data = self._journal.read(*place, size)
        read(memoryview(data), 0)
        return data

    def _try_to_copy(self) -> None:
        """Look whether what could not be copied can be read by now."""
        before = {place.segment for place in self._uncopied}
        for place, size in list(self._uncopied.items()):
            with contextlib.suppress(JournalError, Damaged):
                self._record_at(place, size)
                del self._uncopied[place]
        left = {place.segment for place in self._uncopied}
        for segment in before - left:
            self._tell(ev.MayBeCopied(segment))
        if left:
            self._again = self._now + AGAIN

    def _load(self, wanted: ev.Load) -> list[ResidentWish]:
        """Read what was submitted of a job, or try it again later; what is said of that."""
        try:
            parts = [self._part(place) for place in wanted.places]
        except (ScalerError, Damaged) as error:
            is_first = wanted.job not in self._unread
            self._unread[wanted.job], self._again = None, self._now + AGAIN
            words = f"Journal: job {self._core.name_of(wanted.job)!r} waits until it can be read: {error}"
            return [ev.Log("ERROR", words)] if is_first else []
        self._unread.pop(wanted.job, None)
        self._tell(ev.Loaded(wanted.job, parts))
        return []

    def _try_again(self) -> list[ResidentWish]:
        self._again = None
        if self._uncopied:
            self._try_to_copy()
        self._unread = {job: None for job in self._unread if self._core.name_of(job)}
        for job in self._unread:  # where its parts are the core knows: they may have been copied elsewhere since
            self._tell(ev.MayBeRead(job))
        return [*self._remove_needless()]

    def _remove_needless(self) -> list[Log]:
        logs = self._needless.run()
        if self._needless:
            self._again = self._now + AGAIN
        return logs

    def _whole(self, answer: ev.Answer) -> JobAnswer:
        """An answer with what it has of segments; if they can't be read, it says that instead."""
        if answer.pieces:
            try:
                answer.message.bodies = [self._gathered(answer.pieces)]
            except JournalError as error:
                return JobAnswer(answer.message.number, str(error), bodies=[b""])
        return answer.message

    def _gathered(self, pieces: Sequence[tuple[int, int, int]]) -> bytes:
        """Bytes of segments; neighbours in one go."""
        found, at = [], 0
        while at < len(pieces):
            segment, offset, size = pieces[at]
            at += 1
            while at < len(pieces) and pieces[at][0] == segment and pieces[at][1] == offset + size:
                size += pieces[at][2]
                at += 1
            found.append(self._journal.read(segment, offset, size))
        return found[0] if len(found) == 1 else b"".join(found)

    def _part(self, place: Place) -> list[Message]:
        """The messages of a part that was written."""
        head = self._journal.read(place.segment, place.offset, 4)
        size = int.from_bytes(head, "little")
        data = memoryview(self._journal.read(place.segment, place.offset, size + RECORD_HEADER))
        record, _ = read(data, 0)
        frames = record.frames
        if record.kind != Kind.PART or len(frames) < 2:
            raise Damaged("a part of a job is not what it should be")
        return _messages(Said(frames[1]).numbers("counts", len(frames)), frames[2:])

    def _value(self, effect: ev.Fetch) -> tuple[int, bytes]:
        span = effect.span
        try:
            body = self._journal.read(span.segment, span.offset, span.size)
        except JournalError as error:
            return FAILED, ErrorRecord(ErrorKind.OBJECT, f"its value is in the journal: {error}", "").encode()
        result = SpanResult(0, 0, span.hi - span.lo, span.outcome, 0, 0, span.sizes, body)
        return at_core.value_in(result, effect.at)


def _messages(counts: Sequence[int], frames: Sequence[Frame]) -> list[Message]:
    """The messages whose frames these are. Raises ProtocolError."""
    found, at = [], 0
    for count in counts:
        found.append(decode(list(frames[at : at + count])).message)
        at += count
    return found


def _results_in(record: Record) -> list[Message] | None:
    """What results are in it; None if that can't be read."""
    if record.kind != Kind.RESULTS:
        return []
    try:
        return [decode(list(record.frames)).message]
    except ProtocolError:
        return None
