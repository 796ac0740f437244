"""What the provider is asked, one thing after the other in a thread; its answers are looked at before they count.

A provider may be anybody's. Whatever it raises or returns is an event for the core: no answer makes the thread end, as
nothing would be asked for any more, and jobs that are not this cluster's are not shown to the core, which would end
them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scaler.config import OptionError
from scaler.provisioning.core import Limits
from scaler.provisioning.core import events as ev
from scaler.provisioning.provider import HostTemplate, Job, JobState, Provider, ProviderError, WrongRequest, request_of

logger = logging.getLogger("scaler.provision")

#: characters of what a provider says that are passed on, at most
LONGEST_WORDS = 300


class Errands:
    """See the module. Made and called by one thread; `tell` is called by the other one, with answers."""

    def __init__(self, provider: Provider, tag: str, tell: Callable[[ev.Event], None]) -> None:
        self._provider = provider
        self._tag = tag
        self._tell = tell
        self._queue: queue.SimpleQueue[tuple[str, Callable[[], None]]] = queue.SimpleQueue()
        #: ids that `submit` has said
        self._ids: set[str] = set()
        self._has_seen_others = False
        #: what the provider was asked for and has not answered, and since when
        self.asked: tuple[str, float] | None = None
        #: when it last did what it was asked for, seconds
        self.answered_at = 0.0
        #: the list was asked for, and has not come; when the last one came
        self.is_listing = False
        self.listed_at = 0.0

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._ask, name="scaler-provider", daemon=True).start()

    def submit(self, request: int, n: int, template: HostTemplate) -> None:
        """Ask for hosts; the answer is `Submitted` or `SubmitFailed`. None of these functions blocks."""
        self._queue.put(("submit", lambda: self._submit(request, n, template)))

    def cancel(self, ids: tuple[str, ...]) -> None:
        """End jobs; there is no answer."""
        self._queue.put(("cancel", lambda: self._cancel(ids)))

    def list(self) -> None:
        """Ask for the jobs; the answer is `Listed` or `ListFailed`."""
        self.is_listing = True
        self._queue.put(("list", self._list))

    # ---- in the other thread ---------------------------------------------------------------------------------------
    def _ask(self) -> None:
        while True:
            name, errand = self._queue.get()
            self.asked = (name, time.monotonic())
            errand()
            self.asked = None

    def _submit(self, request: int, n: int, template: HostTemplate) -> None:
        try:
            ids = _ids(self._provider.submit(n, template), n)
        except (WrongRequest, OptionError) as error:
            advice = f"it is asked again in {Limits.WRONG_BACK_OFF / 60:g} min; change its options, and start it anew"
            self._tell(ev.SubmitFailed(request, f"{line(error)} ({advice})", is_final=True))
            return
        except BaseException as error:
            self._tell(ev.SubmitFailed(request, line(error)))
            return
        self.answered_at = time.monotonic()
        self._ids |= set(ids)
        logger.info("request %d: %s", request, some(ids))
        self._tell(ev.Submitted(request, ids))

    def _cancel(self, ids: tuple[str, ...]) -> None:
        try:
            self._provider.cancel(ids)
            self.answered_at = time.monotonic()
        except BaseException as error:
            logger.warning("%s", line(error))

    def _list(self) -> None:
        began = time.monotonic()
        try:
            event: ev.Event = ev.Listed(self._jobs(self._provider.list(self._tag)), began)
            self.answered_at = time.monotonic()
        except BaseException as error:
            event = ev.ListFailed(line(error))
        self.listed_at = time.monotonic()
        self._tell(event)
        self.is_listing = False

    def _jobs(self, listed: Any) -> tuple[Job, ...]:
        """The jobs of this cluster in a list. Raises `ProviderError` if it is none."""
        found = []
        for job in _tuple(listed, "list", "jobs"):
            if not _is_job(job):
                raise ProviderError(f"the provider's list() has {_shown(job)}: no Job with id, name and a JobState")
            if request_of(job.name, self._tag) is not None or job.id in self._ids:
                found.append(replace(job, reason=_short(job.reason)))
            elif not self._has_seen_others:
                self._has_seen_others = True
                logger.warning(
                    "the provider's list() has jobs of others, like %s (%s): they are left alone", job.id, job.name
                )
        return tuple(found)


def _ids(answer: Any, n: int) -> tuple[str, ...]:
    """The ids that `submit` said. Raises `ProviderError` if they are none: nobody knows then what was taken."""
    ids = _tuple(answer, "submit", "the ids of its jobs")
    if not all(map(_is_id, ids)) or len(set(ids)) != len(ids) or not 0 < len(ids) <= n:
        raise ProviderError(f"the provider's submit() has returned {_shown(ids)}, not up to {n} different ids of jobs")
    return ids


def _is_job(job: Any) -> bool:
    return isinstance(job, Job) and _is_id(job.id) and _is_id(job.name) and isinstance(job.state, JobState)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _tuple(answer: Any, function: str, what: str) -> tuple[Any, ...]:
    if isinstance(answer, str | bytes | dict) or not hasattr(answer, "__iter__"):
        raise ProviderError(f"the provider's {function}() has returned {_shown(answer)}, not {what}")
    return tuple(answer)


def _shown(value: Any) -> str:
    return _short(repr(value))[:100]


def _short(words: object) -> str:
    return " ".join(str(words).split())[:LONGEST_WORDS]


def line(error: BaseException) -> str:
    """What went wrong, in a line; a provider of others may raise anything."""
    text = _short(error)
    return text if isinstance(error, ProviderError | OptionError) and text else f"{type(error).__name__}: {text}"


def some(ids: tuple[str, ...]) -> str:
    """A few of them, and how many there are."""
    return f"{len(ids)} jobs: {', '.join(ids[:4])}{', ...' if len(ids) > 4 else ''}"
