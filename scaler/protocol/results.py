"""Reading and building `TaskResult`s span by span; agents and the scheduler both do."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from scaler.errors import ProtocolError
from scaler.protocol.messages import (
    CANCELLED,
    FILED,
    INLINE_VALUES,
    LIVE,
    SIZE,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
    Frame,
    Task,
    TaskResult,
    sizes_of,
    u32,
)
from scaler.protocol.value_list import cut_list, each_value

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
    #: microseconds of processor, all rows together; 0 when not profiled
    processor_time: int = 0


def spans_of(message: TaskResult) -> list[SpanResult]:
    """The spans of a result message, each with its part of the payload."""
    sizes, pairs, peaks, processor_times = message.sizes, message.spans, message.peaks, message.processor_times
    body = message.bodies[0] if message.bodies else b""
    if len(message.batches) == 1:
        peak, processor_time = (peaks[0], processor_times[0]) if peaks else (0, 0)
        return [
            SpanResult(
                message.batches[0], pairs[0], pairs[1], message.outcomes[0], message.durations[0], peak, sizes, body,
                processor_time,
            )
        ]  # fmt: skip
    found: list[SpanResult] = []
    view = memoryview(body)
    at = offset = 0
    for i, batch in enumerate(message.batches):
        lo, hi, outcome = pairs[2 * i], pairs[2 * i + 1], message.outcomes[i]
        count = sizes_of(outcome, hi - lo)
        part = sizes[at : at + count]
        at += count
        end = offset + (part[0] if count == 1 else sum(part))
        peak, processor_time = (peaks[i], processor_times[i]) if peaks else (0, 0)
        duration, piece = message.durations[i], view[offset:end]
        found.append(SpanResult(batch, lo, hi, outcome, duration, peak, part, piece, processor_time))
        offset = end
    return found


def values_of(span: SpanResult) -> Iterator[Frame]:
    """The payloads of a VALUES_EACH span, row by row; of a STORED or FILED one what stands for them."""
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


def cut(span: SpanResult, runs: Sequence[tuple[int, int]]) -> list[SpanResult]:
    """The rows [lo, hi) of a span for each of these runs, in ascending order, without what its other rows took.

    ProtocolError for a list of values that is none.
    """
    batch, first, last, outcome, _, _, sizes, body, _ = span
    if outcome == VALUES_LIST:
        lists = cut_list(body, last - first, [(lo - first, hi - first) for lo, hi in runs])
        return [
            SpanResult(batch, lo, hi, outcome, 0, 0, u32([len(part)]), part)
            for (lo, hi), part in zip(runs, lists, strict=True)
        ]
    if outcome != VALUES_EACH and outcome < STORED:
        return [SpanResult(batch, lo, hi, outcome, 0, 0, sizes, body) for lo, hi in runs]
    parts, view, row, start = [], memoryview(body), first, 0
    for lo, hi in runs:
        start += sum(sizes[row - first : lo - first])
        of_part = sizes[lo - first : hi - first]
        row, end = hi, start + sum(of_part)
        parts.append(SpanResult(batch, lo, hi, outcome, 0, 0, of_part, view[start:end]))
        start = end
    return parts


def parts_within(span: SpanResult, most: int) -> list[SpanResult]:
    """A span as spans whose payloads have at most so many bytes, as far as rows can be parted.

    What the rows took is shared out evenly. A list of values that is none stays whole.
    """
    rows = span.hi - span.lo
    if len(span.body) <= most or rows == 1:
        return [span]
    middle = span.lo + rows // 2
    try:
        halves = cut(span, [(span.lo, middle), (middle, span.hi)])
    except ProtocolError:
        return [span]
    parts: list[SpanResult] = []
    for half in halves:
        duration, used = (each * (half.hi - half.lo) // rows for each in (span.duration, span.processor_time))
        parts += parts_within(half._replace(duration=duration, peak=span.peak, processor_time=used), most)
    return parts


def misplaced(task: Task, outcome: int, lo: int, hi: int) -> str:
    """What is wrong with where the values of rows [lo, hi) are that ended so; empty if nothing is.

    Those of a durable job that are wanted may not be in a store, where they do not last; only they may be in files.
    """
    if not task.flags & INLINE_VALUES:
        return "results in files, of rows of no durable job" if outcome == FILED else ""
    if outcome in (STORED, LIVE) and (not task.wanted or any(task.wanted[lo:hi])):
        return "results in a store, of rows of a durable job that are wanted"
    return ""


def each_of(span: SpanResult) -> SpanResult:
    """The span of a list with a payload for each row instead; others as they are. ProtocolError as `cut`."""
    if span.outcome != VALUES_LIST:
        return span
    values = each_value(span.body, span.hi - span.lo)
    return span._replace(outcome=VALUES_EACH, sizes=u32(map(len, values)), body=b"".join(values))


def rows_of(span: SpanResult) -> Iterator[SpanResult]:
    """Each row of a span as a span of its own, without what the other rows took; `each_of` says what it raises."""
    batch, lo, hi, outcome, _, _, sizes, body, _ = span = each_of(span)
    if hi - lo == 1:
        yield span
        return
    if outcome != VALUES_EACH and outcome < STORED:
        for row in range(lo, hi):
            yield SpanResult(batch, row, row + 1, outcome, 0, 0, sizes, body)
        return
    for row, payload in zip(range(lo, hi), values_of(span), strict=True):
        yield SpanResult(batch, row, row + 1, outcome, 0, 0, u32([len(payload)]), payload)


#: payload bytes of a `TaskResult`, unless one span has more; fewer if a message may not have so many
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
        batch, lo, hi, outcome, duration, peak, sizes, body, processor_time = span
        message = self.message
        if peak or processor_time or message.peaks:
            missing = len(message.batches) - len(message.peaks)
            message.peaks.extend([*[0] * missing, peak])
            message.processor_times.extend([*[0] * missing, processor_time])
        message.batches.append(batch)
        message.spans.append(lo)
        message.spans.append(hi)
        message.outcomes.append(outcome)
        message.durations.append(duration)
        if len(sizes) == 1:
            message.sizes.append(sizes[0])
        else:
            message.sizes.extend(sizes)
        if body:
            self.size += len(body)
            self._bodies.append(body)

    def add_cancelled(self, batch: int, spans: Sequence[tuple[int, int]]) -> None:
        """Append spans of a batch that were all cancelled: what `add` does with each, at less cost."""
        message, count = self.message, len(spans)
        if message.peaks:
            message.peaks.extend([0] * count)
            message.processor_times.extend([0] * count)
        message.batches.extend([batch] * count)
        message.spans.extend(chain.from_iterable(spans))
        message.outcomes.extend([CANCELLED] * count)
        message.durations.extend([0] * count)

    def build(self) -> TaskResult:
        """The message; the builder is used up."""
        bodies = self._bodies
        self.message.bodies = [bodies[0] if len(bodies) == 1 else b"".join(bodies)]
        return self.message
