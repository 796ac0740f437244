"""A row inside the container of a service: as in a worker, its clients know the cluster, and that they are in a task.

A client that waits for a task of its own runs that itself if nobody has begun it. If somebody has, the row says at the
side door of the session process that it is blocked, and its worker's slot goes to another row. Where the side door is
out of reach, it goes on without.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import sys

from scaler.protocol import failures
from scaler.serialize import module_globals, payload
from scaler.serialize.record import exception_record
from scaler.symphony import frames
from scaler.worker import context
from scaler.worker.context import TaskContext
from scaler.worker.inputs import undecodable
from scaler.worker_protocol.messages import Blocked, FromWorker

#: seconds that one word at the side door may take
DOOR_PATIENCE = 2.0

#: doors that could not be reached
_out_of_reach: set[tuple[str, int]] = set()

#: how a row went; `there` has all that a thin worker knows
VALUE, RECORD = "value", "record"


def run(call: bytes, about: bytes) -> tuple[str, bytes]:
    """Run a pickled (function, args, kwargs); returns (VALUE, pickled value) or (RECORD, error record)."""
    surroundings, door, token, parts = pickle.loads(about)
    task = TaskContext(*parts)
    context.set_surroundings(surroundings)
    context.install(lambda: task, lambda: task.root, lambda message: _tell(door, token, message), lambda: None)
    try:
        try:
            function, args, kwargs = payload.loads(call)
        except Exception as error:
            return RECORD, undecodable("the function or an argument of", task.name, error).record
        value = function(*args, **kwargs)
        try:
            return VALUE, payload.dumps(value)
        except Exception as error:
            return RECORD, failures.unencodable(task.name, str(error)).encode()
    except BaseException as error:
        return RECORD, exception_record(error, task.name)
    finally:
        context.uninstall()
        module_globals.enter(None)


def _tell(door: tuple[str, int], token: bytes, message: FromWorker) -> None:
    if door in _out_of_reach:
        return
    word = frames.BLOCKED if isinstance(message, Blocked) else frames.UNBLOCKED
    try:
        with contextlib.closing(socket.create_connection(door, DOOR_PATIENCE)) as sock:
            sock.sendall(token + word)
            frames.exactly(sock, 1)
    except (OSError, EOFError) as error:
        _out_of_reach.add(door)
        print(f"a task that waits keeps its slot: {door[0]}:{door[1]} is out of reach: {error}", file=sys.stderr)  # noqa: T201
