"""Who needs which object, and who has it: references, holders, and how long ended batches are remembered.

An object lives as long as something refers to it: rows that need it, batches (their function and arguments), the client
that holds it. A *stored* object, whose bytes are in stores of hosts, can be lost with its hosts, so the batch that made
it is *pinned*: remembered with its function, and with the small values its row needed, until the object is gone; a row
that needed other stored values pins the batches that made those, in turn.
"""

from scaler.protocol.messages import Frame, ObjectRelease, u32, u64
from scaler.scheduler.core.events import Send
from scaler.scheduler.core.outbox import Outbox
from scaler.scheduler.core.state import NOBODY, Agent, Batch, Client, Object


class Objects:
    """All objects of all clients."""

    def __init__(self, agents: dict[int, Agent], outbox: Outbox) -> None:
        self._agents = agents
        self._outbox = outbox

    def located(self, client: Client, value: int) -> int:
        """The id of the object that a value is in: its own, or that of a list."""
        place = client.located.get(value)
        return place[0] if place else value

    def lacking(self, client: Client, batch: Batch, row: int) -> list[int]:
        """The lost objects that a row needs."""
        gone, task = client.gone, batch.task
        found = [value for value in batch.needs[row] if value in gone] if batch.needs is not None else []
        return found + [object_id for object_id in (task.function, task.arguments) if object_id in gone]

    # ---- made and stored -------------------------------------------------------------------------------------------
    def stored_by_row(self, client: Client, agent: Agent, batch: Batch, row: int, size: int, references: int) -> Object:
        """A row's value is in an agent's store: an object with so many references, at least one."""
        item = Object(b"", references, size=size, source=(batch, row), counted=bool(batch.task.uses))
        client.objects[batch.id + row] = item
        self.has(client, agent, batch.id + row, item)
        batch.pins += 1
        return item

    def remember(self, client: Client, batch: Batch, row: int) -> None:
        """A row's value is stored and may be lost: keep what it takes to compute it again."""
        if batch.needs is None or not batch.needs[row] or row in batch.retained:
            return
        small = []
        for value in batch.needs[row]:
            object_id = self.located(client, value)
            item = client.objects.get(object_id)
            if item is None:
                continue
            if not item.size:
                item.references += 1
                small.append(object_id)
            elif item.source is not None and item.source[0] not in batch.upstream and item.source[0] is not batch:
                batch.upstream[item.source[0]] = None
                item.source[0].pins += 1
        batch.retained[row] = tuple(small)

    def has(self, client: Client, agent: Agent, object_id: int, item: Object) -> None:
        """An agent's store has an object."""
        client.has_stored = True
        item.copies |= {agent.number}
        item.holders.add(agent.number)
        agent.holds.add((client.number, object_id))
        client.agents.add(agent.number)
        client.gone.discard(object_id)

    def has_not(self, client: Client, number: int, object_id: int) -> bool:
        """An agent's store does not have an object any more; True if that was the last one."""
        item = client.objects.get(object_id)
        if item is None or number not in item.copies:
            return False
        item.copies -= {number}
        if item.copies:
            return False
        client.gone.add(object_id)
        return True

    def is_small_now(self, client: Client, object_id: int, item: Object, payload: Frame) -> None:
        """An object that was stored travels inside messages from now on: agents that had it are sent it anew."""
        for number in item.holders:
            agent = self._agents.get(number)
            if agent is not None:
                self.release(agent, client.number, object_id, item.size)
        item.payload, item.size, item.copies = payload, 0, NOBODY
        item.holders.clear()
        client.gone.discard(object_id)

    # ---- let go ----------------------------------------------------------------------------------------------------
    def unreference(self, client: Client, object_id: int, counted: bool = False) -> None:
        """One reason less to keep an object. `counted`: the reason was a row of the graph that the object is of."""
        item = client.objects.get(object_id)
        if item is None:  # not made yet, or never: it will be made for one less
            source = client.kept.get(object_id) if counted else None
            if source is not None and source.task.uses and source.task.uses[object_id - source.id]:
                source.task.uses[object_id - source.id] -= 1
            return
        item.references -= 1
        if item.references <= 0:
            self.drop(client, object_id, item)

    def drop(self, client: Client, object_id: int, item: Object) -> None:
        """Nobody needs an object: forget it, here and at the agents."""
        del client.objects[object_id]
        client.gone.discard(object_id)
        client.lost.pop(object_id, None)
        for row_id in item.elements or ():
            client.located.pop(row_id, None)
        for number in item.holders:
            agent = self._agents.get(number)
            if agent is not None:
                self.release(agent, client.number, object_id, item.size or len(item.payload))
        if item.source is not None:
            self.unpin(client, item.source[0])

    def release(self, agent: Agent, client: int, object_id: int, size: int) -> None:
        """Have an agent drop an object, soon."""
        agent.holds.discard((client, object_id))
        agent.released.append((client, object_id))
        agent.released_bytes += size
        self._outbox.agents.setdefault(agent)

    def unpin(self, client: Client, batch: Batch) -> None:
        """One reason less to remember a batch."""
        unpinned = [batch]
        while unpinned:
            batch = unpinned.pop()
            batch.pins -= 1
            if not batch.pins and client.lineage.pop(batch.id, None) is not None:
                unpinned += self._forget(client, batch)

    def end(self, client: Client, batch: Batch) -> None:
        """All rows of a batch have ended."""
        if client.batches.pop(batch.id, None) is None:
            return  # it ended with rows that depended on one of its own
        if batch.pins:
            client.lineage[batch.id] = batch
            return
        for other in self._forget(client, batch):
            self.unpin(client, other)

    def _forget(self, client: Client, batch: Batch) -> list[Batch]:
        """Let go of what a batch needed; the batches that it does not pin any more."""
        task = batch.task
        self.unreference(client, task.function)
        if task.arguments:
            self.unreference(client, task.arguments)
        for small in batch.retained.values():
            for object_id in small:
                self.unreference(client, object_id)
        if batch.keeps:
            for row_id in range(batch.id, batch.id + batch.rows):
                client.kept.pop(row_id, None)
        upstream, batch.upstream = list(batch.upstream), {}
        return upstream

    def release_now(self, agent: Agent, client: int, ids: list[int]) -> None:
        """Have an agent drop objects that nobody here knows."""
        self._outbox.effects.append(Send(agent.number, ObjectRelease(u32([client]) * len(ids), u64(ids))))
