"""What is fuzzed: each target takes any bytes, and raises if something is wrong with how the product takes them.

From without (`codec`, `framing`, `acceptor`, `initiator`) bytes may bring about one ProtocolError and nothing else.
Into the cores (all others) go messages that the schema allows, whose ids are of what is there or at the edges of what
can be: the core ends the session that said so or ignores it, its state stays as `validate` says, and no move that isn't
in its table is made.
"""

from array import array
from collections.abc import Callable, Iterable
from random import Random

from simulator.hostile_messages import Hostile, Lot
from simulator.scripted import BATCHES, IDS, FakeAgent, FakeScheduler, WellSpoken, some_work, spans
from support.enemies.hosts import HostsAmongEnemies
from support.enemies.jobs import JobsAmongEnemies
from support.enemies.journals import HostileLeader, HostileStandby, a_directory
from support.enemies.pair import PairAmongEnemies
from support.enemies.scheduler import SchedulerAmongEnemies

from fuzz.chance import Chosen, Over
from scaler.agent.state import validate as of_agent
from scaler.client.core import events as ce
from scaler.client.core.session import SessionCore
from scaler.common.findings import Finding
from scaler.errors import ProtocolError
from scaler.protocol import messages as m
from scaler.protocol.acceptor import Acceptor, Terms
from scaler.protocol.channel import Envelope
from scaler.protocol.codec import decode, encode
from scaler.protocol.hello import hello_of
from scaler.protocol.initiator import Initiator, State
from scaler.protocol.messages import PROTOCOL_VERSION
from scaler.scheduler.core.returning import PATIENCE
from scaler.scheduler.state import validate as of_scheduler
from scaler.transport.framing import Decoder
from scaler.worker_protocol import messages as wm
from scaler.worker_protocol.encoding import MalformedMessage, from_worker, read_by_agent

#: bytes of a message in these targets
LIMIT = 1 << 20
#: messages of one run
MOST = 24


# ---- from without ----------------------------------------------------------------------------------------------------
def codec(data: bytes) -> None:
    """Any frames are a message that can be encoded again, or one ProtocolError."""
    cut = data[0] if data else 0
    frames = [data[1 : 1 + 8 * cut], data[1 + 8 * cut :]] if cut < 128 else [data[1:]]
    try:
        envelope = decode(list(frames))
    except ProtocolError:
        return
    message = envelope.message
    if isinstance(message, m.Hello) and message.protocol != PROTOCOL_VERSION:
        assert message.role.isidentifier()  # that is all that is known of roles of another version
        message.role = m.Role.CLIENT
    decode([bytes(frame) for frame in encode(message, envelope.seq, envelope.ack)])


def framing(data: bytes) -> None:
    """Any bytes in any pieces are messages, or one ProtocolError; memory is for what is within the limit."""
    decoder = Decoder(LIMIT, is_welcome=bool(data) and data[0] < 200)
    step, at = (data[1] if len(data) > 1 else 0) + 1, 2
    try:
        while at < len(data):
            wanted = decoder.wanted
            if wanted is None:
                piece = data[at : at + step]
                decoder.feed(piece)
            else:
                piece = data[at : at + min(step, len(wanted))]
                wanted[: len(piece)] = piece
                decoder.filled(len(piece))
            at += len(piece)
    except ProtocolError:
        pass


#: as a decoder has them
ROLES = tuple(map(str, m.Role))


def drawn_hello(chosen: Chosen) -> m.Hello:
    """A Hello as it comes out of a decoder; `Malformed` if none does."""
    role, workers = chosen.choice(ROLES), chosen.choice((0, 1, 2**32 - 1))
    made = hello_of(role, "h", chosen.choice((0, 0, 2, 2**32 - 1)), workers)
    made.session = chosen.choice((0, 1, 2, 2**64 - 1))
    made.epoch = chosen.choice((0, 1, 7))
    made.number = chosen.choice((0, 1, 2, 3, 1000, 2**32 - 1))
    made.received = chosen.choice((0, 1, 5, 2**64 - 1))
    if chosen.random() < 0.2:
        made.agents = m.u32([chosen.choice((0, 1, 2**32 - 1))])
    made.validate()
    return made


def acceptor(data: bytes) -> None:
    """Connections that say hello, go on, say anything and close, in any order, as often as they like."""
    chosen = Chosen(data)
    terms = Terms(7, PROTOCOL_VERSION, True, 1.0, 30.0, 30.0, LIMIT)
    made = Acceptor(terms, 1, 2)
    drawn = Hostile(chosen, (0, 1, 2, 3), (0, 1, 10, 11))
    try:
        for _ in range(4 * MOST):
            connection = chosen.choice((1, 2, 3))
            action = chosen.randrange(8)
            if action < 3:
                made.receive(connection, Envelope(0, 0, drawn_hello(chosen)), 4)
            elif action < 6:
                seq, ack = (chosen.choice((0, 1, 2, 3, 2**64 - 1)) for _ in range(2))
                made.receive(connection, Envelope(seq, ack, drawn.message()), 4)
            elif action == 6:
                made.disconnect(connection)
            else:
                made.send(chosen.choice((1, 2, 3, 4)), m.HeartbeatEcho(0, 1))
            made.outgoing.clear()
            made.unread.clear()
    except (Over, m.Malformed):
        pass


def initiator(data: bytes) -> None:
    """A scheduler that welcomes, refuses, says anything and closes, in any order."""
    chosen = Chosen(data)
    made, now = Initiator(hello_of("client", "c", 0)), 0.0
    drawn = Hostile(chosen, (0, 1, 2, 3), (0, 1, 10, 11))
    try:
        for _ in range(4 * MOST):
            action = chosen.randrange(8)
            now += chosen.choice((0.0, 0.1, 100.0))
            if made.state is State.AWAY and action < 6:
                made.greet(now)
            elif action < 3:
                made.receive(Envelope(0, 0, drawn.message(chosen.choice((m.Welcome, m.Refused)))), now)
            elif action < 5:
                seq, ack = (chosen.choice((0, 1, 2, 3, 2**64 - 1)) for _ in range(2))
                made.receive(Envelope(seq, ack, drawn.message()), now)
            elif action == 5:
                made.disconnect("closed")
            elif action == 6:
                made.check_silence(now)
                made.take_ack()
            else:
                made.send(m.HeartbeatEcho(0, 1))
    except (Over, ProtocolError):
        pass


# ---- into the cores --------------------------------------------------------------------------------------------------
def holds(*looks: Iterable[Finding]) -> None:
    """Raise AssertionError with the first thing that does not hold of a state."""
    for findings in looks:
        for found in findings:
            raise AssertionError(found)


def _go_on(step: Callable[[], None], most: int = MOST) -> None:
    """As many things happen as the bytes say."""
    try:
        for _ in range(most):
            step()
    except Over:
        pass


def _time_goes_by(fake: FakeScheduler, chosen: Chosen, agent: int, client: int) -> None:
    """These two are heard of meanwhile."""
    fake.wait(chosen.choice((0.01, 1.0)))
    fake.say(agent, m.Heartbeat(fake.now, 2))
    fake.say(client, m.Heartbeat(fake.now))


def _all_ends(fake: FakeScheduler, other: int, agents: list[int]) -> None:
    """What a client has sent at first comes to an end at these agents, and the state is as it should be."""
    state = fake.core.state
    batches = state.clients[other].batches
    for _ in range(12):
        left = [batch.id for batch in batches.values() if batch.id in BATCHES]
        if not left:
            break
        for agent in agents:
            for number in list(state.clients):  # rows that never end would be in the way of others for good
                fake.end_all(agent, number, m.VALUES_EACH)
    assert not left, f"batches {left} have not ended"
    holds(of_scheduler.quick(state), of_scheduler.thorough(state))


def scheduler(data: bytes) -> None:
    """A client and an agent say anything; another client's rows end nevertheless."""
    chosen = Chosen(data)
    fake = WellSpoken(1, 2)
    hostile, decent = fake.agents
    client, other = fake.client("/store"), fake.client()
    for number in (client, other):
        fake.say(number, *some_work())
    drawn = Hostile(chosen, (client, other, hostile, decent), IDS)
    state = fake.core.state
    try:
        for _ in range(MOST):
            action = chosen.randrange(8)
            if action < 6:
                fake.say(client if action < 3 else hostile, drawn.message())
            elif action == 6:
                fake.end_all(chosen.choice((hostile, decent)), other, chosen.choice((m.STORED, m.VALUES_EACH)))
            else:
                _time_goes_by(fake, chosen, decent, other)
            holds(of_scheduler.quick(state))
    except Over:
        pass
    holds(of_scheduler.thorough(state))
    fake.lose(hostile)
    _all_ends(fake, other, [decent, fake.agent(8)])


def peers(data: bytes) -> None:
    """A client, an agent and a monitor say what is mostly taken, and come again; another client's rows end."""
    chosen = Chosen(data)
    story = SchedulerAmongEnemies(chosen)
    _go_on(story.step, 2 * MOST)
    story.end()


def restart(data: bytes) -> None:
    """They come from another scheduler in any order, and say anything of what they had there; the other's rows end."""
    chosen = Chosen(data)
    fake = WellSpoken()
    client, other, hostile, decent = 1_002, 1_003, 1_004, 1_005
    session, state = 6, fake.core.state
    drawn = Hostile(chosen, (client, other, hostile, decent), (*IDS, session))
    try:
        known = chosen.choice(([decent], [decent, hostile], []))
        held, ended = chosen.choice((2, 3)), chosen.choice(([], [0, 1]))
    except Over:
        return

    def decent_agent() -> None:
        rows = spans(m.Spans, other, (14, 1, held))
        fake.come_back("agent", decent)
        fake.say(decent, m.Inventory(m.u32([other]), m.u64([session]), rows))

    def decent_client() -> None:
        fake.come_back("client", other, session, agents=m.u32(known))
        fake.say(other, m.ObjectAnnounce(m.u64([1]), m.u8([0]), [b"function"]), *some_work(ended=m.u32(ended)))
        fake.say(other, m.ClientReturn())

    def hostile_agent() -> None:
        fake.come_back("agent", hostile)
        fake.say(hostile, drawn.message(m.Inventory))

    def hostile_client() -> None:
        fake.come_back("client", client, agents=m.u32(chosen.choice(([], [hostile], [decent, 77]))))
        fake.say(client, m.ObjectAnnounce(m.u64([1]), m.u8([0]), [b"function"]))
        if chosen.random() < 0.5:
            fake.say(client, *some_work())

    to_come = [decent_agent, decent_client, hostile_agent, hostile_client]
    try:
        for _ in range(MOST):
            action = chosen.randrange(8)
            if action < 2 and to_come:
                to_come.pop(chosen.randrange(len(to_come)))()
            elif action < 4:
                fake.say(client, drawn.message())
            elif action == 4:
                fake.say(client, m.ClientReturn(m.u64([chosen.choice(IDS)])))
            elif action == 5:
                fake.say(hostile, drawn.message())
            elif action == 6 and other in state.clients:
                fake.end_all(chosen.choice((hostile, decent)), other, chosen.choice((m.STORED, m.VALUES_EACH)))
            else:
                _time_goes_by(fake, chosen, decent, other)
            holds(of_scheduler.quick(state))
    except Over:
        pass
    for comes in to_come:
        if comes in (decent_agent, decent_client):
            comes()
    holds(of_scheduler.thorough(state))
    fake.lose(hostile)
    fake.wait(PATIENCE + 1.0)
    _all_ends(fake, other, [decent, fake.agent(8)])


def partner(data: bytes) -> None:
    """Somebody says that it is the other one of a pair, and anything; in the end the scheduler can be promoted."""
    chosen = Chosen(data)
    try:
        story = PairAmongEnemies(chosen)
    except Over:
        return
    _go_on(story.step, 2 * MOST)
    story.end()


def copies(data: bytes) -> None:
    """Somebody has a copy of a journal, or sends one, and says anything about it; a journal is there in the end."""
    chosen = Chosen(data)
    with a_directory() as path:
        try:
            story = chosen.choice((HostileLeader, HostileStandby))(chosen, path)
        except Over:
            return
        _go_on(story.step, 2 * MOST)
        story.be_steady()
        story.end()


def jobs(data: bytes) -> None:
    """Anybody says anything to a scheduler with durable jobs, which starts again now and then; the decent one ends."""
    chosen = Chosen(data)
    story = JobsAmongEnemies(chosen, chosen)
    _go_on(story.step)
    story.end(Random(0))


#: what a scheduler says to an agent, which believes it what is still needed, and to a client
TO_AGENT = (
    m.TaskCancel, m.TaskClaim, m.BalanceRequest, m.ObjectFetch, m.HeartbeatEcho, m.Settled, m.Neighbours,
)  # fmt: skip
TO_CLIENT = (
    m.TaskResult, m.TaskClaimResponse, m.TaskRunning, m.TaskOutput, m.ObjectRequest, m.ObjectResponse, m.StoreOffers,
    m.TaskBegun, m.TaskHold, m.HeartbeatEcho, m.DisconnectResponse, m.ShutdownResponse,
)  # fmt: skip


def worker_says(chosen: Lot, clients: tuple[int, ...] = (7, 8)) -> wm.FromWorker:
    """Anything that a worker may say, of rows of these clients."""
    client, batch, number = chosen.choice(clients), chosen.choice((0, 10, 20, 30)), chosen.choice((0, 1, 2, 3, 2**31))
    lo = chosen.choice((0, 1, 2, 5))
    rows = chosen.choice((1, 1, 2, 4))
    action = chosen.randrange(7)
    if action < 3:
        outcome = chosen.choice((m.VALUES_LIST, m.VALUES_EACH, m.ERROR, m.STORED, m.LIVE, m.DOUBTFUL))
        rows = 1 if outcome in (m.ERROR, m.DOUBTFUL) else rows
        sizes, body = [4], b"data"
        if outcome in (m.STORED, m.LIVE):
            sizes, body = [m.SIZE.size] * rows, m.SIZE.pack(chosen.choice((0, 1 << 20, 2**63))) * rows
        elif outcome == m.VALUES_EACH:
            sizes, body = [1] * rows, b"v" * rows
        took, peak, used = (chosen.choice((0, 100, 100, 2**32, 2**64 - 1)) for _ in range(3))
        span = wm.EndedSpan(number, client, batch, lo, lo + rows, outcome, took, peak, array("I", sizes), body, used)
        return wm.Results([span], [number] if chosen.random() < 0.5 else [])
    if action == 3:
        return wm.Returned(chosen.randrange(3), [wm.ReturnedSpan(number, client, batch, lo, lo + rows)], None)
    if action == 4:
        value = wm.PublishedValue((client, batch + lo), chosen.choice((0, 1 << 20)), chosen.choice((None, "no room")))
        return wm.Published([value])
    if action == 5:
        text, row = chosen.choice(("", "said\n", "\udc80\0" * 9)), chosen.choice((batch + lo, 2**64 - 1))
        return wm.Output(client, row, chosen.choice((m.STDOUT, m.WARNINGS)), text, text)
    return chosen.choice((
        wm.Blocked(), wm.Unblocked(), wm.Leaving(), wm.Ready(1), wm.Preloading("m:f", "no"),
        wm.TailResponse(number, "said"), wm.Unfiled(number, 28), wm.Unfit("has no descriptors"), wm.Crowded(1 << 20),
    ))  # fmt: skip


def hosts(data: bytes) -> None:
    """A client says anything to a scheduler, which passes on to agents what it takes; workers say anything, too."""
    chosen = Chosen(data)
    cluster = HostsAmongEnemies(chosen, worker_says)
    _go_on(cluster.step)
    cluster.end()


def agent(data: bytes) -> None:
    """A worker says anything, the scheduler of what is here and of what is not, and workers die."""
    chosen = Chosen(data)
    fake = FakeAgent(2)
    client = FakeAgent.CLIENT
    fake.give(5, 0, 1)
    fake.makes(0, live=True)
    fake.give(10, 0, 6)
    fake.give(20, 0, 2, timeout=3.0)
    fake.give_dependents(30, [[5], []])
    drawn = Hostile(chosen, (client, 8, 3), (1, 5, 10, 11, 20, 21, 30, 31))
    try:
        for _ in range(2 * MOST):
            action = chosen.randrange(10)
            slot = chosen.choice((0, 1, 2))
            if action < 5:
                try:
                    said = read_by_agent(memoryview(from_worker(worker_says(chosen))))
                except MalformedMessage:
                    continue
                fake.worker(slot, said)
            elif action < 8:
                fake.tell(drawn.message(chosen.choice(TO_AGENT)))
            elif action == 8 and slot in fake.core.state.workers.records:
                fake.dies(slot)
            else:
                fake.now += chosen.choice((0.1, 2.0))
                fake.handle()
            for ending in fake.killed:
                fake.dies(ending)
            fake.killed.clear()
            for message in fake.said:
                encode(message)
            fake.said.clear()
            holds(of_agent.quick(fake.core.state))
    except Over:
        pass
    holds(of_agent.thorough(fake.core.state))


class _Token:
    """Stands for a row."""

    id = 0


def client(data: bytes) -> None:
    """The scheduler says anything; no row ends twice for its user."""
    chosen = Chosen(data)
    session = SessionCore()
    session.handle([ce.Welcomed(False, 1.0, 2)], 0.0)
    ended: dict[_Token, int] = {}
    for made in some_work():
        tokens = [_Token() for _ in range(made.rows)]
        session.handle([ce.Submit(made, tokens)], 0.1)
    drawn = Hostile(chosen, (0, 1, 2), IDS)
    try:
        for _ in range(2 * MOST):
            if chosen.random() < 0.1:
                event: ce.Event = ce.Welcomed(False, 1.0, 2)
            else:
                event = ce.Arrived(drawn.message(chosen.choice(TO_CLIENT)))
            for effect in session.handle([event], 0.5):
                if isinstance(effect, ce.Transmit):
                    encode(effect.message)
                elif isinstance(effect, ce.Resolve):
                    for token in effect.tokens:
                        ended[token] = ended.get(token, 0) + 1
                        assert ended[token] == 1, "a row ended twice"
    except (Over, ProtocolError):
        pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    made.__name__: made
    for made in (
        codec,
        framing,
        acceptor,
        initiator,
        scheduler,
        peers,
        partner,
        copies,
        restart,
        jobs,
        hosts,
        agent,
        client,
    )
}
