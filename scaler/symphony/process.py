"""The session process: `soamapi` with its threads, apart from the agent, which forks; started again if it dies.

    agent ──stdin: options, then its life──► supervisor ──fork──► session process: a thread for each thin worker,
                                                                  one for each word at the side door

The listening sockets are the supervisor's, so a session process that dies is followed by one at the same places.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from scaler.common.process_limits import allow_descriptors, words_of
from scaler.symphony import frames
from scaler.symphony.session import Session, SessionOptions
from scaler.transport.notices import Notices

logger = logging.getLogger("scaler.symphony")

#: seconds from a session process's death to the next one
PAUSE = 1.0
#: seconds that closing a session may take
GRACE = 5.0


def main(direct_log: Callable[[str, str], None]) -> None:
    """Supervise until standard input ends, whose first line has the options; `direct_log` has its log go there, too.

    One line goes back to the agent: it is empty, or says why there is no session.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the agent decides when this ends
    with open(0, "rb", buffering=0, closefd=False) as agent:
        told = json.loads(agent.readline())
    direct_log(told["log_level"], told["log_path"])
    allow_descriptors(told["descriptors"])
    try:
        _supervise(told)
    finally:  # the agent does that too, unless it was killed
        shutil.rmtree(told["directory"], ignore_errors=True)


def _supervise(told: dict[str, Any]) -> NoReturn:
    """Have a session process until the agent has ended, or there can be none."""
    workers = socket.socket(fileno=told["descriptor"])
    door = _side_door()
    place = f"{told['host']}:{door.getsockname()[1]}"
    options, is_first = SessionOptions(**told["session"]), True
    while True:
        life, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _serve(workers, door, place, life, options, is_first)
        os.close(life)
        if _agent_ended(pid):
            os.close(ours)
            _end(pid)
        os.close(ours)
        _, status = os.waitpid(pid, 0)
        if is_first and os.waitstatus_to_exitcode(status) == 1:
            sys.exit(1)  # it has said why
        is_first = False
        logger.warning(
            "Symphony: the process with the session ended with %d; another is started",
            os.waitstatus_to_exitcode(status),
        )
        if select.select([0], [], [], PAUSE)[0]:
            sys.exit(0)


def _side_door() -> socket.socket:
    """Listens at all addresses of this host, those of IPv6 as well: containers come by the one to the scheduler."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _agent_ended(pid: int) -> bool:
    """Wait for the end of the agent, or of this process; which of them it was is returned."""
    child = os.pidfd_open(pid)
    try:
        return 0 in select.select([0, child], [], [])[0]
    finally:
        os.close(child)


def _end(pid: int) -> NoReturn:
    child = os.pidfd_open(pid)
    if not select.select([child], [], [], GRACE)[0]:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.exit(0)


def _serve(
    workers: socket.socket, door: socket.socket, place: str, life: int, options: SessionOptions, is_first: bool
) -> NoReturn:
    try:
        import soamapi

        session = Session(soamapi, options)
        if is_first:
            session.open()
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        _say(f"there is no session of the Symphony service {options.service}: {words}", is_first)
        time.sleep(0 if is_first else PAUSE)
        os._exit(1)
    _say("", is_first)
    lines = Lines(session, place)
    threading.Thread(target=lines.accept_workers, args=(workers,), daemon=True).start()
    threading.Thread(target=lines.accept_words, args=(door,), daemon=True).start()
    os.read(life, 1)
    session.close()
    os._exit(0)


def _say(text: str, is_first: bool) -> None:
    if is_first:
        with contextlib.suppress(OSError):
            os.write(int(os.environ["SCALER_SYMPHONY_REPORT"]), text.encode() + b"\n")
    elif text:
        logger.warning("Symphony: %s", text)


class Lines:
    """The connections to thin workers."""

    def __init__(self, session: Session, place: str) -> None:
        self._session = session
        #: of the side door
        self._place = place
        #: of workers, by their tokens
        self._workers: dict[bytes, tuple[socket.socket, threading.Lock]] = {}
        self._notices = Notices(logger)

    def accept_workers(self, listener: socket.socket) -> None:
        """Serve thin workers; never returns."""
        self._accept(listener, self._serve_worker)

    def accept_words(self, listener: socket.socket) -> None:
        """Pass on what rows say at the side door; never returns."""
        self._accept(listener, self._pass_on)

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> NoReturn:
        """Serve who comes, each in a thread; while there are no descriptors or threads left they wait."""
        while True:
            try:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()
            except (OSError, RuntimeError) as error:
                self._notices.warn("Symphony: workers have to wait: %s", words_of(error))
                time.sleep(PAUSE)

    def _serve_worker(self, sock: socket.socket) -> None:
        token, lock = b"", threading.Lock()
        with sock, contextlib.suppress(OSError, EOFError):
            _, token = frames.receive(sock)
            self._workers[token] = sock, lock
            with lock:
                frames.send(sock, frames.DOOR, self._place.encode())
            try:
                while True:
                    _, payload = frames.receive(sock)
                    kind, body = self._session.call(payload)
                    with lock:
                        frames.send(sock, kind, body)
            finally:
                self._workers.pop(token, None)

    def _pass_on(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError, EOFError):
            sock.settimeout(GRACE)
            said = frames.exactly(sock, frames.TOKEN_BYTES + 1)
            found: Any = self._workers.get(said[:-1])
            if found is not None and said[-1:] in (frames.BLOCKED, frames.UNBLOCKED):
                worker, lock = found
                with lock:
                    frames.send(worker, said[-1:])
            sock.sendall(b"\0")
