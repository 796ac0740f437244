"""How messages between an agent and its workers look as bytes; both ends run the same interpreter on one host.

A worker believes its agent: what it is told is marshalled, the fastest encoding there is. An agent does not believe its
workers, since user code can write anything anywhere: what they say has a layout of its own, and reading it is total.
Any bytes give a message whose numbers fit where they will be written, or one `MalformedMessage`.
"""

from __future__ import annotations

import marshal
import struct
from array import array
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any

from scaler.protocol.codes import (
    DOUBTFUL,
    ERROR,
    FILE,
    FILED,
    LACKING,
    LARGEST_VALUE,
    LIVE,
    SIZE,
    STDERR,
    STDOUT,
    STORED,
    VALUES_EACH,
    VALUES_LIST,
    WARNINGS,
    sizes_of,
)
from scaler.worker_protocol.messages import (
    Blocked,
    Crowded,
    Drop,
    EndedSpan,
    Flush,
    FromWorker,
    Leaving,
    Output,
    Preloading,
    Publish,
    Published,
    PublishedValue,
    Quit,
    Ready,
    Recall,
    Results,
    Returned,
    ReturnedSpan,
    Run,
    Surroundings,
    TailRequest,
    TailResponse,
    ToWorker,
    Unblocked,
    Unfiled,
    Unfit,
    Yield,
)

Bytes = bytes | memoryview


class MalformedMessage(Exception):
    """Bytes that are no message; the text says what is wrong."""


# ---- agent to worker -------------------------------------------------------------------------------------------------
_TO_WORKER: tuple[type[ToWorker], ...] = (Run, Drop, Surroundings, Quit, Recall, Flush, Publish, TailRequest, Yield)
_NUMBERS = {kind: number for number, kind in enumerate(_TO_WORKER)}


def to_worker(message: ToWorker) -> bytes:
    """What an agent says, as bytes."""
    return marshal.dumps((_NUMBERS[type(message)], *message))


def read_by_worker(data: memoryview | bytes) -> ToWorker:
    """What an agent has said. Its bytes are trusted."""
    fields = marshal.loads(data)
    message: ToWorker = tuple.__new__(_TO_WORKER[fields[0]], fields[1:])  # as _make does, at a third of its price
    return message


# ---- worker to agent -------------------------------------------------------------------------------------------------
_FROM_WORKER: tuple[type[FromWorker], ...] = (
    Ready, Results, Returned, Published, Output, Blocked, Unblocked, Leaving, TailResponse, Unfiled,
    Preloading, Unfit, Crowded,
)  # fmt: skip
_CODES = {kind: bytes([number]) for number, kind in enumerate(_FROM_WORKER)}
_RESULTS, _RETURNED, _PUBLISHED = _CODES[Results], _CODES[Returned], _CODES[Published]

#: messages of numbers and texts: the numbers, and behind them of each text its bytes; the texts follow
_PLAIN: dict[type[FromWorker], tuple[Struct, int]] = {
    Ready: (Struct("=I"), 0),
    Output: (Struct("=IQBIQ"), 2),
    Blocked: (Struct("="), 0),
    Unblocked: (Struct("="), 0),
    Leaving: (Struct("="), 0),
    TailResponse: (Struct("=QQ"), 1),
    Unfiled: (Struct("=QH"), 0),
    Preloading: (Struct("=QQ"), 2),
    Unfit: (Struct("=I"), 1),
    Crowded: (Struct("=Q"), 0),
}
#: how many spans, how many dispatches
_COUNTS = Struct("=II")
#: dispatch, client, batch, lo, hi, outcome, duration, peak, processor time, how many sizes, bytes of the body; they
#: follow, but for the size of a body that is one part
_ENDED = Struct("=QIQQQBQQQIQ")
#: token, how many spans, whether a row runs, and its dispatch and number
_RETURNED_HEAD = Struct("=QIBQQ")
_RETURNED_ROWS = Struct("=QIQQQ")
_COUNT = Struct("=I")
#: client, id, bytes, whether there is an error, bytes of it; it follows
_PUBLISHED_VALUE = Struct("=IQQBI")

_NO_SIZE = "no stored value has that size"
#: bytes of a part: what a column of sizes can say
_LARGEST_PART = (1 << 32) - 1
#: bytes of a message that is rather copied as a whole than in parts
_SHORT = 4096

_OUTCOMES = frozenset({VALUES_LIST, VALUES_EACH, ERROR, STORED, LIVE, LACKING, FILED, DOUBTFUL})
#: those whose body is one part for all rows
_IN_ONE = frozenset(outcome for outcome in _OUTCOMES if sizes_of(outcome, 2) == 1)
#: most messages are done with no dispatch, or with one
_DONE = tuple(Struct(f"={count}Q") for count in range(4))
_STREAMS = frozenset({STDOUT, STDERR, WARNINGS})


def from_worker(message: FromWorker) -> bytes:
    """What a worker says, as bytes."""
    return _WRITERS[type(message)](message)


def _write_results(message: Results) -> bytes:
    ended, done = message
    pieces: list[bytes | array[int]] = [_RESULTS, _COUNTS.pack(len(ended), len(done)), array("Q", done)]
    for dispatch, client, batch, lo, hi, outcome, duration, peak, sizes, body, used in ended:
        parts = len(sizes)
        pieces.append(_ENDED.pack(dispatch, client, batch, lo, hi, outcome, duration, peak, used, parts, len(body)))
        if parts != 1:
            pieces.append(sizes)
        pieces.append(body)
    return b"".join(pieces)


def _write_returned(message: Returned) -> bytes:
    token, rows, running = message
    head = _RETURNED_HEAD.pack(token, len(rows), running is not None, *(running or (0, 0)))
    return b"".join([_RETURNED, head, *[_RETURNED_ROWS.pack(*span) for span in rows]])


def _write_published(message: Published) -> bytes:
    pieces = [_PUBLISHED, _COUNT.pack(len(message.values))]
    for (client, number), size, error in message.values:
        text = (error or "").encode("utf-8", "replace")
        pieces += _PUBLISHED_VALUE.pack(client, number, size, error is not None, len(text)), text
    return b"".join(pieces)


def _write_plain(message: Any) -> bytes:
    head, count = _PLAIN[type(message)]
    numbers = message[: len(message) - count]
    texts = [text.encode("utf-8", "replace") for text in message[len(numbers) :]]
    return b"".join([_CODES[type(message)], head.pack(*numbers, *map(len, texts)), *texts])


_WRITERS: dict[type[FromWorker], Callable[[Any], bytes]] = {
    **dict.fromkeys(_PLAIN, _write_plain),
    Results: _write_results,
    Returned: _write_returned,
    Published: _write_published,
}


def read_by_agent(data: Bytes) -> FromWorker:
    """What a worker has said. Raises MalformedMessage."""
    if len(data) < _SHORT:
        data = bytes(data)  # of which parts are cut faster
    if not data or data[0] >= len(_READERS):
        raise MalformedMessage(f"it begins with {data[0]}" if data else "it is empty")
    try:
        message, end = _READERS[data[0]](data, 1)
    except struct.error:
        raise MalformedMessage("it is cut off") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"a text in it is not UTF-8: {error.reason}") from None
    if end != len(data):
        raise MalformedMessage(f"it takes {end:,} bytes and has {len(data):,}")
    return message


Read = tuple[FromWorker, int]


def _read_results(data: Bytes, at: int) -> Read:
    spans, count = _COUNTS.unpack_from(data, at)
    at += _COUNTS.size
    if count < len(_DONE):
        done = list(_DONE[count].unpack_from(data, at))
    else:
        _require(at + 8 * count <= len(data), "it is cut off")
        done = array("Q", bytes(data[at : at + 8 * count])).tolist()
    at += 8 * count
    ended = []
    for _ in range(spans):
        dispatch, client, batch, lo, hi, outcome, duration, peak, used, parts, size = _ENDED.unpack_from(data, at)
        begin = at + _ENDED.size
        if lo >= hi or outcome not in _OUTCOMES or parts != (1 if outcome in _IN_ONE else hi - lo):
            raise MalformedMessage("it tells of no rows, or of no outcome")
        if parts == 1:
            at = begin + size
            body = bytes(data[begin:at])
            if size > _LARGEST_PART:
                raise MalformedMessage("it has a part that is too large")
            sizes = array("I", (size,))
        else:
            middle = begin + 4 * parts
            at = middle + size
            _require(middle <= len(data), "it is cut off")
            sizes, body = array("I", bytes(data[begin:middle])), bytes(data[middle:at])
            _require(sum(sizes) == size, "its sizes do not add up")
        if len(body) != size:
            raise MalformedMessage("it is cut off")
        if outcome >= ERROR:
            _check(outcome, hi - lo, sizes, body)
            if outcome == FILED:
                rows = [row for row, *_ in FILE.iter_unpack(body)]
                _require(rows == list(range(batch + lo, batch + hi)), "a file is of another row")
        fields = dispatch, client, batch, lo, hi, outcome, duration, peak, sizes, body, used
        ended.append(tuple.__new__(EndedSpan, fields))  # half the price of a call of the class
    return tuple.__new__(Results, (ended, done)), at


def _check(outcome: int, rows: int, sizes: array[int], body: bytes) -> None:
    if outcome in (ERROR, DOUBTFUL):
        _require(rows == 1, "it has one error for several rows")
    elif outcome == LACKING:
        _require(rows == 1 and len(body) >= SIZE.size, "it lacks an object for several rows, or does not say which")
    elif outcome == FILED:
        _require(set(sizes) == {FILE.size}, "28 bytes stand for a value that is a file")
    else:
        _require(set(sizes) == {SIZE.size}, "eight bytes stand for a stored value")
        _require(all(0 < size <= LARGEST_VALUE for (size,) in SIZE.iter_unpack(body)), _NO_SIZE)


def _read_returned(data: Bytes, at: int) -> Read:
    token, count, runs, dispatch, row = _RETURNED_HEAD.unpack_from(data, at)
    at += _RETURNED_HEAD.size
    rows = []
    for _ in range(count):
        rows.append(ReturnedSpan._make(_RETURNED_ROWS.unpack_from(data, at)))
        _require(rows[-1].lo < rows[-1].hi, "it gives back no rows")
        at += _RETURNED_ROWS.size
    return Returned(token, rows, (dispatch, row) if runs else None), at


def _read_published(data: Bytes, at: int) -> Read:
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    values = []
    for _ in range(count):
        client, number, size, failed, length = _PUBLISHED_VALUE.unpack_from(data, at)
        at += _PUBLISHED_VALUE.size
        _require(failed or 0 < size <= LARGEST_VALUE, _NO_SIZE)
        text, at = _text(data, at, length)
        values.append(PublishedValue((client, number), size, text if failed else None))
    return Published(values), at


def _read_plain(kind: type[Any], data: Bytes, at: int) -> Read:
    head, count = _PLAIN[kind]
    fields = list(head.unpack_from(data, at))
    at += head.size
    for place in range(len(fields) - count, len(fields)):
        fields[place], at = _text(data, at, fields[place])
    _require(kind is not Output or fields[2] in _STREAMS, "it names no stream")
    return kind(*fields), at


def _text(data: Bytes, at: int, length: int) -> tuple[str, int]:
    end = at + length
    _require(end <= len(data), "it is cut off")
    return str(data[at:end], "utf-8"), end


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedMessage(what)


_OF_ROWS: dict[type[FromWorker], Callable[[Bytes, int], Read]] = {
    Results: _read_results, Returned: _read_returned, Published: _read_published
}  # fmt: skip
_READERS = [_OF_ROWS.get(kind, partial(_read_plain, kind)) for kind in _FROM_WORKER]
