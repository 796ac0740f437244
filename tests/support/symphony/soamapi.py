"""Stands in for Symphony's Python module: sessions whose tasks run in containers, processes of their own.

Messages cross as bytes that `on_serialize` has written. Services are files `NAME.py` in $SOAMAPI_DIRECTORY, each
with a class ServiceContainer. For tests: a file `close` there ends the sessions that there are.
"""

import itertools
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

CONTAINERS = 8
_HEAD = struct.Struct("<Q")
_numbers = itertools.count(1)


class SoamException(Exception):
    def __init__(self, text, embedded=None):
        super().__init__(text)
        self._embedded = embedded

    def get_embedded_exception(self):
        return self._embedded


class Message:
    def on_serialize(self, stream):
        raise NotImplementedError

    def on_deserialize(self, stream):
        raise NotImplementedError


class Stream:
    """What messages are written to and read from."""

    def __init__(self, data=b""):
        self.data = bytearray(data)

    def write_byte_array(self, values, offset, length):
        part = values[offset : offset + length].tobytes()
        self.data += _HEAD.pack(len(part)) + part

    def read_byte_array(self, kind):
        assert kind == "b"
        (size,) = _HEAD.unpack_from(self.data)
        part = bytes(self.data[_HEAD.size : _HEAD.size + size])
        del self.data[: _HEAD.size + size]
        return part


def written(message):
    stream = Stream()
    message.on_serialize(stream)
    return bytes(stream.data)


class ServiceContainer:
    pass


class SessionCallback:
    pass


class DefaultSecurityCallback:
    def __init__(self, user, password):
        self.user = user


class SessionFlags:
    PARTIAL_ASYNC = 1
    RECEIVE_SYNC = 2


class SessionCloseFlags:
    DESTROY_ON_CLOSE = 1


class SessionCreationAttributes:
    def set_session_type(self, value):
        self.type = value

    def set_session_name(self, value):
        self.name = value

    def set_session_flags(self, value):
        self.flags = value

    def set_session_callback(self, value):
        self.callback = value


class TaskSubmissionAttributes:
    def set_task_input(self, message):
        self.message = message


class TaskInput:
    def __init__(self, number):
        self._number = number

    def get_id(self):
        return self._number


class TaskOutputHandle:
    def __init__(self, number, data, exception):
        self._number, self._data, self._exception = number, data, exception

    def get_id(self):
        return self._number

    def is_successful(self):
        return self._exception is None

    def populate_task_output(self, message):
        message.on_deserialize(Stream(self._data))

    def get_exception(self):
        return self._exception


def directory():
    return Path(os.environ["SOAMAPI_DIRECTORY"])


def initialize():
    pass


def uninitialize():
    pass


def connect(service, security):
    if not (directory() / f"{service}.py").exists():
        raise SoamException(f"application <{service}> is not registered")
    return Connection(service)


class Connection:
    def __init__(self, service):
        self._service = service

    def get_id(self):
        return 1

    def create_session(self, attributes):
        assert attributes.flags == SessionFlags.PARTIAL_ASYNC
        return Session(self._service, attributes.callback)

    def close(self):
        pass


class Session:
    def __init__(self, service, callback):
        self._service, self._callback = service, callback
        self._number = next(_numbers)
        self._is_open = True
        self._idle = []
        self._room = threading.Semaphore(CONTAINERS)
        threading.Thread(target=self._watch, daemon=True).start()

    def get_id(self):
        return self._number

    def send_task_input(self, attributes):
        if not self._is_open:
            raise SoamException(f"session {self._number} is closed")
        task = TaskInput(str(next(_numbers)))
        threading.Thread(target=self._run, args=(task.get_id(), written(attributes.message)), daemon=True).start()
        return task

    def close(self, flags=0):
        self._is_open = False
        for container in self._idle:
            container.end()

    def _watch(self):
        pause = threading.Event()
        while self._is_open:
            if (directory() / "close").exists():
                (directory() / "close").unlink()
                self._is_open = False
                self._callback.on_exception(SoamException("the session was aborted by the administrator"))
            pause.wait(0.02)

    def _run(self, number, data):
        with self._room:
            container = self._idle.pop() if self._idle else Container(self._service)
            try:
                output, error = container.invoke(data)
                self._idle.append(container)
            except (EOFError, OSError):
                code = container.end()
                output, error = None, SoamException(f"service instance exited abnormally with {code}")
        if self._is_open:
            self._callback.on_response(TaskOutputHandle(number, output, error))


class Container:
    """A service instance."""

    def __init__(self, service):
        self._socket, its = socket.socketpair()
        file = directory() / f"{service}.py"
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(file), str(its.fileno())], pass_fds=[its.fileno()]
        )
        its.close()

    def invoke(self, data):
        self._socket.sendall(_HEAD.pack(len(data)) + data)
        kind, body = _frame(self._socket)[:1], None
        body = _frame(self._socket)
        if kind == b"O":
            return body, None
        text, embedded = pickle.loads(body)
        return None, SoamException(text, embedded)

    def end(self):
        self._socket.close()
        return self._process.wait()


def _frame(sock):
    (size,) = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return _exactly(sock, size)


def _exactly(sock, size):
    data = b""
    while len(data) < size:
        got = sock.recv(size - len(data))
        if not got:
            raise EOFError
        data += got
    return data


class TaskContext:
    def __init__(self, data):
        self._data = data
        self.output = None

    def populate_task_input(self, message):
        message.on_deserialize(Stream(self._data))

    def set_task_output(self, message):
        self.output = written(message)


def _serve(file, descriptor):
    """Be a container until the session is gone."""
    sys.modules["soamapi"] = sys.modules["__main__"]
    names = {"__name__": "service"}
    exec(compile(Path(file).read_text(), file, "exec"), names)
    container = names["ServiceContainer"]()
    container.on_create_service(None)
    container.on_session_enter(None)
    sock = socket.socket(fileno=descriptor)
    try:
        while True:
            task = TaskContext(_frame(sock))
            try:
                container.on_invoke(task)
                kind, body = b"O", task.output
            except Exception as error:
                kind, body = b"E", pickle.dumps((str(error), error))
            sock.sendall(_HEAD.pack(1) + kind + _HEAD.pack(len(body)) + body)
    except (EOFError, OSError):
        container.on_session_leave()
        container.on_destroy_service()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
