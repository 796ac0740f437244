"""The last lines that tasks of this worker have printed, kept for whoever opens the worker's page.

Nothing is sent until somebody asks, and asking works while a task runs. What programs that tasks start print, and
libraries that write past Python, is not here: it goes to the agent's own output.
"""

from __future__ import annotations

from collections import deque

#: texts that are kept (print makes two of a line), characters of each, and lines that are told
_TEXTS, _LONGEST, LINES = 128, 2048, 40


class LastLines:
    """Texts in the order in which they were written. Any thread may call it."""

    def __init__(self) -> None:
        self._texts: deque[tuple[int, str]] = deque(maxlen=_TEXTS)

    def add(self, stream: int, text: str) -> None:
        """Something was written to STDOUT or STDERR."""
        self._texts.append((stream, text if len(text) <= _LONGEST else text[-_LONGEST:]))

    def told(self) -> str:
        r"""The last lines, each behind the number of its stream.

        >>> kept = LastLines()
        >>> for stream, text in ((1, "one"), (2, "oh\n"), (1, " and two\nthr")):
        ...     kept.add(stream, text)
        >>> kept.told()
        '2oh\n1one and two\n1thr'
        """
        lines: list[str] = []
        begun: dict[int, str] = {}
        for stream, text in self._texts.copy():
            *whole, begun[stream] = (begun.get(stream, "") + text).split("\n")
            lines += [f"{stream}{line}" for line in whole]
        lines += [f"{stream}{line}" for stream, line in begun.items() if line]
        return "\n".join(lines[-LINES:])
