"""One session of a Symphony service: what is sent becomes its tasks, and a session that ends is followed by another.

Used by threads that each wait for one task; Symphony's own threads call back.
"""

from __future__ import annotations

import array
import logging
import pickle
import queue
import threading
from dataclasses import dataclass
from typing import Any

from scaler.symphony import frames

logger = logging.getLogger("scaler.symphony")

#: pauses between attempts to open a session, seconds: the first, and the longest
FIRST_PAUSE, LAST_PAUSE = 0.2, 30.0

#: what became of a task: a kind of frame, and its body
Outcome = tuple[bytes, bytes]


@dataclass(frozen=True)
class SessionOptions:
    """Which service, as whom."""

    service: str
    user: str
    password: str
    #: one that the application's profile has
    session_type: str
    session_name: str


class Session:
    """The session that there is. Any thread."""

    def __init__(self, soamapi: Any, options: SessionOptions) -> None:
        self._soamapi = soamapi
        self._options = options
        self._message, self._callback = _classes(soamapi)
        #: guards what is below, and is held while a task is sent: its answer may come before its id is known
        self._lock = threading.Lock()
        self._connection: Any = None
        self._session: Any = None
        #: what the current session's callbacks carry
        self._number = 0
        #: who waits for which task of the current session
        self._waiting: dict[Any, queue.SimpleQueue[Outcome]] = {}
        self._is_closed = threading.Event()
        #: the last failure to open that was logged
        self._complaint = ""
        soamapi.initialize()

    def open(self) -> None:
        """Open a session. Raises whatever soamapi raises."""
        with self._lock:
            self._open()

    def call(self, payload: bytes) -> Outcome:
        """Send a task and wait for its end."""
        answer: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        pause = FIRST_PAUSE
        while not self._is_closed.is_set():
            number = 0  # of the session that it is sent in: by the time that it fails there may be another one
            try:
                with self._lock:
                    if self._session is None:
                        self._open()
                    number = self._number
                    attributes = self._soamapi.TaskSubmissionAttributes()
                    attributes.set_task_input(self._message(payload))
                    task = self._session.send_task_input(attributes)
                    self._waiting[task.get_id()] = answer
                self._complaint = ""
                return answer.get()
            except Exception as error:  # the task was not sent: nothing is lost
                self._complain(error)
                self.ended(number, f"the session ended: {_words(error)}")
            self._is_closed.wait(pause)
            pause = min(2 * pause, LAST_PAUSE)
        return frames.LOST, b"the session is being closed"

    def answered(self, number: int, handle: Any) -> None:
        """Called by Symphony: a task is over."""
        try:
            if handle.is_successful():
                output = self._message()
                handle.populate_task_output(output)
                outcome = frames.VALUE, output.get_payload()
            else:
                outcome = self._failed(handle.get_exception())
        except Exception as error:
            outcome = frames.LOST, f"its output can't be read: {_words(error)}".encode()
        with self._lock:
            answer = self._waiting.pop(handle.get_id(), None) if number == self._number else None
        if answer is not None:
            answer.put(outcome)

    def ended(self, number: int, reason: str) -> None:
        """Called by Symphony, or when nothing can be sent: this session is over, and all its tasks with it."""
        with self._lock:
            if number != self._number or self._session is None:
                return
            session, self._session = self._session, None
            waiting, self._waiting = self._waiting, {}
        self._quietly(session.close)
        logger.warning("Symphony: %s; %d tasks run again in a new one", reason, len(waiting))
        for answer in waiting.values():
            answer.put((frames.LOST, reason.encode()))

    def close(self) -> None:
        """End the session in order."""
        self._is_closed.set()
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                self._quietly(session.close, self._soamapi.SessionCloseFlags.DESTROY_ON_CLOSE)
            if self._connection is not None:
                self._quietly(self._connection.close)
            self._quietly(self._soamapi.uninitialize)

    def _open(self) -> None:
        soamapi, options = self._soamapi, self._options
        if self._connection is not None:
            self._quietly(self._connection.close)
            self._connection = None
        connection = soamapi.connect(options.service, soamapi.DefaultSecurityCallback(options.user, options.password))
        self._connection = connection
        self._number += 1
        attributes = soamapi.SessionCreationAttributes()
        attributes.set_session_type(options.session_type)
        attributes.set_session_name(options.session_name)
        attributes.set_session_flags(soamapi.SessionFlags.PARTIAL_ASYNC)
        attributes.set_session_callback(self._callback(self, self._number))
        self._session = connection.create_session(attributes)
        logger.info("Symphony: session %s of %s is open", self._session.get_id(), options.service)

    def _failed(self, exception: Any) -> Outcome:
        """The service's code raised something, or the container is lost."""
        inner = None
        try:
            inner = exception.get_embedded_exception()
            if isinstance(inner, BaseException) and not isinstance(inner, self._soamapi.SoamException):
                return frames.RAISED, pickle.dumps(inner)
        except Exception:
            pass  # none is embedded, or it can't be pickled: its words go on
        return frames.LOST, f"the container was lost: {_words(exception)}".encode()

    def _complain(self, error: Exception) -> None:
        words = _words(error)
        if words != self._complaint:
            self._complaint = words
            logger.warning("Symphony: %s; trying again until there is a session of %s", words, self._options.service)

    @staticmethod
    def _quietly(close: Any, *args: Any) -> None:
        try:
            close(*args)
        except Exception as error:
            logger.debug("Symphony: %s", _words(error))


def _words(error: Any) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _classes(soamapi: Any) -> tuple[type[Any], type[Any]]:
    """The classes that have to be derived from soamapi's: the message of the documents, and the callback."""

    class Message(soamapi.Message):  # type: ignore[misc]
        def __init__(self, payload: bytes = b"") -> None:
            super().__init__()
            self._payload = payload

        def get_payload(self) -> bytes:
            return self._payload

        def on_serialize(self, stream: Any) -> None:
            data = array.array("b", self._payload)
            stream.write_byte_array(data, 0, len(data))

        def on_deserialize(self, stream: Any) -> None:
            self._payload = memoryview(stream.read_byte_array("b")).cast("B").tobytes()

    class Callback(soamapi.SessionCallback):  # type: ignore[misc]
        def __init__(self, session: Session, number: int) -> None:
            super().__init__()
            self._told = session
            self._number = number

        def on_response(self, handle: Any) -> None:
            self._told.answered(self._number, handle)

        def on_exception(self, exception: Any) -> None:
            self._told.ended(self._number, f"the session ended: {_words(exception)}")

    return Message, Callback
