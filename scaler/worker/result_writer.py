"""What becomes of the value of a row: bytes in a message, a file in the store of this host, or it stays here.

small                           VALUES_EACH   its pickle
large                           STORED        its size, when the file is complete
large, only its graph needs it  LIVE          its size; the value stays in this worker (see live_values.py)
large, of a durable job         VALUES_EACH   its pickle (the flag INLINE_VALUES)
larger, of a durable job        FILED         what stands for its file, when that is complete and synced; where there is
                                              a directory for them that can be written
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from scaler.common.patience import Patience
from scaler.errors import SerializationError
from scaler.protocol import failures
from scaler.protocol.codes import (
    FILE_LIMIT,
    FILED,
    GRAPH,
    INLINE_VALUES,
    KEEP,
    LIVE,
    SIZE,
    STORED,
    VALUES_EACH,
    WANTED_ALONE,
)
from scaler.serialize import payload
from scaler.serialize.call import AnySerializer, serialized
from scaler.serialize.outofband import Packed, pack_large
from scaler.serialize.payload import PROTOCOL, SCALARS, describe
from scaler.store import ROOM_PATIENCE, StoreFull, segments
from scaler.store.layout import Key
from scaler.worker import context, fitness
from scaler.worker.assignment import Assignment
from scaler.worker.inputs import Failed
from scaler.worker.ledger import too_large
from scaler.worker.live_values import LiveValues, live_value
from scaler.worker_protocol.messages import Crowded, Run, Unfiled

#: seconds between two tries
ROOM_PAUSE = 0.05

#: row and value -> outcome, payload. Raises Failed
Encode = Callable[[int, Any], tuple[int, bytes]]


def as_bytes(name: str, serializer: AnySerializer | None) -> Callable[[Any], bytes]:
    """Return what turns a result into bytes, or raises Failed."""
    write: Callable[[Any], bytes] = payload.dumps if serializer is None else serializer.serialize

    def encode(value: Any) -> bytes:
        try:
            return bytes(write(value))
        except Exception as error:
            raise unpicklable(name, value, error) from None

    return encode


def in_message(name: str, serializer: AnySerializer | None) -> Callable[[Any], bytes]:
    """Return what turns a result into bytes for a message, whatever its size, or raises Failed."""
    write = as_bytes(name, serializer)

    def encode(value: Any) -> bytes:
        data = write(value)
        if len(data) > context.largest_result():
            raise too_large(len(data))
        return data

    return encode


def unpicklable(name: str, value: Any, error: Exception) -> Failed:
    """Return the failure of a row whose result raised `error` while it was pickled."""
    refused = _first_refused(value) if isinstance(error, SerializationError) else None
    return Failed(failures.unencodable(name, _advice(value) or refused or str(error)).encode())


def _first_refused(value: Any) -> str | None:
    """Which element of a list can't be pickled, as the result of one call of several; None if all can."""
    for place, element in enumerate(value) if type(value) is list else ():
        try:
            payload.dumps(element)
        except Exception as error:
            return f"element {place} of the list: {_advice(element) or error}"
    return None


def _advice(value: Any) -> str | None:
    """What to do about a result that was forgotten to be run; a coroutine is closed, or Python would warn of it."""
    if isinstance(value, CoroutineType):
        with contextlib.suppress(Exception):
            value.close()
        return "it is a coroutine of an `async def`, which nothing awaits there: call asyncio.run in the function"
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        return "a generator can't leave its process: return a list of what it yields"
    return None


class ResultWriter:
    """Puts the results of rows where they belong. One thread."""

    def __init__(
        self, values: LiveValues, tell: Callable[[Crowded | Unfiled], None], give_room: Callable[[], None]
    ) -> None:
        """`tell` tells the agent; `give_room` lets go of memory of the store that this process need not keep."""
        self._live = values
        self._tell = tell
        self._give_room = give_room
        #: the last file could not be written: what its path began with, and errno; the agent knows
        self._trouble: tuple[str, int] | None = None
        #: with the directory for files, which may hang: a slot is not to wait for it for ever
        self._patience = Patience()
        #: what was put somewhere, or is being put there, and is not in the ledger yet
        self._unreported: Key | None = None
        self._is_abandoned = False

    def abandon(self) -> None:
        """Put nothing anywhere any more, but end when a row returns: this is a process that a task forked."""
        self._is_abandoned = True

    def encoder(self, assignment: Assignment, serializer: AnySerializer | None) -> Encode:
        """Return what is to be done with the results of an assignment that are no numbers.

        It is made for the first of them: where there is none, making it would take longer than many a row.
        """
        made: Encode | None = None

        def encode(row: int, value: Any) -> tuple[int, bytes]:
            nonlocal made
            if made is None or self._is_abandoned:
                made = self._encoder(assignment, serializer)
            return made(row, value)

        return encode

    def _encoder(self, assignment: Assignment, serializer: AnySerializer | None) -> Encode:
        if self._is_abandoned:
            from scaler.worker.task_fork import end_as_a_program  # few tasks fork

            end_as_a_program(None)
        run, store, name = assignment.run, context.store(), assignment.run.name
        write = in_message(name, serializer)
        travels = bool(run.flags & INLINE_VALUES)
        in_file: Encode | None = None
        if travels and run.results:
            in_file = self._to_file(run, as_bytes(name, serializer))
            if run.form != GRAPH:
                return in_file
        if store is None or (travels and run.form != GRAPH):
            return lambda _row, value: (VALUES_EACH, write(value))
        limit = min(context.inline_limit(), context.largest_result())
        may_live = serializer is None and run.form == GRAPH and bool(run.flags & KEEP)

        def encode(row: int, value: Any) -> tuple[int, bytes]:
            if travels and assignment.is_wanted(row):
                if in_file is not None and assignment.wanted(row) == WANTED_ALONE:
                    return in_file(row, value)
                return VALUES_EACH, write(value)
            try:
                if serializer is not None:
                    packed: bytes | Packed = serialized(serializer, value)
                elif type(value) in SCALARS and (type(value) is not bytes or len(value) < limit):
                    packed = pickle.dumps(value, PROTOCOL)
                else:
                    packed = pack_large(value, limit)
            except Exception as error:
                raise unpicklable(name, value, error) from None
            if isinstance(packed, bytes):
                if len(packed) < limit:
                    return VALUES_EACH, packed
                packed = Packed(packed, [])
            return self._put(run, row, value, packed, store, may_live and not assignment.is_wanted(row))

        return encode

    def _to_file(self, run: Run, write: Callable[[Any], bytes]) -> Encode:
        """Return what writes large results of a durable job to files; where that can't be they travel in messages."""

        limit = min(FILE_LIMIT, context.largest_result() + 1)

        def encode(row: int, value: Any) -> tuple[int, bytes]:
            data = write(value)
            if len(data) < limit:
                return VALUES_EACH, data
            from scaler.results import files  # few have such results, and workers should start without it

            try:
                reference = self._patience.call(lambda: files.write(run.results, run.batch + row, data), len(data))
            except OSError as error:
                if error.errno is None:
                    raise  # not by the system: a signal handler of the user's
                self._note_trouble(run, error.errno)
                if len(data) > context.largest_result():
                    where = run.results.rpartition("/")[0]
                    raise Failed(
                        failures.no_room_in_files(len(data), where, os.strerror(error.errno)).encode()
                    ) from None
                return VALUES_EACH, data
            self._trouble = None
            return FILED, reference.pack()

        return encode

    def _note_trouble(self, run: Run, error: int) -> None:
        if self._trouble != (run.results, error):
            self._trouble = run.results, error
            self._tell(Unfiled(run.dispatch, error))

    def reported(self) -> None:
        """What was put somewhere last is in the ledger."""
        self._unreported = None

    def take_back(self) -> None:
        """Remove what was put somewhere for a row that failed after all."""
        key, self._unreported = self._unreported, None
        if key is not None:
            self._live.drop([key])
            store = context.store()
            if store is not None:
                with contextlib.suppress(OSError):
                    segments.free(store, key)

    def _write(self, store: str, key: Key, packed: Packed) -> int:
        """Write a file; where there is no room, or no store any more, wait a moment for the agent to see to that."""
        deadline = time.monotonic() + ROOM_PATIENCE
        while True:
            try:
                return segments.write(store, key, packed.inband, packed.buffers)
            except StoreFull as full:
                if full.is_for_good or time.monotonic() > deadline:
                    raise
                self._give_room()
                self._tell(Crowded(full.wanted))
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(ROOM_PAUSE)

    def _put(self, run: Run, row: int, value: Any, packed: Packed, store: str, may_live: bool) -> tuple[int, bytes]:
        key = (run.client, run.batch + row)
        self._unreported = key
        try:
            if may_live:
                stays, limit = live_value(value, packed, run.dispatch), context.live_limit()
                if stays.memory <= limit:
                    self._live.make_room(store, stays.memory, limit)
                    self._live.add(key, stays)
                    return LIVE, SIZE.pack(stays.size)
            return STORED, SIZE.pack(self._write(store, key, packed))
        except (StoreFull, OSError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise  # not by the system: a signal handler of the user's
            self._unreported = None
            reason = str(error) or type(error).__name__
            record = failures.no_room(run.name, describe(value), packed.size, reason).encode()
            raise Failed(record, is_doubtful=fitness.is_unfit()) from None
