"""Reading and building `TaskResult`s span by span; agents and the scheduler both do."""

import pickle
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from scaler.protocol.messages import SIZE, STORED, VALUES_EACH, VALUES_LIST, Frame, TaskResult, sizes_of, u32

NO_SIZES = u32()


class SpanResult(NamedTuple):
    """How the rows [lo, hi) of a batch ended."""

    batch: int
    lo: int
    hi: int
    outcome: int
    #: microseconds, all rows together
    duration: int
    #: bytes, 0 when not profiled
    peak: int
    sizes: "array[int]"
    body: Frame


def spans_of(message: TaskResult) -> Iterator[SpanResult]:
    """The spans of a result message, each with its part of the payload."""
    sizes, pairs = message.sizes, message.spans
    body = message.bodies[0] if message.bodies else b""
    if len(message.batches) == 1:
        yield SpanResult(
            message.batches[0],
            pairs[0],
            pairs[1],
            message.outcomes[0],
            message.durations[0],
            message.peaks[0],
            sizes,
            body,
        )
        return
    view = memoryview(body)
    at = offset = 0
    for i, batch in enumerate(message.batches):
        lo, hi, outcome = pairs[2 * i], pairs[2 * i + 1], message.outcomes[i]
        count = sizes_of(outcome, hi - lo)
        part = sizes[at : at + count]
        at += count
        end = offset + (part[0] if count == 1 else sum(part))
        yield SpanResult(batch, lo, hi, outcome, message.durations[i], message.peaks[i], part, view[offset:end])
        offset = end


def values_of(span: SpanResult) -> Iterator[Frame]:
    """The payloads of a VALUES_EACH span, row by row; of a STORED one what stands for them."""
    if len(span.sizes) == 1:
        yield span.body
        return
    view, at = memoryview(span.body), 0
    for size in span.sizes:
        yield view[at : at + size]
        at += size


def stored_sizes(span: SpanResult) -> Iterator[int]:
    """The sizes of the stored values of a STORED span, bytes, row by row."""
    for (size,) in SIZE.iter_unpack(span.body):
        yield size


def part_of(span: SpanResult, lo: int, hi: int) -> SpanResult:
    """The rows [lo, hi) of a span, without what its other rows took."""
    batch, first, _, outcome, _, _, sizes, body = span
    if outcome == VALUES_LIST:
        body = pickle.dumps(pickle.loads(body)[lo - first : hi - first], 5)
        return SpanResult(batch, lo, hi, outcome, 0, 0, u32([len(body)]), body)
    if outcome == VALUES_EACH or outcome >= STORED:
        start, end = sum(sizes[: lo - first]), sum(sizes[: hi - first])
        return SpanResult(batch, lo, hi, outcome, 0, 0, sizes[lo - first : hi - first], memoryview(body)[start:end])
    return SpanResult(batch, lo, hi, outcome, 0, 0, sizes, body)


#: payload bytes after which a `TaskResult` is sent and another one begun
FULL = 8 << 20


class ResultBuilder:
    """Collects spans of one client into one `TaskResult`."""

    __slots__ = ("_bodies", "message", "size")

    def __init__(self, client: int) -> None:
        self.message = TaskResult(client)
        self._bodies: list[Frame] = []
        #: bytes of payload so far
        self.size = 0

    def add(self, span: SpanResult) -> None:
        """Append a span; one that continues the last is still a span of its own."""
        batch, lo, hi, outcome, duration, peak, sizes, body = span
        message = self.message
        message.batches.append(batch)
        message.spans.append(lo)
        message.spans.append(hi)
        message.outcomes.append(outcome)
        message.durations.append(duration)
        message.peaks.append(peak)
        if len(sizes) == 1:
            message.sizes.append(sizes[0])
        else:
            message.sizes.extend(sizes)
        if body:
            self.size += len(body)
            self._bodies.append(body)

    def build(self) -> TaskResult:
        """The message; the builder is used up."""
        bodies = self._bodies
        self.message.bodies = [bodies[0] if len(bodies) == 1 else b"".join(bodies)]
        return self.message
