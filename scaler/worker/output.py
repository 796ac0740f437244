"""`sys.stdout` and `sys.stderr` of a worker: to the agent's own, or to the client that wants to see its tasks print.

Lines are sent when they are complete. The rest of a line is sent when another task writes, before the results of its
row go out, or when it has become long, so no row pays for asking whether it has printed. What is long goes in pieces,
each of which fits into a message.
"""

from __future__ import annotations

import codecs
import io
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from scaler.worker.context import TaskContext, innermost, is_logged
from scaler.worker.last_lines import LastLines
from scaler.worker_protocol import messages

#: characters of a line that is not complete, after which it is sent all the same; a piece has no more
LONGEST = 1 << 16


class OutputStream(io.TextIOBase):
    """One of the two streams."""

    def __init__(
        self, plain: TextIO, number: int, send: Callable[[messages.FromWorker], None], kept: LastLines | None = None
    ) -> None:
        """`plain` writes to the file descriptor `number`, 1 or 2; what is written is `kept`, too."""
        self._keep = kept.add if kept is not None else None
        self._plain = plain
        self._number = number
        self._send: Callable[[messages.FromWorker], None] | None = send
        self._lock = threading.RLock()
        #: the beginning of a line, and the task that wrote it
        self._text: list[str] = []
        #: its characters
        self._size = 0
        self._task: TaskContext | None = None
        #: something was written since the last flush
        self.dirty = False
        self._binary = _Binary(self, plain)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._keep is not None:
            self._keep(self._number, text)
        task = innermost()
        if task is None or not (task.stream or is_logged()) or self._send is None:
            self.dirty = True
            return self._plain.write(text)
        with self._lock:
            if self._task != task:
                self.flush()
            self._task = task
            self.dirty = True
            end = text.rfind("\n") + 1
            if end:
                lines = "".join([*self._text, text[:end]])
                self._forget()
                self._tell(lines)
            if end < len(text):
                self._text.append(text[end:])
                self._size += len(text) - end
                if self._size >= LONGEST:
                    self._send_rest()
        return len(text)

    def keep(self, text: str) -> None:
        """Something was written past this stream."""
        if self._keep is not None:
            self._keep(self._number, text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        self.write("".join(lines))

    def flush(self) -> None:
        """Send or write what waits."""
        with self._lock:
            self.dirty = False
            if self._text and self._task is not None and self._send is not None:
                self._send_rest()
        self._plain.flush()

    def detach_from_agent(self) -> None:
        """Write plainly from now on: this is a process that a task forked."""
        self._send = self._keep = None
        self._lock = threading.RLock()
        self._forget()

    def _send_rest(self) -> None:
        text = "".join(self._text)
        self._forget()
        self._tell(text)

    def _forget(self) -> None:
        self._text.clear()
        self._size = 0

    def _tell(self, text: str) -> None:
        assert self._task is not None
        assert self._send is not None
        if len(text) > LONGEST:
            for at in range(0, len(text), LONGEST):
                self._tell(text[at : at + LONGEST])
            return
        self._send(messages.Output(self._task.client, self._task.row, self._number, self._task.name, text))

    @property
    def buffer(self) -> io.BufferedIOBase:
        """The stream for bytes."""
        return self._binary

    def streams(self) -> bool:
        """Say whether what is written now goes to a client."""
        task = innermost()
        return task is not None and (task.stream or is_logged()) and self._send is not None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._plain.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._plain.errors

    @property
    def name(self) -> str:
        return "<stdout>" if self._number == 1 else "<stderr>"

    @property
    def line_buffering(self) -> bool:
        return True

    def reconfigure(self, **_options: Any) -> None:
        """Accept the options of a usual stream; encoding and buffering stay."""

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return self._plain.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.flush()


class _Binary(io.BufferedIOBase):
    """Takes bytes for an OutputStream."""

    def __init__(self, text: OutputStream, plain: TextIO) -> None:
        self._text = text
        self._plain = plain
        self._decoder = codecs.getincrementaldecoder(plain.encoding or "utf-8")("replace")

    def write(self, data: Any) -> int:
        if self._text.streams():
            self._text.write(self._decoder.decode(bytes(data)))
        else:
            self._text.keep(self._decoder.decode(bytes(data)))
            self._plain.flush()
            self._plain.buffer.write(data)
            self._plain.buffer.flush()
        return memoryview(data).nbytes

    def flush(self) -> None:
        self._text.flush()

    def fileno(self) -> int:
        return self._text.fileno()

    def isatty(self) -> bool:
        return self._text.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self.flush()
