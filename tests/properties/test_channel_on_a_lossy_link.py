"""Two channels over a link that breaks: nothing lost, nothing twice, in order."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scaler.protocol.channel import Channel
from scaler.protocol.messages import Ack, BalanceRequest, Message


class Link(RuleBasedStateMachine):
    """Side 0 and side 1, each with what it sent, what it got, and what is under way to it."""

    def __init__(self) -> None:
        super().__init__()
        self.channels = [Channel(), Channel()]
        self.sent: list[list[int]] = [[], []]
        self.got: list[list[int]] = [[], []]
        self.under_way: list[deque[tuple[int, int, Message]]] = [deque(), deque()]
        self.next = 0

    def _arrive(self, side: int) -> None:
        seq, ack, message = self.under_way[side].popleft()
        if self.channels[side].accept(seq, ack) and isinstance(message, BalanceRequest):
            self.got[side].append(message.rows)
        if self.channels[side].owes_ack:
            self.under_way[1 - side].append((*self.channels[side].stamp_ack(), Ack()))

    @rule(side=st.integers(0, 1), count=st.integers(1, 40))
    def send(self, side: int, count: int) -> None:
        for _ in range(count):
            self.next += 1
            message = BalanceRequest(self.next)
            self.sent[side].append(self.next)
            self.under_way[1 - side].append((*self.channels[side].stamp(message), message))

    @rule(side=st.integers(0, 1), count=st.integers(1, 50))
    def arrive(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.under_way[side]))):
            self._arrive(side)

    @rule(arrives=st.tuples(st.integers(0, 10), st.integers(0, 10)))
    def reconnect(self, arrives: tuple[int, int]) -> None:
        for side in (0, 1):
            self.arrive(side, arrives[side])
            self.under_way[side].clear()
        received = [channel.received for channel in self.channels]
        for side in (0, 1):
            self.under_way[1 - side].extend(self.channels[side].resume(received[1 - side]))

    @invariant()
    def in_order(self) -> None:
        for side in (0, 1):
            assert self.got[side] == self.sent[1 - side][: len(self.got[side])]

    def teardown(self) -> None:
        self.reconnect((0, 0))
        while self.under_way[0] or self.under_way[1]:
            for side in (0, 1):
                self.arrive(side, 1000)
        for side in (0, 1):
            assert self.got[side] == self.sent[1 - side]
            self.channels[side].accept(*self.channels[1 - side].stamp_ack())
            assert not [*self.channels[side].kept]


TestLink = Link.TestCase
TestLink.settings = settings(stateful_step_count=25)
