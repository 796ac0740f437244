"""What a client says comes in an order that its scheduler can follow, whoever has the session at that moment."""

import operator
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from scaler.client.core.options import Options
from scaler.client.io.driver import SessionDriver
from scaler.client.io.wakeup import Wakeup
from scaler.client.liveness import Liveness
from scaler.client.submitting.graph_batches import GraphBatches
from scaler.client.submitting.graphs import Graphs
from scaler.client.submitting.map_sending import MapSender
from scaler.client.submitting.templates import Templates
from scaler.client.values.value_codec import ValueCodec
from scaler.graph import from_tuples
from scaler.protocol.messages import Message, ObjectAnnounce, Task


class Line:
    """Keeps what is said."""

    error = None
    welcome = SimpleNamespace(limit=1 << 20)

    def __init__(self) -> None:
        self.said: list[Message] = []

    def send(self, message: Message) -> None:
        self.said.append(message)


class Session:
    """A client's session that is connected to nothing."""

    def __init__(self) -> None:
        self.line: Any = Line()
        self.driver = SessionDriver(self.line, Wakeup(), Liveness())
        self.templates = Templates(self.driver, Liveness(), Mock(), None)


def test_a_function_is_sent_before_a_call_that_was_queued_before_a_map_of_it() -> None:
    session = Session()
    driver, options = session.driver, Options()
    maps = MapSender(driver, Liveness(), Mock(), session.templates, Mock(is_pickling=True), Mock())
    call: Any = (session.templates.of(len, options), ("ab",), Mock(id=0))
    other = threading.Thread(target=driver.submit, args=(call,))
    with driver.lock:
        other.start()
        other.join(10)
        maps.send(len, options, ["abc"])
    known: set[int] = set()
    for message in session.line.said:
        known.update(message.ids if isinstance(message, ObjectAnnounce) else ())
        assert not isinstance(message, Task) or message.function in known
    assert [type(message) for message in session.line.said] == [ObjectAnnounce, Task, Task]


def test_a_graph_is_sent_before_calls_can_be_given_its_futures() -> None:
    session = Session()
    driver, has_lock, is_submitted = session.driver, threading.Event(), threading.Event()
    batches = GraphBatches(driver, None, ValueCodec(None))
    make = batches.events_of

    def hold() -> None:
        with driver.lock:
            has_lock.set()
            is_submitted.wait(0.3)  # it is not before this ends

    holder = threading.Thread(target=hold)

    def make_and_lose_the_lock(*given: Any) -> Any:
        events = make(*given)
        holder.start()
        has_lock.wait(10)
        return events

    batches.events_of = make_and_lose_the_lock  # type: ignore[method-assign]
    graphs = Graphs(driver, Liveness(), Mock(), session.templates, Mock(), batches)
    (future,) = graphs.submit(from_tuples({"a": (operator.add, 1, 2)}), ["a"], None, {}, Options())
    assert future.id
    is_submitted.set()
    holder.join()
