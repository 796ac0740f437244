"""Clients inside tasks: where they connect, and how a task that waits for tasks of its own keeps its worker useful.

A waiting task gives back the rows its worker holds and has not begun, claims the row it waits for, and runs it in its
own stack if nobody has begun it. If somebody has, or the stack is deep, the worker says that it is blocked: its slot is
given to another worker. So nested tasks end whatever their depth, on one worker too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scaler.client import events as ev
from scaler.client.future import Future
from scaler.protocol.messages import ERROR, VALUES_EACH, u32
from scaler.protocol.results import SpanResult
from scaler.serialize.call import AnySerializer, decode_call
from scaler.transport import Address, Security, load_or_create
from scaler.worker import context, run
from scaler.worker.context import TaskContext

if TYPE_CHECKING:
    from scaler.client.client import Client
    from scaler.client.link import Link
    from scaler.client.resolve import Reactor

#: rows run inside each other's waits, at most; beyond, a waiting worker gives its slot away
MAX_DEPTH = 24

current = context.current


def surrounding_address() -> str | None:
    """The address of the cluster around the running task, else that in SCALER_ADDRESS; None if there is neither."""
    address = (context.surroundings() or {}).get("address") or os.environ.get("SCALER_ADDRESS")
    return Address.parse(address).url if address else None


def where(address: str | None, security: Security | None) -> tuple[Address, Security]:
    """The address and keys a new client uses."""
    surroundings = context.surroundings() or {}
    if address is None:
        address = surrounding_address()
        if address is None:
            raise ValueError(
                "no scheduler address: give Client(address), set SCALER_ADDRESS, or start a local cluster with "
                "scaler.SchedulerClusterCombo() or scaler.Executor()"
            )
    target = Address.parse(address)
    if security is None:
        security = (
            Security.from_env(surroundings.get("security", {})) or Security.from_env(os.environ) or load_or_create()
        )
    return target, security


_shared: dict[tuple[int, str, Any], Client] = {}
_shared_lock = threading.Lock()


def shared_client(address: str, serializer: AnySerializer | None) -> Client:
    """The client that a pickled one becomes: one for each process and address."""
    from scaler.client.client import Client

    key = (os.getpid(), address, serializer)
    with _shared_lock:
        client = _shared.get(key)
        if client is None or client.closed:
            client = _shared[key] = Client(address, serializer=serializer)
        return client


def note_wait(future: Future) -> None:
    """A task waits for this future in a way that can't be helped (`concurrent.futures.wait` and such)."""
    context.blocked()
    future.add_done_callback(lambda _: context.unblocked())


def wait(link: Link, reactor: Reactor, token: Any, done: Callable[[], bool], timeout: float | None) -> float | None:
    """Wait inside a task until `done()`; returns what is left of `timeout`."""
    task = current()
    assert task is not None
    deadline = None if timeout is None else time.monotonic() + timeout
    run.give_back_unbegun()
    ticket = reactor.open_ticket(token)
    ticket.refused = task.depth >= MAX_DEPTH
    blocked = False
    try:
        while not done() and link.failure is None:
            if ticket.granted:
                _run_granted(link, reactor, ticket.granted.pop(0), task)
                continue
            if not ticket.asked and not ticket.refused:
                ticket.asked = True
                link.tell(ev.Claim(token))
            if ticket.refused and not ticket.asked and not blocked:
                blocked = True
                context.blocked()
            with ticket.changed:
                if not ticket.granted and not done():
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    ticket.changed.wait(1.0 if left is None else min(left, 1.0))
    finally:
        for granted in reactor.close_ticket(token):
            reactor.resubmit(granted)
        if blocked:
            context.unblocked()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _run_granted(link: Link, reactor: Reactor, granted: ev.Granted, outer: TaskContext) -> None:
    """Run a row that was claimed, in this thread, and resolve its token."""
    task, row = granted.task, granted.row
    function = granted.recipe.function
    kwargs: dict[str, Any] = {}
    context_of_row = TaskContext(outer.client, task.batch + row, task.name, task.priority, 0, outer.stream)
    try:
        args, payload = reactor.call_of(granted)
        if payload:
            values = [reactor.value_of(need) for need in granted.needs]
            args, kwargs = decode_call(payload, values, reactor.serializer)
        outcome, body = run.run_inline(context_of_row, function, args, kwargs, reactor.serializer)
    except BaseException as error:
        from scaler.serialize.record import exception_record

        outcome, body = ERROR, exception_record(error, task.name)
    if outcome != ERROR:
        outcome = VALUES_EACH
    span = SpanResult(task.batch, row, row + 1, outcome, 0, 0, u32([len(body)]), body)
    reactor.resolve([granted.token], span, task)
