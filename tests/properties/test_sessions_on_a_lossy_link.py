"""Both ends of a session over connections that lose messages and break: in order, once, or the session is new."""

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from simulator.scripted import hello

from scaler.protocol.acceptor import Acceptor, Joined, Received, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.initiator import Broken, Established, Initiator, Rejected
from scaler.protocol.messages import BalanceRequest


class Pair(RuleBasedStateMachine):
    """An initiator and an acceptor, what each said and heard since the session began, and what is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.initiator = Initiator(hello("client", "peer"))
        self.epoch = 0
        self.acceptor = self._acceptor()
        #: number of the connection; it grows with each
        self.connection = 0
        self.number: int | None = None
        self.up: deque[Envelope] = deque()
        self.down: deque[Envelope] = deque()
        self.said: dict[str, list[int]] = {"up": [], "down": []}
        self.heard: dict[str, list[int]] = {"up": [], "down": []}
        self.next = 0
        self.connect()

    def _acceptor(self) -> Acceptor:
        self.epoch += 1
        return Acceptor(Terms(self.epoch, 1, True, 1.0, 10.0, 20.0, 1 << 20))

    def connect(self) -> None:
        """Anew: what is under way is lost."""
        self.initiator.disconnect("broken")
        self.up.clear()
        self.down.clear()
        self.connection += 1
        self.up.append(self.initiator.greet(0.0))

    def _arrive_up(self) -> None:
        for event in self.acceptor.receive(self.connection, self.up.popleft(), 0):
            if isinstance(event, Joined):
                self.number = event.number
                self.said["down"], self.heard["up"] = [], []
            elif isinstance(event, Received) and isinstance(event.message, BalanceRequest):
                self.heard["up"].append(event.message.rows)
        outgoing, self.acceptor.outgoing = self.acceptor.outgoing, []
        self.down.extend(Envelope(*out[1:4]) for out in outgoing if out.connection == self.connection)

    def _arrive_down(self) -> None:
        meaning: Any = self.initiator.receive(self.down.popleft(), 0.0)
        if isinstance(meaning, Established):
            if not meaning.resumed:
                self.said["up"], self.heard["down"] = [], []
            self.up.extend(meaning.again)
        elif isinstance(meaning, (Broken, Rejected)):
            self.connect()
        elif isinstance(meaning, BalanceRequest):
            self.heard["down"].append(meaning.rows)
        ack = self.initiator.take_ack()
        if ack is not None:
            self.up.append(ack)

    @rule(count=st.integers(1, 40))
    def say_up(self, count: int) -> None:
        for _ in range(count if self.initiator.welcome is not None else 0):
            self.next += 1
            self.said["up"].append(self.next)
            envelope = self.initiator.send(BalanceRequest(self.next))
            if envelope is not None:
                self.up.append(envelope)

    @rule(count=st.integers(1, 40))
    def say_down(self, count: int) -> None:
        for _ in range(count if self.number is not None else 0):
            self.next += 1
            assert self.number is not None
            out = self.acceptor.send(self.number, BalanceRequest(self.next))
            if out is not None:
                self.said["down"].append(self.next)
                if out.connection == self.connection:
                    self.down.append(Envelope(*out[1:4]))

    @rule(count=st.integers(1, 50))
    def arrive(self, count: int) -> None:
        for _ in range(count):
            if self.up:
                self._arrive_up()
            if self.down:
                self._arrive_down()

    @rule(down=st.booleans())
    def lose_a_message(self, down: bool) -> None:
        way = self.down if down else self.up
        if way:
            way.popleft()

    @rule()
    def break_the_connection(self) -> None:
        self.connect()

    @rule()
    def forget_the_session(self) -> None:
        if self.number is not None:
            self.acceptor.forget(self.number)

    @rule()
    def restart_the_scheduler(self) -> None:
        self.acceptor, self.number = self._acceptor(), None
        self.connect()

    @invariant()
    def nothing_is_heard_that_was_not_said_in_order(self) -> None:
        if not self.up and not self.down and self.initiator.is_open:
            for way in ("up", "down"):
                assert self.heard[way] == self.said[way][: len(self.heard[way])]

    def teardown(self) -> None:
        self.connect()
        self.arrive(3)
        while self.up or self.down:
            self.arrive(1000)
        assert self.initiator.is_open
        assert self.heard == self.said


TestPair = Pair.TestCase
TestPair.settings = settings(stateful_step_count=25)
