"""A client's driver without a connection: the session is the real one, the scheduler is played by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace

from scaler.client.core import events as ev
from scaler.client.core.session import SessionCore
from scaler.protocol.messages import Message, ObjectAnnounce, ObjectRelease


class FakeDriver:
    """What those who store values need of a `SessionDriver`."""

    def __init__(self, number: int = 3, limit: int = 1 << 30) -> None:
        self.lock = threading.RLock()
        self.session = SessionCore()
        self.welcome = SimpleNamespace(number=number, limit=limit)
        #: nothing comes of the scheduler
        self.is_apart = False
        #: what was said to the scheduler
        self.sent: list[Message] = []
        #: answers messages, if it wants; in the thread that says them
        self.scheduler: Callable[[Message], Iterable[Message]] = lambda message: ()
        #: gets what the session says of the user's side
        self.react: Callable[[ev.Effect], None] = lambda effect: None
        self.tell(ev.Welcomed(False, 1e9, 2))

    def tell(self, *events: ev.Event) -> None:
        """The session is told, and answered."""
        for effect in self.session.handle(events, 0.0):
            if isinstance(effect, ev.Transmit):
                self.sent.append(effect.message)
                for answer in self.scheduler(effect.message):
                    self.tell(ev.Arrived(answer))
            else:
                self.react(effect)

    def is_cut_off(self, now: float) -> bool:
        """As `SessionDriver` does."""
        return self.is_apart

    def flush(self, event: ev.Announce) -> None:
        """As `SessionDriver` does."""
        self.tell(event)

    def release(self, object_id: int) -> None:
        """As `SessionDriver` does, but at once."""
        self.tell(ev.Release([object_id]))

    def take_ids(self, count: int) -> int:
        """As `SessionDriver` does."""
        return self.session.take_ids(count)

    @property
    def announced(self) -> list[int]:
        """Ids of objects, in order."""
        return [object_id for message in self.sent if isinstance(message, ObjectAnnounce) for object_id in message.ids]

    @property
    def released(self) -> list[int]:
        """Ids of objects, in order."""
        return [object_id for message in self.sent if isinstance(message, ObjectRelease) for object_id in message.ids]
