"""Calls that are added to a durable job one by one, each with a future: what a durable `Executor` is made of.

    caller ─► queue ─► sender thread: parts, many at a time ─► scheduler (acknowledges what is on disk)
    futures ◄──────── puller thread: rows as they end ◄──────┘

A call is known by what it is: function, arguments, and the how-maniest of its kind it is in this program's run. So a
program that runs again finds the results of the calls that it made before.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from scaler.client.core.options import Options
from scaler.client.jobs.files import JobFiles
from scaler.client.jobs.job import states_in
from scaler.client.jobs.jobs import jobs_of
from scaler.client.jobs.packing import JobIds, JobPacker, Part
from scaler.client.jobs.results import Ended, ended_rows
from scaler.client.jobs.session import JobSession
from scaler.client.jobs.subject import JobSubject, checked_name
from scaler.client.jobs.submission import Submission
from scaler.client.parts import ClientParts
from scaler.client.values.value_codec import ValueCodec
from scaler.common.interrupts import wait_in_steps
from scaler.common.records import record
from scaler.errors import JobError
from scaler.protocol.messages import ObjectAnnounce, Task
from scaler.serialize.call import AnySerializer
from scaler.serialize.lasting import lasting_parts

#: parts that are sent before their answers are waited for
ROUND = 256
#: seconds for which the next end is waited for at a time
LOOK = 5.0
#: seconds that leaving waits for each thread if the program was interrupted
INTERRUPTED_TIMEOUT = 0.5


@record
class _Call:
    """A part on its way, with the futures of its rows."""

    part: Part
    key: str
    futures: list[concurrent.futures.Future[Any]]


class DurableCalls:
    """Of one job, which is made when the first call comes. Any thread."""

    def __init__(
        self, new_session: Callable[[], JobSession], name: str, options: Options, serializer: AnySerializer | None
    ) -> None:
        """Blocks until the scheduler has said whether there is such a job. Raises `JobError`, `ConnectionFailed`."""
        self._name = checked_name(name)
        self._codec = ValueCodec(serializer)
        self._sending, self._pulling = new_session(), new_session()
        known = [state for state in states_in(self._sending.ask("list")) if state.name == name]
        if known and known[0].state == "cancelled":
            raise JobError(f"job {name!r} was cancelled: delete it, or take another name")
        #: spans of results that were there before; later ones come by themselves
        self._position = known[0].spans if known else 0
        self._was_there = bool(known)
        #: far from the ids of other runs
        self._packer = JobPacker(JobIds(self._sending.limit, secrets.randbits(38) << 24 | 1), options, serializer)
        self._submission = Submission(self._sending, name, joins=True)
        #: as the sender thread asks about it
        self._claimed = JobSubject(self._sending, name)
        self._counts: Counter[str] = Counter()
        #: taken by itself: a signal's handler that raises may leave a Condition's own methods with it
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[_Call] = []
        #: those that were sent and have no answer yet, in their order
        self._in_flight: deque[_Call] = deque()
        #: row of the job -> its future
        self._futures: dict[int, concurrent.futures.Future[Any]] = {}
        #: rows that ended before it was known whose they are
        self._unclaimed: dict[int, Ended] = {}
        self._failure: BaseException | None = None
        #: no more calls are taken; and the threads end
        self._is_refusing = self._is_closing = False
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"scaler-job-{work.__name__[1:]}", daemon=True)
            for work in (self._send, self._pull)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> concurrent.futures.Future[Any]:
        """Add a call. Raises `SerializationError`, `ObjectTooLarge`, TypeError, and what has ended the session."""
        return self._add(self._packer.call(function, args, kwargs))[0]

    def map(self, function: Callable[..., Any], rows: Iterable[Any]) -> Iterator[concurrent.futures.Future[Any]]:
        """Add a call for each of these, as `Client.map` reads them; their futures, in order."""
        futures = [future for part in self._packer.calls(function, list(rows)) for future in self._add(part)]
        return iter(futures)

    def take_no_more(self, cancels: bool = False) -> None:
        """Refuse all further calls. With `cancels` nobody waits any more for those that were made; they stay made."""
        with self._lock:
            self._is_refusing = True
            waiting = self._take_waiting() if cancels else []
            self._changed.notify_all()
        _cancel(waiting)

    @property
    def waited_for(self) -> int:
        """Calls that have not ended."""
        with self._lock:
            calls = (*self._in_flight, *self._queue)
            return len(self._futures) + sum(len(call.futures) for call in calls)

    def close(self) -> None:
        """Take no more calls, and leave when all have ended; blocks until then. Once."""
        self.take_no_more()
        wait_in_steps(self._end_within, None)
        with self._lock:
            if self._is_closing:
                return  # it was abandoned meanwhile
            self._is_closing = True
            self._changed.notify_all()
        try:
            if self._failure is None and (self._counts or self._was_there):
                self._submission.complete()
        finally:
            self._pulling.abort()
            for thread in self._threads:
                thread.join()
            for session in (self._sending, self._pulling):
                session.close()

    def abandon(self) -> None:
        """The program was interrupted: take no more calls, send none that was not sent, and wait for none. Blocks for a
        moment.
        """
        with self._lock:
            self._is_refusing = self._is_closing = True
            waiting = self._take_waiting()
            self._queue.clear()
            self._changed.notify_all()
        _cancel(waiting)
        sessions = (self._sending, self._pulling)
        for session in sessions:
            session.abort()
        for thread, session in zip(self._threads, sessions, strict=True):
            thread.join(INTERRUPTED_TIMEOUT)
            if not thread.is_alive():  # else it looks for its scheduler, and holds the session
                session.close()

    def _end_within(self, seconds: float) -> bool:
        """Wait until all calls have ended, for so many seconds; whether they have, or never will."""
        with self._lock:
            return bool(self._changed.wait_for(lambda: self._failure or self._is_closing or self._is_idle, seconds))

    @property
    def _is_idle(self) -> bool:
        """All calls are on disk, and have ended or are not waited for. Under the lock."""
        return not (self._queue or self._in_flight) and all(future.done() for future in self._futures.values())

    def _take_waiting(self) -> list[concurrent.futures.Future[Any]]:
        """Of all calls that have not ended; nobody else ends them from now on. Under the lock."""
        waiting = list(self._futures.values())
        self._futures.clear()
        for call in (*self._in_flight, *self._queue):
            waiting += call.futures
            call.futures.clear()
        return waiting

    def _add(self, part: Part) -> list[concurrent.futures.Future[Any]]:
        digest = _digest(part)
        futures: list[concurrent.futures.Future[Any]] = [concurrent.futures.Future() for _ in range(part.rows)]
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._is_refusing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            number, self._counts[digest] = self._counts[digest], self._counts[digest] + 1
            self._queue.append(_Call(part, f"{digest}-{number}", futures))
            self._changed.notify_all()
        return futures

    # ---- the threads -----------------------------------------------------------------------------------------------
    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            with self._lock:
                if self._is_closing or self._failure is not None:
                    return
                self._failure = error
                waiting = self._take_waiting()
                self._in_flight.clear()
                self._queue.clear()
                self._changed.notify_all()
            for future in waiting:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def _send(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._queue or self._is_closing or self._failure)
                if not self._queue:
                    return
                calls, self._queue = self._queue[:ROUND], self._queue[ROUND:]
                self._in_flight.extend(calls)
            firsts = self._submission.add_all([(call.part, call.key) for call in calls])
            for call, first in zip(calls, firsts, strict=True):
                self._claim(call, first)

    def _claim(self, call: _Call, first: int) -> None:
        """A part is on disk, and its rows have these numbers; some may have ended in another run."""
        ended: dict[int, Ended] = {}
        if self._was_there:
            files = JobFiles(self._claimed)
            position, last = first, first + len(call.futures)
            while position < last:
                answer = self._claimed.ask("ordered", position=position)
                ended |= {each.row: each for each in ended_rows(answer, self._name, self._codec.load, files)}
                # what runs still is passed over; what has just ended will be heard of
                position = answer.next if answer.outcomes else max(answer.next, position + 1)
        with self._lock:
            if self._failure is not None:
                return  # of the other thread: the futures know
            found: list[tuple[concurrent.futures.Future[Any], Ended]] = []
            for row, future in enumerate(call.futures, first):
                each = ended.pop(row, None) or self._unclaimed.pop(row, None)
                if each is None:
                    self._futures[row] = future
                else:
                    found.append((future, each))
            self._in_flight.popleft()
            if not self._in_flight:
                self._unclaimed.clear()  # of others who add to this job
            self._changed.notify_all()
        for future, each in found:
            _fulfil(future, each)

    def _pull(self) -> None:
        job = JobSubject(self._pulling, self._name)
        files = JobFiles(job)
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._futures or self._in_flight or self._is_closing or self._failure)
                if self._is_closing or self._failure is not None:
                    return
            try:
                answer = job.ask("finished", position=self._position, wait=LOOK)
            except JobError:
                if self._futures:
                    raise  # it was deleted under way
                self._pulling.pause()  # it is being made
                continue
            self._position = answer.next
            for each in ended_rows(answer, self._name, self._codec.load, files):  # one by one: they may be large
                with self._lock:
                    future = self._futures.pop(each.row, None)
                    if future is None and self._in_flight:
                        self._unclaimed[each.row] = each
                if future is not None:
                    _fulfil(future, each)
            with self._lock:
                self._changed.notify_all()


def durable_calls(parts: ClientParts, options: Options, name: str) -> DurableCalls:
    """Calls that are added to the job of this name one by one; it may be there from another run.

    Blocks until the scheduler has answered. Raises `JobError` and `ConnectionFailed`.
    """
    return DurableCalls(jobs_of(parts).new_session, name, options, parts.serializer)


def _cancel(futures: Iterable[concurrent.futures.Future[Any]]) -> None:
    for future in futures:
        future.cancel()
        future.set_running_or_notify_cancel()


def _fulfil(future: concurrent.futures.Future[Any], ended: Ended) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if ended.error is not None:
        future.set_exception(ended.error)
    else:
        future.set_result(ended.value)


def _digest(part: Part) -> str:
    """What a part calls, and with which arguments; the same in another run."""
    digest = hashlib.sha256()
    numbers: dict[bytes, int] = {}
    for message in part.messages:
        assert isinstance(message, (ObjectAnnounce, Task))
        for body in message.bodies:
            digest.update(len(body).to_bytes(8, "little"))
            for piece in lasting_parts(body, numbers):
                digest.update(piece)
        if isinstance(message, Task):
            digest.update(repr((message.name, message.rows, message.form, message.flags)).encode())
    return digest.hexdigest()[:40]
