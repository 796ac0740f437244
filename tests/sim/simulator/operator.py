"""Somebody with the cluster's key: a monitor's session that says what is to be done."""

from typing import Any

from scaler.protocol.hello import hello_of
from scaler.protocol.messages import Command, CommandResult, Heartbeat, u32
from simulator.network import Line
from simulator.world import TICK, Process


class Operator(Process):
    """`cluster` is the run it belongs to. What it said is said again to no other scheduler."""

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster.world, "operator")
        self.line = Line(self, cluster.network, "unix", "operator", hello_of("monitor", "operator", 0))
        self._number = 0
        #: what it was answered
        self.answers: list[CommandResult] = []
        self._pulse()

    def _pulse(self) -> None:
        if self.alive:
            self.post(TICK)
            self.world.after(0.5, self._pulse)

    def step(self, items: list[Any]) -> None:
        """Take answers, and stay alive."""
        for heard in self.line.receive(items):
            if isinstance(heard, CommandResult):
                self.answers.append(heard)
        if TICK in items and self.line.is_open:
            self.line.send(Heartbeat(self.world.now))

    def command(self, kind: str, agents: list[int]) -> None:
        """Say it, if there is a scheduler."""
        if self.alive and self.line.is_open:
            self._number += 1
            self.line.send(Command(self._number, kind, agents=u32(agents)))
