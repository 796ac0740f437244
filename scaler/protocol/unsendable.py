"""What is said in the place of a message that can't be sent, as it is too large or the codec does not take it.

It has the place of that message in its session, so nothing is missing there, and nothing is tried again and again.
"""

from collections.abc import Callable, Iterator

from scaler.protocol import failures
from scaler.protocol.messages import CANCELLED, ERROR, FILED, STORED, Ack, Message, TaskOutput, TaskResult, u32
from scaler.protocol.results import ResultBuilder, SpanResult, spans_of

#: messages that users' code may make too large
OF_TASKS = frozenset({TaskResult, TaskOutput})
#: outcomes whose payloads only say where values are, or that there are none
_SHORT = frozenset({CANCELLED, STORED, FILED})


def send_instead(message: Message, error: Exception, send: Callable[[Message], None]) -> str:
    """Send what can be sent in the place of a message that has met `error`; words for the log, in one line."""
    problem = (str(error).splitlines() or [type(error).__name__])[0]
    for other, words in _instead_of(message, problem):
        try:
            send(other)
        except Exception:  # the next one says less
            continue
        return f"{words}: {problem}"
    raise error


def _instead_of(message: Message, problem: str) -> Iterator[tuple[Message, str]]:
    """What may be said in the place of a message, the best first, and words for the log."""
    if isinstance(message, TaskResult):
        failed, rows = _failed(message, problem)
        yield failed, f"results of client {message.client} can't be sent, and {rows} rows end with an error"
    if isinstance(message, TaskOutput):
        yield Ack(), f"what {message.name[:100]} has said can't be sent, and is left out"
    else:
        yield Ack(), f"a {type(message).__name__} can't be sent, and is left out"


def _failed(message: TaskResult, problem: str) -> tuple[TaskResult, int]:
    """The same rows, with an error where there was a value or another error; and how many those are."""
    builder, count = ResultBuilder(message.client), 0
    for span in spans_of(message):
        if span.outcome in _SHORT:
            builder.add(span)
            continue
        rows = span.hi - span.lo
        record = failures.unsendable(len(span.body) // rows, problem).encode()
        took, sizes = span.duration // rows, u32([len(record)])
        for row in range(span.lo, span.hi):
            builder.add(SpanResult(span.batch, row, row + 1, ERROR, took, 0, sizes, record))
        count += rows
    return builder.build(), count
