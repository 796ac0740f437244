"""What a client and its views share, put together from the bottom up.

    user's threads ─► Client ─► submission, graphs, maps ─► driver (queues, session core) ─► line ─► scheduler
    futures ─► owner ─► nested waits, watcher                  │                               ▲
                                                               └── other effects               │
          resolver, provider, claims ◄── reactor ◄── I/O thread ◄──────────────────────────────┘

Each part is given what it stands on when it is made, and nothing afterwards.
"""

from __future__ import annotations

import time
from functools import partial

from scaler.client.io.connector import Connector
from scaler.client.io.driver import SessionDriver
from scaler.client.io.io_thread import IOThread
from scaler.client.io.line import Line
from scaler.client.io.polling import ConnectionPoller
from scaler.client.io.reply import Reply
from scaler.client.io.wakeup import Wakeup
from scaler.client.io.watching import Watcher
from scaler.client.lifetime import Lifetime
from scaler.client.liveness import Liveness
from scaler.client.reactor import Reactor
from scaler.client.submitting.graph_batches import GraphBatches
from scaler.client.submitting.graphs import Graphs
from scaler.client.submitting.map_sending import MapSender
from scaler.client.submitting.submission import Submission
from scaler.client.submitting.templates import Templates
from scaler.client.surroundings import patience_with
from scaler.client.task_warnings import TaskWarnings
from scaler.client.values.arguments import Arguments
from scaler.client.values.claimed_rows import ClaimedRows
from scaler.client.values.delivery import ResultDelivery
from scaler.client.values.providing import ValueProvider
from scaler.client.values.questions import StoreQuestions
from scaler.client.values.remembered import RememberedValues
from scaler.client.values.stored_results import StoredResults
from scaler.client.values.stores import Stores
from scaler.client.values.uploads import Uploads
from scaler.client.values.value_codec import ValueCodec
from scaler.client.waiting.cancellations import Cancellations
from scaler.client.waiting.claims import Claims
from scaler.client.waiting.map_job import MapJob
from scaler.client.waiting.nesting import NestedWaits
from scaler.client.waiting.owner import ClientOwner
from scaler.client.waiting.resolving import Resolver
from scaler.common import standard_descriptors
from scaler.common.callback_thread import CallbackThread
from scaler.common.records import frozen
from scaler.serialize.call import AnySerializer
from scaler.transport import Address, Security
from scaler.worker import context

#: seconds for which a scheduler is given to answer
ANSWER = 5.0


@frozen
class ClientParts:
    """The parts that a `Client` and adapters call; they know the others."""

    address: Address
    #: the keys that the scheduler knows it by
    security: Security
    #: seconds for which a lost scheduler is looked for, as the user has said; None: nobody has
    reconnect: float | None
    #: what no other client has
    identity: bytes
    serializer: AnySerializer | None
    liveness: Liveness
    driver: SessionDriver
    owner: ClientOwner
    templates: Templates
    submission: Submission
    maps: MapSender
    graphs: Graphs
    uploads: Uploads
    task_warnings: TaskWarnings
    lifetime: Lifetime


def connect(
    address: Address,
    security: Security,
    name: str,
    timeout: float | None,
    reconnect: float | None,
    serializer: AnySerializer | None,
) -> ClientParts:
    """Connect to the scheduler, and make all parts; the I/O thread runs when this returns.

    Blocks for at most `timeout` seconds, in which it waits for a scheduler that is not there yet; without `timeout` for
    `ANSWER` seconds, if there is one. `reconnect`: seconds for which a lost scheduler is looked for, if the
    user has said how many. Raises `ConnectionFailed`, `ConnectionTimeout`, `HandshakeRefused`.
    """
    standard_descriptors.occupy()
    wakeup, liveness, reply = Wakeup(), Liveness(), Reply()
    line, poller = Line(name, len(address.others), context.store()), ConnectionPoller(wakeup)
    driver = SessionDriver(line, wakeup, liveness)
    connector = Connector(address, security, patience_with(address, reconnect), line, driver, poller)
    try:
        connector.connect(time.monotonic() + (ANSWER if timeout is None else timeout), waits=timeout is not None)
    except BaseException:
        poller.close()
        raise
    io_thread = IOThread(driver, line, poller, connector, reply, liveness)

    # values on their way in and out; what is in the background packs and stores, or calls callbacks
    codec, remembered, questions = ValueCodec(serializer), RememberedValues(), StoreQuestions(driver, liveness)
    stores = Stores(driver, questions, lambda: connector.current, security, remembered.forget_unneeded)
    uploads = Uploads(driver, stores, remembered, codec, io_thread.step_aside)
    arguments = Arguments(codec, uploads)
    stored_results = StoredResults(driver, stores, codec, io_thread, CallbackThread("scaler-client-calls"))
    background = CallbackThread("scaler-client-provides")
    provider = ValueProvider(driver, codec, stores, uploads, background)

    # how what was submitted ends
    cancellations, claims, task_warnings = Cancellations(driver), Claims(), TaskWarnings()
    resolver = Resolver(ResultDelivery(codec, stored_results), cancellations, claims)
    claimed_rows = ClaimedRows(driver, codec, arguments, stored_results)
    reactor = Reactor(resolver, provider, claims, claimed_rows, task_warnings, reply, background)
    io_thread.start(reactor)

    # what users' threads submit, and wait for
    nested_waits = NestedWaits(driver, liveness, codec, claims, claimed_rows, resolver, io_thread)
    watcher = Watcher(driver, line, poller, resolver)
    owner = ClientOwner(address, driver, liveness, codec, cancellations, nested_waits, watcher)
    root = context.root if context.surroundings() is not None else None
    templates = Templates(driver, liveness, uploads, serializer, root)
    submission = Submission(driver, liveness, owner, arguments, uploads, codec)
    new_job = partial(MapJob, driver=driver, codec=codec, stored_results=stored_results, nested_waits=nested_waits)
    lifetime = Lifetime(driver, liveness, io_thread, reactor, resolver, reply, stored_results)
    lifetime.end_with(owner)
    return ClientParts(
        address=address,
        security=security,
        reconnect=reconnect,
        identity=line.identity,
        serializer=serializer,
        liveness=liveness,
        driver=driver,
        owner=owner,
        templates=templates,
        submission=submission,
        maps=MapSender(driver, liveness, uploads, templates, submission, new_job),
        graphs=Graphs(driver, liveness, owner, templates, submission, GraphBatches(driver, uploads, codec)),
        uploads=uploads,
        task_warnings=task_warnings,
        lifetime=lifetime,
    )
