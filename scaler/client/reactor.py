"""Carrying out what the session says of the user's side, each kind of effect by the part that it is for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from scaler.client.core import events as ev
from scaler.client.io.reply import Reply
from scaler.client.task_warnings import TaskWarnings
from scaler.client.values.claimed_rows import ClaimedRows
from scaler.client.values.providing import ValueProvider
from scaler.client.waiting.claims import Claims
from scaler.client.waiting.event_loops import wake_event_loop
from scaler.client.waiting.resolving import Resolver
from scaler.common.callback_thread import CallbackThread
from scaler.protocol.messages import STDOUT, WARNINGS


class Reactor:
    """Called by the I/O thread without its lock; what may block goes to a thread in the background."""

    def __init__(
        self,
        resolver: Resolver,
        provider: ValueProvider,
        claims: Claims,
        claimed_rows: ClaimedRows,
        task_warnings: TaskWarnings,
        reply: Reply,
        background: CallbackThread,
    ) -> None:
        self._resolver = resolver
        self._provider = provider
        self._claims = claims
        self._claimed_rows = claimed_rows
        self._task_warnings = task_warnings
        self._reply = reply
        self._background = background
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.RowsBegun: lambda effect: resolver.note_begun(effect.tokens),
            ev.CancelRefused: lambda effect: resolver.refuse_cancel(effect.tokens),
            ev.ClaimGranted: self._grant,
            ev.ClaimRefused: lambda effect: claims.refuse(effect.tokens),
            **provider.handlers,
            ev.Printed: self._print,
            ev.RequestAnswered: lambda effect: reply.arrive(effect.message),
        }

    def carry_out(self, effects: list[ev.Effect]) -> None:
        """Do what these say, in order."""
        resolve = self._resolver.resolve
        for effect in effects:
            if type(effect) is ev.Resolve:  # most are: without a detour
                resolve(effect.tokens, effect.span, effect.task)
            else:
                self._handlers[type(effect)](effect)

    def tidy(self) -> None:
        """Let go of what is not needed, and have an event loop hear of Ctrl-C; called about twice a second."""
        self._provider.tidy()
        wake_event_loop()

    def fail(self, tokens: list[Any], error: BaseException) -> None:
        """There is no scheduler any more: what these tokens stand for ends with this, and so do all questions."""
        self._resolver.fail(tokens, error)
        self._reply.arrive(None)
        self._provider.end()

    def close(self) -> None:
        """The client is closed: nothing will be asked for any more."""
        self._provider.end()
        self._background.close()

    def _grant(self, effect: ev.ClaimGranted) -> None:
        if not self._claims.grant(effect):  # its wait ended meanwhile: send the row again
            self._background.run(partial(self._claimed_rows.resubmit, effect))

    def _print(self, effect: ev.Printed) -> None:
        if effect.stream == WARNINGS:
            self._task_warnings.add(effect.text)
        else:
            stream = sys.stdout if effect.stream == STDOUT else sys.stderr
            if stream is not None:  # the program has such a stream
                _print_to(stream, effect.text)


def _print_to(stream: TextIO, text: str) -> None:
    """Print what a task has printed; raises nothing, whatever the program has for a stream."""
    try:
        print(text, end="", file=stream, flush=True)
    except UnicodeError:  # its encoding has not all of these characters
        encoding = stream.encoding or "ascii"
        with contextlib.suppress(Exception):
            print(text.encode(encoding, "backslashreplace").decode(encoding), end="", file=stream, flush=True)
    except Exception:  # it is closed, or nobody reads it any more
        pass
