"""The messages of the protocol as plain data; `scaler.capnp` says the same for other languages.

    handshake       how a session begins                row_control     rows taken out, claimed, given back
    presence        who is there, and goodbyes          object_places   objects and where they are
    tasks           rows to be run                      columns         what has many things at once
    outcomes        how they ended                      watching        monitors, and what they are shown
    cluster_view    the cluster as monitors see it      worker_columns  its workers
    returning       what is said to another scheduler   asking          questions of monitors
    message         what all messages have in common    commanding      what somebody wants done
    succession      which of two schedulers leads

`bodies` of a message are payload frames, never copied into the header. `validate` says what a well-formed message is;
the codec calls it on everything that comes from outside.
"""

from scaler.protocol.codes import (
    APART,
    CANCELLED,
    DOUBTFUL,
    EACH,
    ERROR,
    FAILED,
    FILE,
    FILED,
    FRESH,
    GRAPH,
    INLINE,
    INLINE_LIMIT,
    INLINE_VALUES,
    KEEP,
    LACKING,
    LIVE,
    LONGEST_NAME,
    LOST,
    MAX_WORKERS,
    MOST_CAPABILITIES,
    MOST_IDS,
    MOST_SECONDS,
    NESTINGS,
    PLACE,
    PROFILE,
    SIZE,
    SPREAD,
    STDERR,
    STDOUT,
    STORED,
    STORED_OBJECT,
    STREAM,
    TOGETHER,
    VALUES_EACH,
    VALUES_LIST,
    WANTED_ALONE,
    WARN,
    WARNINGS,
    Encoding,
    Frame,
    Role,
    sizes_of,
)
from scaler.protocol.messages.asking import MAX_PAGE, Query, QueryResult
from scaler.protocol.messages.columns import i32, u8, u32, u64
from scaler.protocol.messages.commanding import COMMANDS, Command, CommandResult
from scaler.protocol.messages.handshake import Ack, Hello, Refused, Welcome
from scaler.protocol.messages.jobs import (
    JOB_QUESTIONS,
    MAX_JOB_NAME,
    MAX_JOB_WAIT,
    MAX_RESULT_BYTES,
    JobAnswer,
    JobQuestion,
    JobSubmit,
)
from scaler.protocol.messages.journals import (
    TURN_NUMBERS,
    Copying,
    JournalSlice,
    JournalStart,
    JournalState,
    JournalSynced,
)
from scaler.protocol.messages.message import Malformed, Message, Part
from scaler.protocol.messages.object_places import (
    Neighbours,
    ObjectAnnounce,
    ObjectFetch,
    ObjectGone,
    ObjectMissing,
    ObjectRelease,
    ObjectRequest,
    ObjectResponse,
    Objects,
    StoreOffers,
    StoreRequest,
)
from scaler.protocol.messages.outcomes import TaskOutput, TaskResult
from scaler.protocol.messages.presence import (
    ClientClear,
    ClientDeparture,
    ClientShutdown,
    DisconnectRequest,
    DisconnectResponse,
    Drain,
    Heartbeat,
    HeartbeatEcho,
    ShutdownResponse,
)
from scaler.protocol.messages.returning import AgentsInUse, ClientIntroduction, ClientReturn, Inventory, Settled
from scaler.protocol.messages.row_control import (
    BalanceRequest,
    BalanceResponse,
    Spans,
    TaskBegun,
    TaskCancel,
    TaskClaim,
    TaskClaimResponse,
    TaskHold,
    TaskRunning,
)
from scaler.protocol.messages.succession import PartnerReport
from scaler.protocol.messages.tasks import Task
from scaler.protocol.messages.watching import HostReport, Snapshot, Watch
from scaler.protocol.messages.worker_columns import COLUMNS, WorkerColumns, unpack

PROTOCOL_VERSION = 1
