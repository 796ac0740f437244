"""What an agent and its workers say to each other, as bytes; and that an agent survives whatever it is sent."""

import socket
import struct
import threading
from array import array

import psutil
import pytest

from scaler.protocol.codes import LARGEST_VALUE
from scaler.protocol.messages import DOUBTFUL, ERROR, LIVE, SIZE, STORED, VALUES_EACH, VALUES_LIST
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import (
    MalformedMessage,
    from_worker,
    read_by_agent,
    read_by_worker,
    to_worker,
)
from scaler.worker_protocol.socketpair import LARGEST_MESSAGE, Receiver, framed, head

RUN = wm.Run(
    1, 7, 100, 2, 4, 1, (7, 1), (7, 2), 5, -3, "f", b"\1\0\0\0" * 2, b"xy", [[((7, 9), -1)], []],
    [((7, 1), b"function")], [(7, 8)], b"\0\1",
)  # fmt: skip


def ended(
    outcome: int = VALUES_LIST, rows: int = 1, sizes: list[int] | None = None, body: bytes = b"data"
) -> wm.EndedSpan:
    """How rows ended; the sizes fit unless others are given."""
    parts = array("I", [len(body)] if sizes is None else sizes)
    return wm.EndedSpan(1, 7, 100, 2, 2 + rows, outcome, 10, 0, parts, body)


SAID: list[wm.FromWorker] = [
    wm.Ready(4711),
    wm.Results([], []),
    wm.Results([ended(), ended(VALUES_EACH, 2, [1, 3]), ended(ERROR), ended(DOUBTFUL)], [1, 2]),
    wm.Results([ended()], list(range(10))),
    wm.Results([ended(STORED, 2, [8, 8], SIZE.pack(10) + SIZE.pack(1 << 40)), ended(LIVE, 1, [8], SIZE.pack(1))], []),
    wm.Returned(0, [], None),
    wm.Returned(9, [wm.ReturnedSpan(1, 7, 100, 2, 4)], (1, 1)),
    wm.Published([wm.PublishedValue((7, 1 << 60), 10, None), wm.PublishedValue((7, 2), 0, "disk full: é")]),
    wm.Output(7, 102, 1, "f", "ein Gruß\n"),
    wm.Blocked(),
    wm.Unblocked(),
    wm.Leaving(),
    wm.Unfit("has no descriptors"),
    wm.Crowded(1 << 40),
    wm.Preloading("m:f"),
    wm.Preloading("m:f(1)", "ValueError: é"),
]


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_is_what_its_agent_reads(message: wm.FromWorker) -> None:
    for data in (from_worker(message), memoryview(from_worker(message))):
        read = read_by_agent(memoryview(data))
        assert (type(read), read) == (type(message), message)


@pytest.mark.parametrize(
    "message",
    [RUN, wm.Drop([(1, 2)]), wm.Surroundings({"a": 1}), wm.Quit(), wm.Recall(1, 2), wm.Flush(), wm.Publish([(1, 2)])],
    ids=lambda message: type(message).__name__,
)
def test_what_an_agent_says_is_what_its_worker_reads(message: wm.ToWorker) -> None:
    read = read_by_worker(to_worker(message))
    assert (type(read), read) == (type(message), message)


def test_text_that_is_no_text_is_told_with_what_can_be_written_of_it() -> None:
    read = read_by_agent(memoryview(from_worker(wm.Output(7, 1, 1, "f", "a\udc80b"))))
    assert read == wm.Output(7, 1, 1, "f", "a?b")


@pytest.mark.parametrize(
    "message",
    [
        wm.Results([ended(rows=0)], []),
        wm.Results([ended(rows=2, outcome=ERROR)], []),
        wm.Results([ended(rows=2, outcome=DOUBTFUL)], []),
        wm.Results([ended(outcome=10)], []),
        wm.Results([ended(VALUES_EACH, 2, [1, 2])], []),
        wm.Results([ended(sizes=[])], []),
        wm.Results([ended(VALUES_EACH, 2, [4])], []),
        wm.Results([ended(STORED, 1, [4])], []),
        wm.Results([ended(STORED, 1, [8], SIZE.pack(LARGEST_VALUE + 1))], []),
        wm.Results([ended(STORED, 2, [8, 8], SIZE.pack(1) + SIZE.pack(0))], []),
        wm.Results([ended(LIVE, 1, [8], SIZE.pack(0))], []),
        wm.Returned(1, [wm.ReturnedSpan(1, 7, 100, 4, 4)], None),
        wm.Published([wm.PublishedValue((7, 1), LARGEST_VALUE + 1, None)]),
        wm.Published([wm.PublishedValue((7, 1), 0, None)]),
        wm.Output(7, 1, 9, "f", "text"),
    ],
)
def test_messages_that_cannot_be_meant_are_malformed(message: wm.FromWorker) -> None:
    with pytest.raises(MalformedMessage):
        read_by_agent(memoryview(from_worker(message)))


@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
def test_messages_that_are_cut_off_or_too_long_are_malformed(message: wm.FromWorker) -> None:
    data = from_worker(message)
    for other in [data[:end] for end in range(len(data))] + [data + b"\0"]:
        with pytest.raises(MalformedMessage):
            read_by_agent(memoryview(other))


def test_counts_that_lie_cost_no_memory() -> None:
    """They name more spans, dispatches or bytes than any machine has room for."""
    most32, most64 = (1 << 32) - 1, (1 << 64) - 1
    span = struct.pack("=QIQQQBQQIQ", 1, 7, 100, 0, 1 << 40, STORED, 0, 0, most32, most64)
    for data in (
        b"\1" + struct.pack("=II", most32, 0),
        b"\1" + struct.pack("=II", 0, most32),
        b"\1" + struct.pack("=II", 1, 0) + span,
        b"\2" + struct.pack("=QIBQQ", 1, most32, 0, 0, 0),
        b"\3" + struct.pack("=I", most32),
        b"\4" + struct.pack("=IQBIQ", 7, 1, 1, most32, most64),
    ):
        with pytest.raises(MalformedMessage):
            read_by_agent(memoryview(data))


def test_what_was_said_before_the_garbage_is_read_and_nothing_after_it() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        receiver = Receiver(its, read_by_agent)
        good = [from_worker(message) for message in SAID]
        for data in (*good, b"\xffgarbage", good[0]):
            ours.sendall(b"".join(framed(data)))
        assert receiver.read() == SAID
        assert receiver.broken == "it begins with 255"


@pytest.mark.parametrize("count", range(1, 18))
def test_a_few_bytes_before_a_message_are_not_taken_for_a_part_of_its_length(count: int) -> None:
    """A task has written to its worker's descriptor: the agent would wait for the rest of a message for ever."""
    for byte in (b"\0", b'"', b"\xa7", b"\xc5", b"\xff"):
        ours, its = socket.socketpair()
        with ours, its:
            receiver = Receiver(its, read_by_agent)
            ours.sendall(byte * count + b"".join(framed(from_worker(SAID[0]))))
            assert receiver.read() == []
            assert "a task may have written to its descriptor" in str(receiver.broken)


def test_who_reads_in_turns_gets_all_in_order_and_few_at_a_time() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        receiver = Receiver(its, read_by_agent, turn=1_000)
        lines = [wm.Output(1, 2, 1, "f", f"{n} " + "x" * (5_000 if n == 30 else 50)) for n in range(60)]
        for line in lines:
            data = from_worker(line)
            ours.sendall(b"".join(framed(data)))
        turns = [receiver.read()]
        while turns[-1]:
            turns.append(receiver.read())
        assert [line for turn in turns for line in turn] == lines
        assert max(map(len, turns)) < 20


def test_a_large_message_is_read_in_turns_so_that_others_are_heard_in_between() -> None:
    """Whoever writes on and on would have the agent to itself, and have the others' hosts taken for dead."""
    ours, its = socket.socketpair()
    line = wm.Output(1, 2, 1, "f", "x" * (24 << 20))
    data = b"".join(framed(from_worker(line)))
    with ours, its:
        receiver = Receiver(its, read_by_agent, turn=1_000)
        writer = threading.Thread(target=ours.sendall, args=(data,))
        writer.start()
        most, heard = 0, []
        while not heard:
            before = receiver._filled
            heard = receiver.read()
            most = max(most, receiver._filled - before)
        writer.join()
        assert heard == [line]
        assert most < 8 << 20


def test_a_message_beyond_the_bound_is_refused_before_it_comes() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        receiver = Receiver(its, read_by_agent, largest=1_000)
        ours.sendall(head(1_001))
        assert receiver.read() == []
        assert receiver.broken == "its length would be 1,001 bytes, of at most 1,000"


def test_a_length_that_lies_costs_no_memory() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        receiver = Receiver(its, read_by_agent)
        ours.sendall(head(LARGEST_MESSAGE) + b"x" * 100)
        before = psutil.Process().memory_info().rss
        assert receiver.read() == []
        assert receiver.broken is None
        assert psutil.Process().memory_info().rss - before < 64 << 20
    ours, its = socket.socketpair()
    with ours, its:
        receiver = Receiver(its, read_by_agent)
        ours.sendall(head(LARGEST_MESSAGE + 1) + b"x" * 100)
        assert receiver.read() == []
        assert "its length" in str(receiver.broken)
