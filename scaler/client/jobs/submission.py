"""Submitting a durable job: its parts, one after the other, each of which counts once it is on disk."""

from __future__ import annotations

import contextlib
import getpass
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scaler.client.jobs.packing import Part
from scaler.client.jobs.session import JobSession
from scaler.errors import ConnectionFailed, ScalerError
from scaler.protocol.codec import encode
from scaler.protocol.messages import MAX_JOB_NAME, Frame, Message, u32


class Submission:
    """The parts of one job, on their way to the scheduler."""

    def __init__(self, session: JobSession, name: str, note: bytes = b"", joins: bool = False) -> None:
        """With `joins` a job of this name may be there, and parts that it has are not added again."""
        self._session = session
        self._name = name
        self._note = note
        self._joins = joins
        #: of the job, unless one was there that is joined
        self.token = uuid.uuid4().int & ((1 << 63) - 1) | 1
        self._owner = f"{_user()}@{os.uname().nodename}"[:MAX_JOB_NAME]
        self._sent = 0
        #: the scheduler may have heard of it
        self._has_said = False

    def add(self, part: Part) -> None:
        """Submit a part. Returns once it is on disk."""
        self.add_all([(part, str(self._sent))])
        self._sent += 1

    def add_all(self, parts: Sequence[tuple[Part, str]]) -> list[int]:
        """Submit parts with their keys, all at once; the numbers of their first rows when they are on disk."""
        self._has_said = True
        said = [self._fields(key, *_as_frames(part.messages), is_last=False) for part, key in parts]
        return [answer.next for answer in self._session.submit_all(said)]

    def complete(self) -> None:
        """No more parts come."""
        self._has_said = True
        self._session.submit_all([self._fields("", [], [], is_last=True)])

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What is added in here is all of the job. If it does not get there, nothing of it is wanted."""
        try:
            yield
            self.complete()
        except ConnectionFailed:  # nobody knows how much of it is there
            raise
        except BaseException:  # a row that can't be pickled, say, no room for it, or Ctrl-C
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Forget the job, as far as it can be told."""
        if self._has_said:
            with contextlib.suppress(ScalerError):
                self._session.ask("delete", self._name, token=self.token)

    def _fields(self, key: str, counts: list[int], frames: list[Frame], is_last: bool) -> dict[str, Any]:
        return {
            "name": self._name, "owner": self._owner, "token": self.token, "key": key, "joins": self._joins,
            "is_last": is_last, "counts": u32(counts), "bodies": [self._note, *frames],
        }  # fmt: skip


def _as_frames(messages: Iterable[Message]) -> tuple[list[int], list[Frame]]:
    counts: list[int] = []
    frames: list[Frame] = []
    for message in messages:
        each = encode(message)
        counts.append(len(each))
        frames += each
    return counts, frames


def _user() -> str:
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):  # no such user in this container
        return str(os.getuid())
