"""A client is asked for the value of a row that it has the future of: it gives what came to it, and asks nobody."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_driver import FakeDriver

from scaler.client.core import events as ev
from scaler.client.future import Future
from scaler.client.values.providing import ValueProvider
from scaler.client.values.value_codec import ValueCodec
from scaler.protocol.messages import INLINE, ObjectAnnounce, ObjectRequest, u32, u64
from scaler.serialize.outofband import pack, unpack

ROW = 5


class Stored:
    """A result in a store that nobody can reach any more; whoever reads it would wait for ever."""

    held = contextlib.nullcontext

    def load(self, timeout: float | None = None) -> Any:
        raise AssertionError("the scheduler, which asks for it, would be asked for it")


class Client:
    """The provider with what it uses; the pending row that needs the future is the test's."""

    def __init__(self, future: Future, in_directory: Any = None) -> None:
        self.driver = FakeDriver()
        self.driver.session.pending.need = lambda value_id: future  # type: ignore[method-assign]
        codec: Any = ValueCodec(None)
        stores: Any = SimpleNamespace(look_up=lambda value_id: in_directory, write=lambda *args, **more: None)
        background: Any = SimpleNamespace(run=lambda call: call())
        driver: Any = self.driver
        self.provider = ValueProvider(driver, codec, stores, SimpleNamespace(), background)  # type: ignore[arg-type]
        self.driver.react = lambda effect: self.provider.handlers[type(effect)](effect)

    def asked(self) -> ObjectAnnounce:
        """The scheduler asks for the row's value: what it is told."""
        self.driver.tell(ev.Arrived(ObjectRequest(u32([3]), u64([ROW]))))
        (said,) = [message for message in self.driver.sent if isinstance(message, ObjectAnnounce)]
        return said


@pytest.fixture
def future() -> Future:
    owner: Any = SimpleNamespace(copy=lambda value, body: list(value))
    made = Future(owner)
    made.fulfil_stored(Stored())
    return made


def test_a_value_that_never_came_here_is_lost_and_not_asked_for(future: Future) -> None:
    said = Client(future).asked()
    assert list(said.kinds) != [INLINE]
    assert b"never came to its client" in bytes(said.bodies[0])


def test_a_value_that_came_here_before_it_was_lost_is_given(future: Future) -> None:
    future._result, future._unread = [1, 2], None
    said = Client(future).asked()
    assert list(said.kinds) == [INLINE]


def test_a_value_in_a_directory_that_is_still_there_is_given(future: Future) -> None:
    packed = pack([1, 2])
    found = SimpleNamespace(inband=packed.inband, buffers=packed.buffers)
    assert unpack(found.inband, found.buffers) == [1, 2]
    assert list(Client(future, found).asked().kinds) == [INLINE]
