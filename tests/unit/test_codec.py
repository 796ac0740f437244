"""The wire format, case by case."""

from dataclasses import replace

import pytest
from simulator.scripted import graph, hello, result, task

from scaler.errors import ProtocolError
from scaler.protocol.codec import MESSAGE_CLASSES, decode, encode
from scaler.protocol.codes import LARGEST_VALUE, LONGEST_NAME, MAX_WORKERS, MOST_CAPABILITIES
from scaler.protocol.hello import hello_of
from scaler.protocol.layouts import FEW
from scaler.protocol.messages import (
    EACH,
    PLACE,
    SIZE,
    STORED,
    STORED_OBJECT,
    Ack,
    BalanceRequest,
    Command,
    Heartbeat,
    Hello,
    Inventory,
    JobQuestion,
    Message,
    ObjectAnnounce,
    ObjectFetch,
    Objects,
    Query,
    Task,
    TaskResult,
    TaskRunning,
    u8,
    u32,
    u64,
)
from scaler.protocol.results import ResultBuilder, SpanResult
from scaler.serialize.function import name_of
from scaler.transport import Address


def test_every_message_class_has_its_place_on_the_wire() -> None:
    def leaves(cls: type[Message]) -> list[type[Message]]:
        return [cls, *[leaf for child in cls.__subclasses__() for leaf in leaves(child)]]

    bases = {"Message", "Spans", "Objects"}
    assert {cls.__name__ for cls in leaves(Message)} - bases == {cls.__name__ for cls in MESSAGE_CLASSES}


def test_payloads_are_frames_of_their_own_and_are_not_copied() -> None:
    made = task(10, 3)
    frames = encode(made, 7, 5)
    assert frames[1] is made.bodies[0]
    assert decode(frames) == (7, 5, made)


def test_a_graph_survives_the_wire() -> None:
    made = graph(10, [[], [0], [0, 1]], [2])
    assert decode(encode(made)).message == made


def test_columns_that_most_tasks_lack_are_shared_and_can_not_be_added_to() -> None:
    one, other = Task(0, 1, 1, EACH, 0, 5, 0, "f"), Task(0, 2, 1, EACH, 0, 5, 0, "f")
    assert one.dependencies is other.dependencies
    assert one.dependencies == u64()
    with pytest.raises(TypeError, match="give the message one of its own"):
        one.dependencies.append(7)
    with pytest.raises(TypeError, match="give the message one of its own"):
        one.dependencies += u64([7])
    assert list(other.dependencies) == []


def test_a_message_without_fields_is_small() -> None:
    (frame,) = encode(Ack(), 0, 9)
    assert len(frame) <= 64


def test_names_that_utf8_does_not_have_arrive_written_out() -> None:
    made = task(10, 1, capabilities=("gpu", "a\udcff"))
    made.name = "job\udcfe"
    for _ in range(FEW + 1):  # also when that is compiled
        arrived = decode(encode(made)).message
        assert (arrived.name, arrived.capabilities) == (r"job\udcfe", ("gpu", r"a\udcff"))


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "without frames"),
        ([b""], "not a message"),
        ([b"\xff" * 64], "not a message"),
        ([*encode(BalanceRequest(3)), b"more"], "has no payload frames"),
    ],
)
def test_bytes_that_are_no_message_are_refused_in_words(frames: list[bytes], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(frames)


def broken(**changes: object) -> Task:
    """A task that contradicts itself."""
    made = task(10, 3)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def stored_result(*sizes: int) -> TaskResult:
    """Rows whose values are stored, behind one that ended with a value."""
    builder = ResultBuilder(1)
    builder.add(result(10, 0, 1))
    body = b"".join(map(SIZE.pack, sizes))
    builder.add(SpanResult(20, 0, len(sizes), STORED, 1, 0, u32([8]) * len(sizes), body))
    return builder.build()


def inventory(*sizes: int) -> Inventory:
    """An agent has objects of these sizes."""
    few = range(len(sizes))
    return Inventory(u32([1]), u64([7]), objects=Objects(u32([1 for _ in few]), u64(few)), sizes=u64(sizes))


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (broken(form=7), "unknown form"),
        (broken(rows=2), "outside its batch"),
        (broken(spans=u32([0, 3, 1])), "come in pairs"),
        (broken(sizes=u32([1])), "a size for each row"),
        (broken(sizes=u32([1, 1, 9])), "add up"),
        (broken(objects=u64([4])), "a frame for each object"),
        (broken(timeout=-1.0), "a timeout"),
        (broken(dependency_counts=u32([1, 0, 0])), "dependency counts"),
        (TaskResult(1, u64([1]), u32([2, 2])), "a span is empty"),
        (TaskRunning(u32([1]), u64([1, 2]), u32([0, 1])), "one length"),
        (BalanceRequest(1, 0, u32([1]), u64([1, 2])), "one length"),
        (stored_result(1, 0), "a stored object has"),
        (stored_result(LARGEST_VALUE + 1), "a stored object has"),
        (ObjectAnnounce(u64([1]), u8([STORED_OBJECT]), [PLACE.pack(0, 1)]), "a stored object has"),
        (ObjectFetch(u32([1]), u64([1]), u64([2**64 - 1]), u32([0])), "a stored object has"),
        (broken(stored=u64([1]), stored_sizes=u64([0]), holder_counts=u32([0])), "a stored object has"),
        (Inventory(objects=Objects(), sizes=u64([1])), "a size for each object"),
        (inventory(LARGEST_VALUE + 1), "a stored object has"),
        (Heartbeat(0.0, MAX_WORKERS + 1), "more than 100,000 workers"),
        (Heartbeat(0.0, 1, leaving=4), "no reason to leave: 4"),
    ],
)
def test_columns_that_contradict_each_other_are_refused_in_words(message: Message, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(encode(message))


def host_at(place: str) -> Hello:
    """The first message of an agent whose store is said to listen there."""
    made = hello("agent", "host", 1)
    made.data = place
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0", "node-7.cluster", "b\u00fccher"])
def test_where_an_agent_listens_is_an_address(host: str) -> None:
    for place in ("", Address(host, 1).url, Address(host, 65535).url):
        assert decode(encode(host_at(place))).message.data == place


@pytest.mark.parametrize(
    "place",
    ["host", "tcp://host", "tcp://host:port", "tcp://h:65536", "tcp://h:\u0663", "ipc:///x", "tcp://[::1:3",
     "tcp://::1:3", "tcp://h:1,tcp://i:1", "tcp://h\x00:1", "tcp://h i:1", "tcp://h:1\n", "tcp://h:" + 5000 * "1"],
)  # fmt: skip
def test_what_is_no_address_ends_the_session_of_the_agent_that_says_it(place: str) -> None:
    with pytest.raises(ProtocolError, match="others fetch objects at tcp://host:port, not '"):
        decode(encode(host_at(place)))


def test_an_object_of_no_bytes_is_one_that_came_in_a_message() -> None:
    said = inventory(0, 1, LARGEST_VALUE)
    assert decode(encode(said)).message == said
    assert decode(encode(stored_result(1, LARGEST_VALUE))).message == stored_result(1, LARGEST_VALUE)


@pytest.mark.parametrize(
    "message", [Query(1, "k" * 10_000_000), Command(1, "k" * 10_000), JobQuestion(1, "k" * 10_000)]
)
def test_what_is_said_of_a_message_is_short_whatever_it_holds(message: Message) -> None:
    with pytest.raises(ProtocolError, match="unknown") as caught:
        decode(encode(message))
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (replace(task(1, 2), name="f" * (LONGEST_NAME + 1)), "name"),
        (replace(task(1, 2), capabilities=("c" * 100,) * 101), "capabilities"),
        (replace(hello("client", "c"), name="n" * (LONGEST_NAME + 1)), "name"),
        (replace(hello("client", "c"), packages="p" * (LONGEST_NAME + 1)), "of a process"),
        (replace(hello("agent", "a"), token="t" * (LONGEST_NAME + 1)), "of a process"),
        (replace(hello("agent", "a"), store="/" * 4097), "the path of a store"),
        (replace(hello("agent", "a"), capabilities=("c" * (MOST_CAPABILITIES + 1),)), "capabilities"),
    ],
    ids=["function", "what a task asks for", "peer", "packages", "token", "store", "what an agent has"],
)
def test_what_is_in_each_line_that_is_said_of_something_is_short(message: Message, words: str) -> None:
    with pytest.raises(ProtocolError, match=f"{words} .*characters"):
        decode(encode(message))


def test_a_peer_and_a_function_with_a_long_name_are_called_by_its_beginning() -> None:
    def work() -> None: ...

    work.__qualname__ = "\udcff" * LONGEST_NAME
    for name in (name_of(work), hello_of("client", work.__qualname__, 1).name):
        assert len(name) == LONGEST_NAME
        decode(encode(replace(task(1, 2), name=name)))
    decode(encode(hello_of("client", work.__qualname__, 1)))
