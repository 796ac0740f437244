"""The wire format, case by case."""

import pytest
from simulator.scripted import graph, task

from scaler.errors import ProtocolError
from scaler.protocol.codec import MESSAGE_CLASSES, decode, encode
from scaler.protocol.messages import Ack, BalanceRequest, Message, Task, TaskResult, TaskRunning, u32, u64


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


def test_a_message_without_fields_is_small() -> None:
    (frame,) = encode(Ack(), 0, 9)
    assert len(frame) <= 64


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
    ],
)
def test_columns_that_contradict_each_other_are_refused_in_words(message: Message, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(encode(message))
