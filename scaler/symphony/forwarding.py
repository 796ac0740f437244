"""A thin worker: it hands the functions of its rows to the session process, and waits.

What the service sees is what it has always seen: a pickled (function, *arguments) whose function it calls, and whose
value it pickles. When the container is lost this process ends, too: to the agent, a worker was lost with its row.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from scaler.protocol import failures
from scaler.protocol.error_record import ErrorKind, ErrorRecord
from scaler.serialize import payload
from scaler.symphony import frames, there
from scaler.worker import context, elsewhere
from scaler.worker.context import TaskContext
from scaler.worker.inputs import Failed, undecodable

#: what a worker exits with whose container was lost
CONTAINER_LOST = 75

#: what clients inside of a row need to join the cluster
_PASSED_ON = ("address", "security", "limit")


def install(path: str) -> None:
    """Have rows of this worker run in Symphony; `path` is the session process's socket. See `--preload`."""
    cloudpickle.register_pickle_by_value(there)
    elsewhere.install(Forwarding(path).run)


class Forwarding:
    """A worker's connection to the session process. Main thread only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._token = b""
        #: where rows say that they wait, as the container reaches it
        self._door: tuple[str, int] = ("", 0)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function in the service's container; blocks until it is over. Raises what it raises, or Failed."""
        task = context.current()
        assert task is not None
        call = payload.dumps((function, args, kwargs))
        kind, body = self._answer(self._send(call, task))
        if kind == frames.LOST:
            _end(body.decode())
        if kind == frames.RAISED:
            raise pickle.loads(body)
        return _value(pickle.loads(body), task.name)

    def _send(self, call: bytes, task: TaskContext) -> socket.socket:
        """Send a call over the connection that there is; over a new one if its other end is gone since the last row."""
        while True:
            is_new = self._socket is None
            sock = self._connected(task)
            try:
                frames.send(sock, frames.CALL, cloudpickle.dumps((there.run_there, call, self._about(task))))
                return sock
            except OSError as error:
                if is_new:
                    _end(f"the process with the session has ended: {error}")
                sock.close()
                self._socket = None

    def _connected(self, task: TaskContext) -> socket.socket:
        if self._socket is None:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(self._path)
                self._token = secrets.token_bytes(frames.TOKEN_BYTES)
                frames.send(sock, frames.TOKEN, self._token)
                _, door = frames.receive(sock)
            except (OSError, EOFError) as error:
                _end(f"the process with the session can't be reached, for {task.name}: {str(error) or 'it ended'}")
            host, _, port = door.decode().rpartition(":")
            self._door = host, int(port)
            self._socket = sock
        return self._socket

    def _about(self, task: TaskContext) -> bytes:
        known = context.surroundings() or {}
        surroundings = {name: known[name] for name in _PASSED_ON if name in known}
        named = task.client, task.row, task.name
        parts = (*named, task.priority, 0, False, task.serializer, task.root, task.nesting, task.claims_below)
        return payload.dumps((surroundings, self._door, self._token, parts))

    def _answer(self, sock: socket.socket) -> tuple[bytes, bytes]:
        """What became of the call; meanwhile its words go on to the agent."""
        wait = object()
        try:
            while True:
                try:
                    kind, body = frames.receive(sock)
                except (OSError, EOFError):
                    _end("the process with the session has ended")
                if kind == frames.BLOCKED:
                    context.blocked(wait)
                elif kind == frames.UNBLOCKED:
                    context.unblocked(wait)
                else:
                    return kind, body
        finally:
            context.unblocked(wait)


def _value(said: Any, name: str) -> Any:
    """What the service returned for a row. Raises Failed."""
    try:
        how, *rest = said
        if how == there.VALUE:
            return payload.loads(rest[0])
        if how == there.RECORD:
            raise Failed(rest[0])
        if how == there.UNENCODABLE:
            raise Failed(failures.unencodable(name, rest[0]).encode())
        type_name, message, traceback, pickled = rest
    except Failed:
        raise
    except Exception as error:
        raise undecodable("the result of", name, error) from None
    raise Failed(ErrorRecord(ErrorKind.RAISED, message, name, type_name, traceback, pickled).encode())


def _end(reason: str) -> None:
    sys.stderr.write(f"Symphony: {reason}\n")
    sys.stderr.flush()
    os._exit(CONTAINER_LOST)
