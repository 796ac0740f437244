"""Which stores clients can use, and what they read: the scheduler says where bytes are, and never sees them."""

from collections.abc import Collection

from scaler.protocol.failures import sent_nowhere
from scaler.protocol.messages import (
    PLACE,
    STORED_OBJECT,
    ObjectAnnounce,
    ObjectFetch,
    ObjectGone,
    ObjectMissing,
    ObjectRequest,
    ObjectResponse,
    StoreOffers,
    u8,
    u32,
    u64,
)
from scaler.scheduler.core.events import StartStore
from scaler.scheduler.core.outbox import Outbox
from scaler.scheduler.core.rows import Rows
from scaler.scheduler.core.state import Agent, Client


class Stores:
    """See the module's text."""

    def __init__(self, rows: Rows, outbox: Outbox) -> None:
        self._rows = rows
        self._outbox = outbox
        #: the number of the agent beside the scheduler that has no workers; 0 for none
        self._beside = 0
        self._started = False
        #: numbers of clients that wait for the store beside the scheduler
        self._waiting: dict[int, None] = {}
        rows.reread = self.reread

    # ---- which store -----------------------------------------------------------------------------------------------
    def joined(self, agent: Agent) -> None:
        """An agent is there; clients may have waited for the one beside the scheduler, or make do with it."""
        if not agent.beside:
            for other in self._rows.clients.values():
                if other.makes_do and agent.store and agent.boot_id == other.boot_id:
                    other.makes_do = False
                    self._offer(other, [agent])
            return
        self._beside = agent.number
        waiting, self._waiting = self._waiting, {}
        for number in waiting:
            client = self._rows.clients.get(number)
            if client is None:
                continue
            self._offer(client, [agent])
            for value in [value for value, asked in client.reading.items() if not asked and value not in client.lost]:
                self._read(client, value)

    def left(self, agent: Agent) -> None:
        """An agent is gone; what clients wanted to read by way of it is looked for again."""
        if agent.number == self._beside:
            self._beside, self._started = 0, False
        for client in self._rows.clients.values():
            for value in [value for value, number in client.reading.items() if number == agent.number]:
                self._read(client, value)

    def request(self, client: Client, beside: bool) -> None:
        """A client looks for a store: directories on its own host, or the store beside the scheduler."""
        client.beside = beside
        found = [agent for agent in self._rows.agents.values() if agent.store and agent.boot_id == client.boot_id]
        client.makes_do = all(agent.beside for agent in found)
        if found and not beside:
            self._offer(client, sorted(found, key=lambda agent: agent.beside))
            return
        client.beside = True
        store = self._rows.agents.get(self._beside)
        if store is not None:
            self._offer(client, [store])
            return
        self._waiting[client.number] = None
        if not self._started:
            self._started = True
            self._outbox.effects.append(StartStore())

    def _offer(self, client: Client, agents: list[Agent]) -> None:
        offers = StoreOffers(
            u32([agent.number for agent in agents]),
            tuple(agent.store for agent in agents),
            tuple(agent.token for agent in agents),
            tuple(agent.data for agent in agents),
        )
        client.agents.update(offers.agents)  # it may write there, and be gone before it says so
        self._outbox.send(client.number, offers)

    # ---- what is where ---------------------------------------------------------------------------------------------
    def announced_by_client(self, client: Client, ids: list[int], bodies: list[bytes]) -> None:
        """A client has written objects into stores: their agents are told."""
        adopted: dict[Agent, ObjectAnnounce] = {}
        for object_id, body in zip(ids, bodies, strict=True):
            size, number = PLACE.unpack(body)
            agent = self._rows.agents.get(number)
            if agent is None and object_id in client.asked:
                tries = client.rereads[object_id] = client.rereads.get(object_id, 0) + 1
                if tries > self._rows.retries_on_loss:
                    del client.rereads[object_id]
                    self._rows.announce_failed(client, object_id, sent_nowhere(object_id).encode())
                    continue
            self._rows.announce(client, object_id, b"", size, agent)
            if agent is not None:
                message = adopted.setdefault(agent, ObjectAnnounce(client=client.number))
                message.ids.append(object_id)
                message.kinds.append(STORED_OBJECT)
                message.bodies.append(body)
        for agent, message in adopted.items():
            self._outbox.send(agent.number, message)

    def announced_by_agent(self, agent: Agent, message: ObjectAnnounce) -> None:
        """An agent has copies of objects; those that nobody needs any more it need not keep."""
        client = self._rows.clients.get(message.client)
        unknown = []
        for object_id in message.ids:
            item = client.objects.get(object_id) if client is not None else None
            if client is None or item is None:
                unknown.append(object_id)
            elif item.size:
                self._rows.objects.has(client, agent, object_id, item)
        if unknown:
            self._rows.objects.release_now(agent, message.client, unknown)

    def gone(self, agent: Agent, message: ObjectGone) -> None:
        """An agent has lost objects."""
        self._rows.recovery.copies_lost(agent.number, list(message))

    def missing(self, agent: Agent, message: ObjectMissing, now: float) -> None:
        """An agent could not get objects, and gives back the rows that need them."""
        news = False
        for number, object_id in message.objects:
            client = self._rows.clients.get(number)
            item = client.objects.get(object_id) if client is not None else None
            if item is not None:
                news |= self._rows.reach.note_cut(agent, item.copies, now)
        self._rows.recovery.copies_lost(agent.number, list(message.objects))
        for client, batch, lo, hi in list(self._rows.theirs(agent, message.rows)):
            self._rows.returned_for(agent, client, batch, lo, hi, news)

    # ---- reading ---------------------------------------------------------------------------------------------------
    def read(self, client: Client, message: ObjectRequest) -> None:
        """A client wants to read objects."""
        for _, value in message:
            self._read(client, value)

    def reread(self, client: Client, value: int) -> None:
        """A value that was lost is there again, or can't be had any more: whoever wanted to read it is told."""
        if value in client.reading:
            self._read(client, value)

    def _read(self, client: Client, value: int) -> None:
        client.reading.pop(value, None)
        item = client.objects.get(value)
        if item is None or not item.size:
            self._answer(
                client,
                value,
                0,
                "the scheduler does not know it: it was released, or stored before the scheduler was started again",
            )
            return
        if item.is_lost:
            if value in client.lost or client.rereads.get(value, 0) < self._rows.retries_on_loss:
                client.reading[value] = 0
                client.rereads[value] = client.rereads.get(value, 0) + 1
                self._rows.recovery.recover(client, value)
            else:
                self._answer(client, value, 0, "it was lost with the hosts that had it, again and again")
            return
        target = self._target(client, item.copies)
        if target is None:
            client.reading[value] = 0
            self.request(client, True)
            return
        client.reading[value] = target.number
        key = (client.number, value)
        if key not in target.holds:
            target.holds.add(key)
            item.holders.add(target.number)
            client.agents.add(target.number)
        self._outbox.introduce(target, item.copies, self._rows.agents)
        holders = u32(sorted(item.copies - {target.number}))
        fetch = ObjectFetch(u32([client.number]), u64([value]), u64([item.size]), u32([len(holders)]), holders)
        self._outbox.send(target.number, fetch)

    def _target(self, client: Client, copies: Collection[int]) -> Agent | None:
        """The agent whose store the client can read, one that has the object already if possible."""
        agents = self._rows.agents
        if client.beside:
            return agents.get(self._beside)
        near = [agent for agent in agents.values() if agent.store and agent.boot_id == client.boot_id]
        near.sort(key=lambda agent: (agent.number not in copies, agent.beside))
        return near[0] if near else agents.get(self._beside)

    def responded(self, agent: Agent, message: ObjectResponse, now: float) -> None:
        """An agent has made objects readable, or could not."""
        for (number, value), outcome in zip(
            zip(message.clients, message.ids, strict=True), message.outcomes, strict=True
        ):
            client = self._rows.clients.get(number)
            if client is None or client.reading.get(value) != agent.number:
                continue
            item = client.objects.get(value)
            if item is None or not item.size:
                self._read(client, value)
            elif not outcome:
                del client.reading[value]
                client.rereads.pop(value, None)
                self._rows.objects.has(client, agent, value, item)
                self._answer(client, value, agent.number, "")
            else:
                tries = client.rereads[value] = client.rereads.get(value, 0) + 1
                if tries > self._rows.retries_on_loss:
                    del client.reading[value]
                    self._answer(client, value, 0, message.reason or "no store that has it could be reached")
                    continue
                self._rows.objects.has_not(client, agent.number, value)
                self._rows.reach.note_cut(agent, item.copies, now)
                if item.copies and not self._rows.reach.has(agent, item.copies):
                    client.near[value] = agent.number
                    client.reading[value] = 0
                    self._rows.recovery.recover(client, value)
                else:
                    self._read(client, value)

    def _answer(self, client: Client, value: int, agent: int, reason: str) -> None:
        client.rereads.pop(value, None)
        answer = ObjectResponse(u32([client.number]), u64([value]), u8([0 if agent else 1]), agent, reason)
        self._outbox.send(client.number, answer)
